"""PyTorch's scaled_dot_product_attention, with its semantics.

is_causal is aligned to the top left, a boolean mask says where to attend, a
float mask is added, masks broadcast, a fully masked row gives 0 (as PyTorch
since 2.5). CausalBias objects (torch.nn.attention.bias) are served. What
differs, and raises:

- dropout_p > 0: NotImplementedError. backward(): NotImplementedError.
- dtypes other than float32, float16 and bfloat16, head sizes beyond 256, and
  what else the server refuses: AttendantError. Nothing falls back.
- float32 on a GPU: AttendantError; cast to bfloat16 or float16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.bias import CausalBias, CausalVariant

from attendant.torch_ops import call

_broadcast: Any = torch.broadcast_shapes  # not typed by torch


def _as_batch(tensor: torch.Tensor, lead: torch.Size) -> torch.Tensor:
    """(..., heads, length, size) with `lead` before the heads -> 4 dimensions."""
    tensor = tensor.expand(*lead, *tensor.shape[-3:])
    if len(lead) == 1:
        return tensor
    return tensor.reshape(-1, *tensor.shape[-3:]) if lead else tensor.unsqueeze(0)


def _mask_of(
    mask: torch.Tensor, lead: torch.Size, heads: int, rows: int, keys: int
) -> torch.Tensor:
    """The mask in 4 dimensions; repeated ones stay repeated."""
    _broadcast(mask.shape, (*lead, heads, rows, keys))
    missing = len(lead) + 3 - mask.dim()
    if missing < 0:
        raise ValueError(
            f"attn_mask has {mask.dim()} dimensions, at most {len(lead) + 3}"
        )
    mask = mask[(None,) * missing]
    if mask.shape[-1] != keys:
        mask = mask.expand(*mask.shape[:-1], keys).contiguous()
    if len(lead) == 1:
        return mask
    if not lead:
        return mask.unsqueeze(0)
    if all(size == 1 for size in mask.shape[: len(lead)]):
        return mask.reshape(1, *mask.shape[-3:])
    return _as_batch(mask, lead)


def _check_heads(query: torch.Tensor, key: torch.Tensor, enable_gqa: bool) -> None:
    """Before the server does: without enable_gqa PyTorch broadcasts one head."""
    heads, kv_heads = query.shape[-3], key.shape[-3]
    if heads == kv_heads or enable_gqa or kv_heads == 1:
        return
    raise ValueError(
        f"query has {heads} heads and key {kv_heads}: set enable_gqa for that"
    )


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """query (..., heads, L, E), key (..., kv_heads, S, E), value (..., S, Ev)."""
    if dropout_p > 0:
        raise NotImplementedError(f"dropout_p is {dropout_p}: there is no dropout")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask and is_causal are both given")
    given = (query, key, value)
    if any(x.dim() != query.dim() for x in given) or query.dim() < 2:
        raise ValueError(
            f"query, key and value have {[x.dim() for x in given]} dimensions, "
            "must have the same number, at least 2"
        )
    alignment = "top_left"
    if isinstance(attn_mask, CausalBias):
        if attn_mask.variant == CausalVariant.LOWER_RIGHT:
            alignment = "bottom_right"
        attn_mask, is_causal = None, True
    # As in PyTorch, (N, L, E) has no dimension of heads.
    flat = query.dim() <= 3
    if flat:
        query, key, value = (x.unsqueeze(-3) for x in given)
        if attn_mask is not None and attn_mask.dim() == query.dim() - 1:
            attn_mask = attn_mask.unsqueeze(-3)
    _check_heads(query, key, enable_gqa)
    lead = _broadcast(*(x.shape[:-3] for x in (query, key, value)))
    mask: Any = None
    if attn_mask is not None:
        heads, rows, keys = query.shape[-3], query.shape[-2], key.shape[-2]
        mask = _mask_of(attn_mask, lead, heads, rows, keys)
    out, _ = call(
        *(_as_batch(x, lead) for x in (query, key, value)),
        layout="bhsd",
        alignment=alignment,
        mask=mask,
        softmax_scale=scale,
        causal=is_causal,
    )
    out = out.reshape(*lead, *out.shape[-3:])
    return out.squeeze(-3) if flat else out
