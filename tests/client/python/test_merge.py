"""Merging of partial answers."""

import numpy as np
import pytest

import attendant

INF = np.inf


def attention(q, k, v):
    """O and LSE in float64, [rows, dim]."""
    s = q @ k.T
    lse = np.logaddexp.reduce(s, axis=1)
    return np.exp(s - lse[:, None]) @ v, lse


def to_layout(out, lse, layout):
    """One head of [rows, dim] as a float32 answer of this layout."""
    out, lse = out.astype(np.float32), lse.astype(np.float32)
    if layout == "thd":
        return out[:, None, :], lse[None]
    axis = 2 if layout == "bshd" else 1
    return np.expand_dims(out[None], axis), lse[None, None]


@pytest.mark.parametrize("layout", ["bshd", "bhsd", "thd"])
def test_of_shards_is_the_whole(layout):
    random = np.random.default_rng(1)
    q = random.standard_normal((5, 8))
    k, v = random.standard_normal((3136, 8)), random.standard_normal((3136, 7))
    whole = to_layout(*attention(q, k, v), layout)
    shards = [
        to_layout(*attention(q, k[:3072], v[:3072]), layout),
        to_layout(np.full((5, 7), np.nan), np.full(5, -INF), layout),  # empty
        to_layout(*attention(q, k[3072:], v[3072:]), layout),
    ]
    out, lse = attendant.merge_partials(shards, layout=layout)
    np.testing.assert_allclose(out, whole[0], atol=2e-6)
    np.testing.assert_allclose(lse, whole[1], atol=2e-6)
    assert out.dtype == lse.dtype == np.float32


def test_of_nothing_is_nothing():
    nothing = to_layout(np.zeros((1, 2)), np.array([-INF]), "bshd")
    out, lse = attendant.merge_partials([nothing, nothing])
    np.testing.assert_array_equal(out, np.zeros((1, 1, 1, 2)))
    assert lse[0, 0, 0] == -INF


def test_with_nothing_is_bitwise_the_other():
    nothing = to_layout(np.array([[np.nan, INF]]), np.array([-INF]), "bshd")
    some = to_layout(np.array([[0.1, -0.0]]), np.array([1e-7]), "bshd")
    for partials in ([nothing, some], [some, nothing], [some]):
        out, lse = attendant.merge_partials(partials)
        assert out.tobytes() == some[0].tobytes()
        assert lse.tobytes() == some[1].tobytes()


def test_keeps_a_visible_nan():
    nan = to_layout(np.array([[np.nan]]), np.array([np.nan]), "thd")
    one = to_layout(np.array([[1.0]]), np.array([0.0]), "thd")
    for partials in ([nan, one], [one, nan]):
        out, lse = attendant.merge_partials(partials, layout="thd")
        assert np.isnan(out).all() and np.isnan(lse).all()


def test_finds_heads_in_every_layout():
    # Two heads, three rows; the second partial has (head 1, row 2) alone.
    by_row = np.array([0, 10, 1, 11, 2, 12], np.float32)
    for layout, shape in (("bshd", (1, 3, 2, 1)), ("thd", (3, 2, 1))):
        lse = np.zeros((2, 3) if layout == "thd" else (1, 2, 3), np.float32)
        other = np.full_like(lse, -INF)
        other[..., 1, 2] = 0
        out, _ = attendant.merge_partials(
            [
                (by_row.reshape(shape), lse),
                (np.full(shape, 100, np.float32), other),
            ],
            layout=layout,
        )
        assert out.reshape(-1).tolist() == [0, 10, 1, 11, 2, 56]


def test_names_what_does_not_fit():
    good = to_layout(np.zeros((2, 1)), np.zeros(2), "bshd")
    half = (good[0].astype(np.float16), good[1])
    short = (good[0], good[1][..., :1])
    for partials, field in (
        ([], "partials"),
        ([good, half], "partials[1].out"),
        ([good, short], "partials[1].lse.shape"),
    ):
        with pytest.raises(attendant.AttendantError) as caught:
            attendant.merge_partials(partials)
        assert caught.value.field == field


def test_sinks_are_one_more_logit_in_the_denominator():
    # q = 0, 3 keys, V = 4, sink 0: 3, not 4. Row 1 sees nothing; head 1 has none.
    out = np.array([[[[4], [4]], [[0], [0]]]], np.float32)
    lse = np.array([[[np.log(3), -INF], [np.log(3), -INF]]], np.float32)
    scaled = attendant.apply_sinks(out, lse, [0, -INF])
    np.testing.assert_allclose(scaled.reshape(-1), [3, 4, 0, 0], rtol=1e-6)
    with pytest.raises(attendant.AttendantError):
        attendant.apply_sinks(out, lse, [0])
