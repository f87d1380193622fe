"""The retry policy, without a clock."""

import pytest

from attendant import RetryPolicy, StatusCode

UNAVAILABLE = StatusCode.UNAVAILABLE
EXHAUSTED = StatusCode.RESOURCE_EXHAUSTED


def delay(code=UNAVAILABLE, message="x", pushback=None, made=1, chance=0.5, left=3600):
    """The delay of the default policy."""
    return RetryPolicy().delay(code, message, pushback, made, chance, left)


def test_backs_off_exponentially_by_chance():
    assert delay(made=1) == pytest.approx(0.05)
    assert delay(made=2) == pytest.approx(0.1)
    assert RetryPolicy(max_attempts=100).delay(
        UNAVAILABLE, "x", None, 60, 0.5, 3600
    ) == pytest.approx(2.5)


def test_stops_after_the_last_attempt():
    assert delay(made=4) is not None
    assert delay(made=5) is None


@pytest.mark.parametrize("code", list(StatusCode))
def test_repeats_only_what_may_succeed_later(code):
    assert (delay(code) is not None) == (code in (UNAVAILABLE, EXHAUSTED))


def test_does_not_repeat_messages_over_a_size_limit():
    message = "Received message larger than max (9 vs. 4)"
    assert delay(EXHAUSTED, message) is None


def test_honours_pushback():
    assert delay(EXHAUSTED, pushback="250", chance=0) == pytest.approx(0.25)
    assert delay(EXHAUSTED, pushback="250", chance=1) == pytest.approx(0.275)
    assert delay(EXHAUSTED, pushback="-1") is None
    assert delay(EXHAUSTED, pushback="soon") is None


def test_never_waits_beyond_the_deadline():
    assert delay(EXHAUSTED, pushback="1000", chance=0, left=1.0) is None
    assert delay(EXHAUSTED, pushback="1000", chance=0, left=1.001) is not None
