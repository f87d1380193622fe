"""A block of a transformer whose attention a server computes.

python torch_dropin.py HOST:PORT: two imports change, the block does not.
"""

import sys

import torch

import attendant
from attendant import scaled_dot_product_attention
from attendant.flash_attn import flash_attn_func


def block(x, weight, attention, **options):
    """Self-attention over x [batch, length, width], eight heads."""
    q, k, v = (
        y.unflatten(-1, (8, -1)).transpose(1, 2) for y in (x @ weight).chunk(3, -1)
    )
    return attention(q, k, v, **options).transpose(1, 2).flatten(2)


def main() -> None:
    """Compares with PyTorch's own, and with flash-attn's order of dimensions."""
    attendant.set_default_client(attendant.Client(sys.argv[1]), timeout=60)
    torch.manual_seed(0)
    x, weight = torch.randn(2, 77, 128), torch.randn(128, 384) / 11
    own = block(
        x, weight, torch.nn.functional.scaled_dot_product_attention, is_causal=True
    )
    served = block(x, weight, scaled_dot_product_attention, is_causal=True)

    def flash(q, k, v, **options):
        turned = (y.transpose(1, 2) for y in (q, k, v))
        return flash_attn_func(*turned, **options).transpose(1, 2)

    flashed = block(x, weight, flash, causal=True)
    torch.testing.assert_close(served, own, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(flashed, own, atol=1e-5, rtol=1e-5)
    print(f"largest difference: {(served - own).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
