"""A block of a transformer whose attention a server computes.

python torch_dropin.py HOST:PORT [DTYPE]: two imports change, the block does not.
float32 by default, which GPUs do not compute: float16 or bfloat16 there.
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
    dtype = getattr(torch, sys.argv[2] if len(sys.argv) > 2 else "float32")
    torch.manual_seed(0)
    x = torch.randn(2, 77, 128).to(dtype)
    weight = (torch.randn(128, 384) / 11).to(dtype)
    own = block(
        x, weight, torch.nn.functional.scaled_dot_product_attention, is_causal=True
    )
    served = block(x, weight, scaled_dot_product_attention, is_causal=True)

    def flash(q, k, v, **options):
        turned = (y.transpose(1, 2) for y in (q, k, v))
        return flash_attn_func(*turned, **options).transpose(1, 2)

    flashed = block(x, weight, flash, causal=True)
    near = max(1e-5, 4 * torch.finfo(dtype).eps)
    torch.testing.assert_close(served, own, atol=near, rtol=near)
    torch.testing.assert_close(flashed, own, atol=near, rtol=near)
    print(f"largest difference: {(served - own).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
