"""When a failed call is sent again."""

from __future__ import annotations

import dataclasses

from attendant.errors import StatusCode


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Attend is pure, so UNAVAILABLE and RESOURCE_EXHAUSTED are repeated.

    After the server's grpc-retry-pushback-ms if it gave one (a negative one
    means never), else after a random wait below initial_backoff seconds,
    doubled each time up to max_backoff. Never beyond the call's timeout.
    """

    max_attempts: int = 5
    initial_backoff: float = 0.1
    max_backoff: float = 5.0

    def delay(
        self,
        code: StatusCode,
        message: str,
        pushback: str | None,
        attempts_made: int,
        chance: float,
        remaining: float,
    ) -> float | None:
        """Seconds to wait before the next attempt; None = the error is final.

        chance is uniform in [0, 1); remaining are the seconds left.
        """
        if attempts_made >= self.max_attempts or not _may_succeed_later(code, message):
            return None
        if pushback is None:
            ceiling = self.initial_backoff * 2.0 ** min(attempts_made - 1, 30)
            delay = min(self.max_backoff, ceiling) * chance
        else:
            try:
                seconds = int(pushback) / 1000
            except ValueError:
                return None
            if seconds < 0:
                return None
            # Callers that were told the same time do not meet again.
            delay = seconds * (1 + 0.1 * chance)
        return delay if delay < remaining else None


def _may_succeed_later(code: StatusCode, message: str) -> bool:
    if code == StatusCode.UNAVAILABLE:
        return True
    # gRPC itself says this of a message over a size limit, which never fits.
    too_large = "larger than max" in message
    return code == StatusCode.RESOURCE_EXHAUSTED and not too_large
