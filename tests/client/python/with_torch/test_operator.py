"""The torch operator: traced, compiled, and without a backward."""

import itertools
import pathlib
import subprocess
import sys

import pytest
import torch

import attendant
from attendant import flash_attn

pytestmark = pytest.mark.usefixtures("served")
OPERATOR = torch.ops.attendant.attend.default


def arguments(layout, packed, lse, device):
    """The operator's, of a problem with GQA, Dv != D and a transposed q."""
    dtype = torch.bfloat16
    cu, mask = None, None
    sizes = [(4, 64), (2, 64), (2, 40)]
    if layout == "thd":
        q, k, v = (torch.randn(130, h, d).to(device, dtype) for h, d in sizes)
        cu = torch.tensor([0, 100, 130], dtype=torch.int32, device=device)
    elif layout == "bshd":
        q, k, v = (torch.randn(2, 130, h, d).to(device, dtype) for h, d in sizes)
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
    else:
        q, k, v = (torch.randn(2, h, 130, d).to(device, dtype) for h, d in sizes)
        mask = torch.ones(130, 130, dtype=torch.bool, device=device).tril()[None, None]
    heads = (0, 0)
    if packed:
        q, k, v, heads = torch.cat([q, k, k], -2), None, None, (4, 2)
    sinks = torch.zeros(4, device=device)
    fixed = (layout, *heads, 0.1, 3.0, mask is None, "bottom_right", 50, None, lse)
    return (q, k, v, mask, cu, cu, None, sinks, *fixed)


@pytest.mark.parametrize(
    ("layout", "packed", "lse"),
    [
        case
        for case in itertools.product(
            ("bshd", "bhsd", "thd"), (False, True), (False, True)
        )
        if case[:2] != ("bhsd", True)
    ],
)
def test_opcheck(layout, packed, lse, device):
    checks = torch.library.opcheck(OPERATOR, arguments(layout, packed, lse, device))
    assert set(checks.values()) == {"SUCCESS"}


def test_compiled_programs_give_what_eager_ones_give(device):
    def block(x, weight):
        qkv = (x @ weight).unflatten(-1, (3, 4, 16))
        q, k, v = (y.transpose(1, 2) for y in qkv.unbind(2))
        a = attendant.scaled_dot_product_attention(q, k, v, is_causal=True)
        b = flash_attn.flash_attn_qkvpacked_func(qkv, causal=True)
        return a.transpose(1, 2).flatten(2) + b.flatten(2) * 2

    torch.manual_seed(0)
    weight = torch.randn(32, 192, device=device, dtype=torch.bfloat16)
    compiled = torch.compile(block, fullgraph=True)
    for rows in (9, 130):
        x = torch.randn(2, rows, 32, device=device, dtype=torch.bfloat16)
        torch.testing.assert_close(compiled(x, weight), block(x, weight))


def test_backward_raises_and_forward_does_not(device):
    q = torch.randn(1, 2, 5, 16, device=device, dtype=torch.bfloat16)
    q.requires_grad_()
    out = attendant.scaled_dot_product_attention(q, q, q)
    with pytest.raises(NotImplementedError, match="no backward"):
        out.sum().backward()


def test_the_client_reads_torch_tensors_and_answers_with_them(served):
    q = torch.randn(1, 5, 2, 16).to(torch.float16).requires_grad_()
    result = served.attend(q, q, q, timeout=60, return_lse=True, causal=True)
    assert isinstance(result.out, torch.Tensor)
    assert isinstance(result.lse, torch.Tensor)
    out = torch.empty(1, 5, 2, 16, dtype=torch.float16)
    again = served.attend(q, q, q, timeout=60, causal=True, out=out)
    assert again.out is out
    assert torch.equal(out, result.out)
    half = q.detach().to(torch.bfloat16)
    assert served.attend(half, half, half, timeout=60).out.dtype == torch.bfloat16


def test_grpcio_answers_with_torch_tensors_too(target, float32):
    q = torch.randn(1, 5, 2, 16)
    with attendant.Client(target, core="grpcio") as pure:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = q.to(dtype)
            out = torch.empty_like(x)
            options = {"timeout": 60, **(float32 if dtype is torch.float32 else {})}
            result = pure.attend(x, x, x, return_lse=True, **options)
            assert result.out.dtype == dtype
            assert isinstance(result.lse, torch.Tensor)
            again = pure.attend(x, x, x, out=out, **options)
            assert again.out is out
            assert torch.equal(out, result.out)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_example_runs(target, dtype, float32):
    if dtype == "float32" and float32:
        pytest.skip("the drop-ins ask for no conversion, and GPUs compute no float32")
    example = pathlib.Path(__file__).parents[4] / "client/python/examples"
    done = subprocess.run(
        [sys.executable, example / "torch_dropin.py", target, dtype],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "largest difference" in done.stdout
