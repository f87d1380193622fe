"""Attention in float64 by flash-attn's documented rules, and the plain way.

Everything is [batch, heads, rows, size]. A case is what may be seen (a boolean
tensor), what is added to the logits (or None), scale and softcap.
"""

import dataclasses
import math

import torch


@dataclasses.dataclass
class Rules:
    """One problem's logits, beside q and k; broadcast over batch and heads."""

    visible: torch.Tensor
    bias: torch.Tensor | None = None
    scale: float | None = None
    softcap: float = 0.0
    sinks: torch.Tensor | None = None


def flash_rules(rows, keys, causal=False, window=(-1, -1), slopes=None, **rest):
    """Aligned to the bottom right: key j is as far along as row i + keys - rows."""
    place = torch.arange(rows)[:, None] + keys - rows
    key = torch.arange(keys)[None, :]
    visible = torch.ones(rows, keys, dtype=torch.bool)
    if causal:
        visible &= key <= place
    if window[0] >= 0:
        visible &= key >= place - window[0]
    if window[1] >= 0:
        visible &= key <= place + window[1]
    bias = None
    if slopes is not None:
        bias = -slopes.double().reshape(-1, slopes.shape[-1], 1, 1)
        bias = bias * (place - key).abs()
    return Rules(visible[None, None], bias, **rest)


def _repeat(q, *tensors):
    """K and V with as many heads as q: head h reads h // (heads / kv_heads)."""
    return [x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in tensors]


def _logits(q, k, rules):
    scale = q.shape[-1] ** -0.5 if rules.scale is None else rules.scale
    s = q @ k.transpose(-1, -2) * scale
    if rules.softcap > 0:
        s = rules.softcap * torch.tanh(s / rules.softcap)
    if rules.bias is not None:
        s = s + rules.bias.to(s.dtype)
    return s.masked_fill(~rules.visible, -math.inf)


def attend64(q, k, v, rules):
    """O and LSE in float64."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = _repeat(q, k, v)
    s = _logits(q, k, rules)
    lse = torch.logsumexp(s, -1)
    total = lse
    if rules.sinks is not None:
        sinks = rules.sinks.double().reshape(1, -1, 1).expand_as(lse)
        total = torch.logaddexp(lse, sinks)
    empty = lse == -math.inf
    p = torch.exp(s - total.masked_fill(empty, 0)[..., None])
    return p @ v, lse


def plain(q, k, v, rules):
    """Logits and softmax in float32, P and O rounded once to the input's type."""
    dtype = q.dtype
    k, v = _repeat(q, k, v)
    s = _logits(q.float(), k.float(), rules)
    p = torch.softmax(s, -1).nan_to_num(0)
    return (p.to(dtype).float() @ v.float()).to(dtype)


def assert_right(got, q, k, v, rules, lse=None):
    """At most twice the plain way's error against float64; LSE to 1e-3 or 1e-5.

    Where the plain way was luckier than half a unit of the largest output,
    twice that half unit.
    """
    assert got.dtype == q.dtype
    want, want_lse = attend64(q, k, v, rules)
    assert got.shape == want.shape
    if got.numel() == 0:
        return
    lucky = (plain(q, k, v, rules).double() - want).abs().max().item()
    largest = max(want.abs().max().item(), 1e-30)
    unit = torch.finfo(q.dtype).eps * 2 ** math.floor(math.log2(largest)) / 2
    values = v.double().abs().max().item() if v.numel() else 0
    bound = 2 * max(lucky, unit) + 1e-5 * values
    error = (got.double() - want).abs().max().item()
    assert error <= bound, f"error {error:.3g} > {bound:.3g}"
    if lse is not None:
        small = 1e-5 if q.dtype == torch.float32 else 1e-3
        both = (lse.double() == want_lse) | ((lse - want_lse).abs() <= small)
        assert both.all(), "LSE"
