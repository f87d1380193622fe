"""What both cores refuse, or take, alike."""

import os

import ml_dtypes
import numpy as np
import pytest

import attendant
from attendant.connection import check_timeout
from fake_server import echo_q

LIBRARY = os.environ.get("ATTENDANT_CLIENT_LIBRARY", "")
Q = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)


@pytest.fixture(params=["grpcio", "native"])
def client(request, fake):
    """Of either core; O is q."""
    if request.param == "native" and not os.path.exists(LIBRARY):
        pytest.skip("no library at ATTENDANT_CLIENT_LIBRARY")
    with attendant.Client(fake(echo_q).target, core=request.param) as client:
        yield client


@pytest.mark.parametrize(
    "timeout", [30, np.float32(30), np.int64(30), 1e12, 2**70, float("inf"), 1e300]
)
def test_any_timeout_above_zero_is_time(client, timeout):
    out = client.attend(Q, Q, Q, timeout=timeout).out
    np.testing.assert_array_equal(out, Q)


@pytest.mark.parametrize(
    "timeout",
    [0, -1, float("nan"), float("-inf"), None, "3", [1], 1j, np.array([1, 2])],
)
def test_no_time_is_refused(client, timeout):
    with pytest.raises(attendant.AttendantError) as error:
        client.attend(Q, Q, Q, timeout=timeout)
    assert error.value.field == "timeout"


def test_a_timeout_is_as_exact_as_the_clock():
    assert type(check_timeout(np.float32(1))) is float


@pytest.mark.parametrize("shape", [(0, 4, 2, 8), (1, 0, 2, 8)])
def test_empty_tensors_are_tensors(client, shape):
    q = np.empty(shape, np.float32)
    assert client.attend(q, q, q, timeout=30).out.shape == shape


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_id", "a\0b"),
        ("request_id", "\ud800"),
        ("request_id", b"bytes"),
        ("ordering_key", 5),
        ("priority", 1.5),
        ("priority", 2**40),
        ("causal", "no"),
        ("return_lse", "yes"),
        ("window_left", 2**70),
        ("layout", ["bshd"]),
        ("seqlens_k", [1.5]),
        ("cu_seqlens_q", [0, 2**40]),
        ("cu_seqlens_q", "ab"),
        ("alibi_slopes", ["a"]),
        ("alibi_slopes", object()),
    ],
)
def test_a_wrong_value_names_its_field(client, field, value):
    with pytest.raises(attendant.AttendantError) as error:
        client.attend(Q, Q, Q, timeout=30, **{field: value})
    assert error.value.code == attendant.StatusCode.INVALID_ARGUMENT
    assert error.value.field == field


@pytest.mark.parametrize("causal", [True, np.True_, np.int32(1), 1])
def test_flags_may_be_numpys(client, causal):
    assert client.attend(Q, Q, Q, timeout=30, causal=causal, layout=None).out.size


@pytest.mark.parametrize(
    ("q", "out"),
    [
        (Q.astype(ml_dtypes.bfloat16), np.zeros(Q.shape, np.float16)),
        (Q.astype(np.float16), np.zeros(Q.shape, ml_dtypes.bfloat16)),
        (Q.astype(np.float16), np.zeros(Q.shape, np.uint16)),
        (Q.astype(np.float16), np.zeros(Q.shape, np.float32)),
        (Q, np.zeros(Q.shape, np.float16)),
    ],
)
def test_memory_of_another_type_is_refused(client, q, out):
    with pytest.raises(attendant.AttendantError) as error:
        client.attend(q, q, q, out=out, timeout=30)
    assert error.value.field == "out.dtype"
    assert not out.any()


def test_a_list_is_no_memory_for_an_answer(client):
    out = [[[[np.float32(0)] * 2] * 3] * 4]
    with pytest.raises(attendant.AttendantError) as error:
        client.attend(Q, Q, Q, out=out, timeout=30)
    assert error.value.field == "out"


def test_integers_take_the_bits_of_bf16(client):
    q = Q.astype(ml_dtypes.bfloat16)
    out = np.zeros(Q.shape, np.uint16)
    client.attend(q, q, q, out=out, timeout=30)
    np.testing.assert_array_equal(out, q.view(np.uint16))


@pytest.mark.parametrize("field", ["target", "token", "server_name"])
def test_what_c_would_cut_is_refused(field):
    options = {"target": "localhost:1", "tls": True, field: "a\0b"}
    with pytest.raises(attendant.AttendantError) as error:
        attendant.Client(**options)
    assert error.value.field == field
