"""What the native core does beside the grpcio one: views, memory, structs."""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import attendant
from attendant import native_library, native_types
from attendant.dlpack import Lent
from fake_server import echo_q, refuse_with_detail

LIBRARY = os.environ.get("ATTENDANT_CLIENT_LIBRARY", "")
pytestmark = pytest.mark.skipif(
    not os.path.exists(LIBRARY), reason="no library at ATTENDANT_CLIENT_LIBRARY"
)
ROOT = pathlib.Path(__file__).parents[3]
Q = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)


@pytest.fixture
def client(fake):
    """A native client of a server that echoes q."""
    with attendant.Client(fake(echo_q).target, core="native") as connected:
        yield connected


def ask(client, q, **options):
    """The answer, which is q."""
    return client.attend(q, q, q, timeout=30, **options)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[:, ::-1],
        lambda x: x[..., ::-1],
        lambda x: x[:, 1:3],
        lambda x: x[:, ::2],
        lambda x: x[:, :, :, ::2],
        lambda x: x.transpose(0, 2, 1, 3),
        lambda x: x.transpose(3, 1, 2, 0),
        lambda x: np.asfortranarray(x),
        lambda x: x[:, :1],
        lambda x: x[:, :0],
        lambda x: x[:0],
        lambda x: x.astype(">f4"),
        lambda x: x.astype(np.float16)[:, 1:],
        lambda x: x.astype(ml_dtypes.bfloat16)[:, 1:],
    ],
)
def test_views_give_what_their_copies_give(target, view, float32):
    random = np.random.default_rng(1)
    q, k, v = (view(random.standard_normal((2, 6, 4, 8), np.float32)) for _ in "qkv")
    options = {"timeout": 60, "causal": True, "return_lse": True}
    if q.dtype.itemsize == 4:
        options |= float32
    with attendant.Client(target, core="native") as client:
        got = client.attend(q, k, v, **options)
        want = client.attend(
            *(
                np.ascontiguousarray(x.astype(x.dtype.newbyteorder("=")))
                for x in (q, k, v)
            ),
            **options,
        )
    assert got.out.dtype == want.out.dtype
    np.testing.assert_array_equal(got.out, want.out)
    np.testing.assert_array_equal(got.lse, want.lse)


@pytest.mark.parametrize("door", ["stream", "striped", "shm"])
def test_every_door_gives_what_the_unary_one_gives(door, target):
    random = np.random.default_rng(7)
    q = random.standard_normal((2, 70, 4, 16), np.float32).astype(np.float16)
    k, v = random.standard_normal((2, 2, 70, 2, 16), np.float32).astype(np.float16)
    options = {"timeout": 60, "causal": True, "return_lse": True}
    try:
        other = attendant.Client(target, core="native", door=door)
    except attendant.AttendantError as error:
        assert error.code is attendant.StatusCode.UNIMPLEMENTED
        pytest.skip(error.message)
    with attendant.Client(target, core="native") as unary, other:
        want = unary.attend(q, k, v, **options)
        out = np.zeros_like(q)
        for got in (
            other.attend(q, k, v, **options),
            other.attend(q, k, v, out=out, **options),
            other.submit(np.asfortranarray(q), k, v, **options).result(60),
        ):
            assert got.door == door
            np.testing.assert_array_equal(got.out, want.out)
            np.testing.assert_array_equal(got.lse, want.lse)
        np.testing.assert_array_equal(out, want.out)
        prepared = other.prepare(q * 0, k, v, causal=True, return_lse=True)
        prepared.q[...] = q
        prepared.attend(timeout=60)
        np.testing.assert_array_equal(prepared.out, want.out)
        np.testing.assert_array_equal(prepared.lse, want.lse)
        with pytest.raises(attendant.AttendantError) as caught:
            other.attend(q, k, v, timeout=60, priority=1000)
        assert caught.value.field == "priority"


