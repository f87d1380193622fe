"""Calls like the one before, whose arrays the library looks at by itself."""

import os
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import attendant
from attendant import native_arrays, native_templates, views
from fake_server import echo_q

LIBRARY = os.environ.get("ATTENDANT_CLIENT_LIBRARY", "")
pytestmark = pytest.mark.skipif(
    not os.path.exists(LIBRARY), reason="no library at ATTENDANT_CLIENT_LIBRARY"
)
Q = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)


@pytest.fixture
def client(fake):
    """Of a server that echoes q; its last call was of Q."""
    with attendant.Client(fake(echo_q).target, core="native") as connected:
        for _ in range(3):
            ask(connected, Q)
        yield connected


def ask(client, q, **options):
    """The answer, which is q."""
    return client.attend(q, q, q, timeout=30, **options)


@pytest.fixture
def keys(monkeypatch):
    """The calls for which a key was made: they were not like the one before."""
    made = []
    real = native_templates.key_of

    def key_of(*call):
        made.append(call)
        return real(*call)

    monkeypatch.setattr("attendant.native_core.key_of", key_of)
    return made


def test_this_numpy_keeps_its_fields_where_they_are_looked_for():
    assert native_arrays.LAYOUT is not None


def test_calls_alike_read_and_write_their_own_arrays(client, keys):
    for number in range(5):
        q = np.full_like(Q, number)
        out = np.zeros_like(Q)
        np.testing.assert_array_equal(ask(client, q).out, q)
        assert ask(client, q, out=out).out is out
        np.testing.assert_array_equal(out, q)
    assert not keys


class Sub(np.ndarray):
    """An array, but not numpy's own."""


@pytest.mark.parametrize(
    "other",
    [
        Q[:, :2].copy(),
        Q.reshape(1, 4, 2, 3),
        Q.reshape(1, 3, 4, 2),
        Q[:, ::-1],
        Q[:, 1:3],
        Q.astype(np.float16),
        Q.astype(ml_dtypes.bfloat16),
        Q.astype(">f4"),
        Q.view(Sub),
        Q.reshape(2, 2, 3, 2),
    ],
)
def test_arrays_that_differ_are_served_as_they_are(client, keys, other):
    for _ in range(3):
        np.testing.assert_array_equal(ask(client, other).out, other)
    np.testing.assert_array_equal(ask(client, Q).out, Q)
    assert keys


def test_an_array_that_changed_in_place_is_looked_at_again(client, keys):
    q = Q.copy()
    ask(client, q)
    q.resize((1, 2, 3, 2), refcheck=False)
    assert ask(client, q).out.shape == (1, 2, 3, 2)
    assert len(keys) == 1


def test_places_for_answers_are_checked(client):
    ask(client, Q, out=np.zeros_like(Q))
    frozen = np.zeros_like(Q)
    frozen.flags.writeable = False
    for out in (
        frozen,
        np.zeros((1, 4, 2, 3), np.float32).transpose(0, 1, 3, 2),
        np.zeros_like(Q, np.float16),
        np.zeros((1, 4, 3, 3), np.float32),
        [[0.0]],
    ):
        with pytest.raises(attendant.AttendantError) as caught:
            ask(client, Q, out=out)
        assert caught.value.field.startswith("out")
    assert not frozen.any()


def test_options_that_differ_are_not_those_of_the_call_before(fake):
    seen = []

    def answer(request, context):
        seen.append((request.causal, request.softmax_scale, request.request_id))
        return echo_q(request, context)

    with attendant.Client(fake(answer).target, core="native") as client:
        for options, wanted in 3 * [
            ({}, (False, 0, "")),
            ({}, (False, 0, "")),
            ({"causal": True}, (True, 0, "")),
            ({"causal": 1}, (True, 0, "")),
            ({"causal": False}, (False, 0, "")),
            ({"causal": None}, (False, 0, "")),
            ({"causal": True}, (True, 0, "")),
            ({"causal": True}, (True, 0, "")),
            ({"seqlens_k": None}, (False, 0, "")),
            ({"softmax_scale": 0.5}, (False, 0.5, "")),
            ({"softmax_scale": 0.25}, (False, 0.25, "")),
            ({"softmax_scale": 0.25, "causal": True}, (True, 0.25, "")),
            ({"request_id": "other"}, (False, 0, "other")),
            ({"softmax_scale": 0.25}, (False, 0.25, "")),
        ]:
            ask(client, Q, **options)
            assert seen[-1] == wanted, options
        ask(client, Q, causal=True)
        for options, field in (({"causal": 1.0}, "causal"), ({"causal": []}, "causal")):
            with pytest.raises(attendant.AttendantError) as caught:
                ask(client, Q, **options)
            assert caught.value.field == field
        with pytest.raises(TypeError):
            ask(client, Q, cuasal=True)


class Setting:
    """A number that changes, as a tensor of one entry does."""

    value = 1

    def __float__(self):
        return float(self.value)

    def __index__(self):
        return self.value


@pytest.mark.parametrize("name", ["softmax_scale", "softcap", "causal", "priority"])
def test_an_option_that_changed_in_place_is_read_again(fake, name):
    seen = []

    def answer(request, context):
        seen.append(getattr(request, name))
        return echo_q(request, context)

    setting = Setting()
    with attendant.Client(fake(answer).target, core="native") as client:
        for setting.value in (1, 1, 1, 0, 0, 1):
            ask(client, Q, **{name: setting})
    assert seen == [1, 1, 1, 0, 0, 1]


def test_lse_goes_where_it_is_asked_for(target, keys, float32):
    fixed = {"timeout": 60, **float32}
    lse = np.zeros((1, 3, 4), np.float32)
    with attendant.Client(target, core="native") as client:
        answers = [
            client.attend(Q, Q, Q, return_lse=True, **fixed, **options)
            for options in ({}, {}, {}, {"lse": lse}, {"lse": None})
        ]
        assert len(keys) == 2  # the first two make the template and take it
        for answer in answers:
            np.testing.assert_array_equal(answer.lse, answers[0].lse)
        assert answers[3].lse is lse
        with pytest.raises(attendant.AttendantError) as caught:
            client.attend(Q, Q, Q, return_lse=True, lse=lse[:, :2], **fixed)
        assert caught.value.field == "lse.shape"
        client.attend(Q, Q, Q, **fixed)
        client.attend(Q, Q, Q, **fixed)
        assert client.attend(Q, Q, Q, lse=lse, **fixed).lse is None


def test_another_python_is_not_asked_for_addresses(monkeypatch):
    monkeypatch.setattr(sys, "implementation", types.SimpleNamespace(name="pypy"))
    assert native_arrays._layout() is None
    address = views._fastest_address()
    assert address is views._address_by_dict
    assert address(Q) == Q.ctypes.data


def test_another_numpy_is_asked_field_by_field(client, keys, monkeypatch):
    monkeypatch.setattr(native_arrays._LAYOUT, "dtype", native_arrays._LAYOUT.data)
    assert native_arrays._layout() is None
    monkeypatch.setattr(native_templates, "LAYOUT", None)
    monkeypatch.setattr(native_templates, "_templates", {})
    q = Q[:, :3].copy()
    for number in range(3):
        np.testing.assert_array_equal(ask(client, q + number).out, q + number)
    assert len(keys) == 3
