"""Asks a server for one causal attention and prints what served it.

python attend_once.py [host:port]
"""

import sys

import numpy as np

import attendant


def main() -> None:
    """Runs the example."""
    target = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
    random = np.random.default_rng(0)
    shape = (1, 128, 8, 64)  # batch, seqlen, heads, head_dim
    q, k, v = (random.standard_normal(shape, dtype=np.float32) for _ in range(3))
    with attendant.Client(target) as client:
        result = client.attend(q, k, v, causal=True, return_lse=True, timeout=30)
    assert result.lse is not None
    # The first query sees the first key alone: O is V, LSE the logit.
    np.testing.assert_allclose(result.out[0, 0], v[0, 0], rtol=1e-6)
    print(f"O {result.out.shape}, LSE {result.lse.shape}")
    print(f"served by {result.served_by.kernel} on {result.served_by.backend}")
    print(f"in {result.stages.total_ns / 1e3:.0f} us at the server")


if __name__ == "__main__":
    main()