def test_the_example_of_shared_memory_runs(target):
    example = ROOT / "client" / "python" / "examples" / "shared_memory.py"
    done = subprocess.run(
        [sys.executable, example, target], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 answers by the door shm\n"


def test_repeated_heads_and_masks_travel_once(target, float32):
    random = np.random.default_rng(2)
    q = random.standard_normal((2, 5, 4, 8), np.float32)
    k, v = (random.standard_normal((2, 5, 1, 8), np.float32) for _ in "kv")
    wide_k, wide_v = (np.broadcast_to(x, q.shape) for x in (k, v))
    mask = np.broadcast_to(np.tril(np.ones((5, 5), bool)), (2, 4, 5, 5))
    with attendant.Client(target, core="native") as client:
        got = client.attend(q, wide_k, wide_v, mask=mask, timeout=60, **float32)
        want = client.attend(q, k, v, causal=True, timeout=60, **float32)
    np.testing.assert_allclose(got.out, want.out, atol=5e-3 if float32 else 1e-6)
    assert got.input_bytes < want.input_bytes + 2 * mask.size


def test_the_answer_is_written_where_the_caller_says(client):
    out = np.full(Q.shape, np.nan, np.float32)
    result = ask(client, Q, out=out)
    assert result.out is out
    np.testing.assert_array_equal(out, Q)
    for wrong in (np.empty((1, 4, 3, 3), np.float32), np.empty((1, 4, 3), np.float32)):
        with pytest.raises(attendant.AttendantError) as caught:
            ask(client, Q, out=wrong)
        assert caught.value.field == "out.shape"
    readonly = np.empty(Q.shape, np.float32)
    readonly.flags.writeable = False
    for wrong in (readonly, np.empty((1, 4, 2, 3), np.float32).transpose(0, 1, 3, 2)):
        with pytest.raises(attendant.AttendantError) as caught:
            ask(client, Q, out=wrong)
        assert caught.value.field == "out"


class Producer:
    """An array that only DLPack can read."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_dlpack_tensors_are_read_where_they_lie(client, target, float32):
    np.testing.assert_array_equal(ask(client, Producer(Q)).out, Q)
    with attendant.Client(target, core="native") as real:
        turned = Q.transpose(0, 2, 1, 3)
        want = ask(real, np.ascontiguousarray(turned), **float32).out
        got = ask(real, Producer(turned), **float32).out
        np.testing.assert_array_equal(got, want)
    with pytest.raises(attendant.AttendantError) as caught:
        ask(client, Producer(Q.astype(np.float64)))
    assert caught.value.field == "q.dtype"
    with pytest.raises(attendant.AttendantError) as caught:
        ask(client, Producer(Q[..., ::-1]))
    assert caught.value.field == "q.strides"


class OnGpu:
    """What DLPack's capsule of an array says, but that it lies on a GPU."""

    def __init__(self, producer):
        lent = Lent(producer)
        self.__dict__.update(vars(lent), device_type=2)


@pytest.mark.parametrize("name", ["out", "lse"])
def test_a_host_tensors_answer_is_not_written_to_a_gpus_address(
    client, monkeypatch, name
):
    monkeypatch.setattr("attendant.views.Lent", OnGpu)
    places = {"out": np.zeros_like(Q), "lse": np.zeros((1, 3, 4), np.float32)}
    place = Producer(places[name])
    with pytest.raises(attendant.AttendantError) as caught:
        ask(client, Q, return_lse=True, **{name: place})
    assert caught.value.field == f"{name}.device"


def test_a_library_of_another_abi_is_named_as_such(monkeypatch):
    functions = native_library._FUNCTIONS | {"not_there_yet": (None, [])}
    monkeypatch.setattr(native_library, "_FUNCTIONS", functions)
    with pytest.raises(AttributeError, match="not_there_yet"):
        native_library.Library(LIBRARY)
    monkeypatch.setattr(native_types, "ABI_VERSION", 99)
    with pytest.raises(OSError, match=r"has ABI \d+, not 99"):
        native_library.Library(LIBRARY)


def test_no_reference_is_left_behind(client):
    array = np.ones((1, 256, 4, 64), np.float32)
    for _ in range(3):
        ask(client, array)
    gc.collect()
    before = sys.getrefcount(array)
    for _ in range(50):
        ask(client, array)
    gc.collect()
    assert sys.getrefcount(array) == before


def test_calls_like_one_before_read_their_own_tensors(client):
    arrays = [np.random.default_rng(n).random(Q.shape, np.float32) for n in range(4)]
    for array in arrays + arrays[::-1]:
        np.testing.assert_array_equal(ask(client, array).out, array)
        out = np.zeros_like(array)
        ask(client, array, out=out)
        np.testing.assert_array_equal(out, array)
    out.flags.writeable = False
    with pytest.raises(attendant.AttendantError):
        ask(client, Q, out=out)
    with pytest.raises(attendant.AttendantError):
        ask(client, Q, out=np.zeros((1, 4, 2, 3), np.float32).transpose(0, 1, 3, 2))
    small = Q[:, :2].copy()
    np.testing.assert_array_equal(ask(client, small).out, small)
    np.testing.assert_array_equal(ask(client, Q[:, 1:3]).out, Q[:, 1:3])


def test_values_that_do_not_fit_are_refused_before_they_are_cut(client):
    for field, value in (
        ("priority", 1 << 40),
        ("window_left", 1 << 70),
        ("seqlens_k", [1.5]),
        ("cu_seqlens_q", [0, 1 << 40]),
        ("softmax_scale", "much"),
    ):
        with pytest.raises(attendant.AttendantError) as caught:
            ask(client, Q, **{field: value})
        assert caught.value.field == field
    with pytest.raises(TypeError, match="softmx_scale"):
        ask(client, Q, softmx_scale=1)


def test_errors_of_both_cores_are_the_same(fake):
    errors = []
    for core in ("native", "grpcio"):
        with attendant.Client(fake(refuse_with_detail).target, core=core) as client:
            with pytest.raises(attendant.AttendantError) as caught:
                ask(client, Q)
            errors.append(caught.value)
    native, pure = errors
    assert type(native) is type(pure)
    assert str(native) == str(pure)
    assert native.__reduce__() == pure.__reduce__()


def test_door_and_core_are_checked():
    for options, field in (
        ({"door": "window"}, "door"),
        ({"core": "rust"}, "core"),
        ({"core": "grpcio", "connections": 2}, "connections"),
        ({"core": "grpcio", "door": "stream"}, "door"),
    ):
        with pytest.raises(attendant.AttendantError) as caught:
            attendant.Client("localhost:1", **options)
        assert caught.value.field == field


WITHOUT_LIBRARY = """
import warnings, attendant
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    clients = [attendant.Client("localhost:1") for _ in range(3)]
assert {client.core for client in clients} == {"grpcio"}
assert len(caught) == 1, caught
assert "libattendant_client.so" in str(caught[0].message)
try:
    attendant.Client("localhost:1", core="native")
except attendant.AttendantError as error:
    assert error.field == "core"
"""

WITHOUT_GRPCIO = """
import sys
sys.modules["grpc"] = sys.modules["google.protobuf"] = None
import attendant, numpy as np
q = np.zeros((1, 2, 1, 8), np.float16)
v = np.arange(1, 3, dtype=np.float16).reshape(1, 2, 1, 1)
with attendant.Client(sys.argv[1], core="native") as client:
    assert client.attend(q, q, v, timeout=60).out.reshape(-1).tolist() == [1.5, 1.5]
    assert client.get_server_info(timeout=60).capabilities
"""


@pytest.mark.parametrize("code", [WITHOUT_LIBRARY, WITHOUT_GRPCIO])
def test_each_core_serves_without_the_other(code, target):
    environment = dict(os.environ)
    if code is WITHOUT_LIBRARY:
        environment["ATTENDANT_CLIENT_LIBRARY"] = "/nowhere/libattendant_client.so"
    done = subprocess.run(
        [sys.executable, "-c", code, target],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_structs_are_as_long_as_the_header_says(tmp_path):
    from attendant import native_types

    header = os.path.join(
        os.path.dirname(__file__), "../../../client/cpp/c_api/attendant_client_c.h"
    )
    structs = {
        "error": native_types.Error,
        "client_options": native_types.ClientOptions,
        "tensor": native_types.Tensor,
        "buffer": native_types.Buffer,
        "array_layout": native_types.ArrayLayout,
        "array": native_types.Array,
        "placed": native_types.Placed,
        "attend_args": native_types.Args,
        "reply": native_types.Reply,
        "device": native_types.Device,
        "bound": native_types.Bound,
        "capability": native_types.Capability,
        "server_info": native_types.ServerInfo,
    }
    lines = [f'#include "{header}"', "#include <stdio.h>", "int main(void) {"]
    wanted = []
    for name, kind in structs.items():
        lines.append(f'printf("%zu\\n", sizeof(attendant_{name}));')
        wanted.append(ctypes.sizeof(kind))
        for field, *_ in kind._fields_:
            lines.append(f'printf("%zu\\n", offsetof(attendant_{name}, {field}));')
            wanted.append(getattr(kind, field).offset)
    (tmp_path / "sizes.c").write_text("\n".join([*lines, "return 0; }"]))
    binary = tmp_path / "sizes"
    subprocess.run(["cc", "-o", binary, tmp_path / "sizes.c"], check=True)
    printed = subprocess.run([binary], capture_output=True, text=True, check=True)
    assert [int(line) for line in printed.stdout.split()] == wanted


def test_looks_beside_itself_then_where_the_loader_looks(monkeypatch):
    monkeypatch.delenv("ATTENDANT_CLIENT_LIBRARY")
    beside, system = native_library.candidates()
    assert beside.endswith("attendant/libattendant_client.so.0")
    assert system == "libattendant_client.so.0"
