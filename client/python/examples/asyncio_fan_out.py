"""Many calls at once from one event loop: python asyncio_fan_out.py HOST:PORT.

The server's answers do not depend on who else asks, so each equals its own.
"""

import asyncio
import sys
import time

import numpy as np

import attendant

CALLS = 64


async def main() -> None:
    """Asks for texts of 1 to CALLS tokens, all at once."""
    random = np.random.default_rng(0)
    async with attendant.AsyncClient(sys.argv[1]) as client:

        async def ask(tokens: int) -> attendant.AttendResult:
            x = random.standard_normal((1, tokens, 4, 32), np.float32)
            return await client.attend(x, x, x, causal=True, timeout=60)

        begin = time.perf_counter()
        results = await asyncio.gather(*(ask(n + 1) for n in range(CALLS)))
        seconds = time.perf_counter() - begin
    assert [result.out.shape[1] for result in results] == list(range(1, CALLS + 1))
    most = max(result.batch_requests for result in results)
    print(f"{CALLS} answers in {seconds * 1e3:.0f} ms, up to {most} shared a launch")


if __name__ == "__main__":
    asyncio.run(main())
