"""Attention as a torch operator: torch.ops.attendant.attend.

A custom operator with a fake kernel, so torch.compile traces through programs
that use it. The call itself is host I/O: it cannot be part of a CUDA graph.
"""

from __future__ import annotations

from typing import Any

import torch

from attendant.cuda_tensors import SHARING_DOORS, attend_copied, is_cuda
from attendant.default import default_client, default_timeout
from attendant.options import AttendOptions
from attendant.results import AttendResult

_BACKWARD = (
    "attendant has no backward: call it under torch.no_grad(), or detach what goes in"
)


def _answer_shapes(
    q: Any, k: Any, v: Any, layout: str, num_q_heads: int
) -> tuple[list[Any], list[Any]]:
    """Shapes of O and LSE; for packed q (k is None) as for the q within."""
    rank = 3 if layout == "thd" else 4
    shape = list(q.shape)
    if k is None and len(shape) == rank + 1:
        del shape[-3]
    elif k is None:
        shape[-2] = num_q_heads
    else:
        shape[-1] = v.shape[-1]
    if layout == "thd":
        return shape, [shape[1], shape[0]]
    if layout == "bhsd":
        return shape, shape[:-1]
    return shape, [shape[0], shape[2], shape[1]]


def _numbers(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().cpu().numpy()


@torch.library.custom_op("attendant::attend", mutates_args=())
def attend(
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    mask: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
    layout: str,
    num_q_heads: int,
    num_kv_heads: int,
    softmax_scale: float | None,
    softcap: float | None,
    causal: bool,
    alignment: str,
    window_left: int | None,
    window_right: int | None,
    return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE (empty unless return_lse) on q's device.

    k and v None: q is packed, with 3 before its heads, or with num_q_heads and
    num_kv_heads. Options as attendant.options. Raises AttendantError.
    """
    out_shape, lse_shape = _answer_shapes(q, k, v, layout, num_q_heads)
    out = q.new_empty(out_shape)
    lse = q.new_empty(lse_shape if return_lse else [0], dtype=torch.float32)
    options: AttendOptions = {
        "layout": layout,
        "out": out,
        "mask": mask,
        "cu_seqlens_q": _numbers(cu_seqlens_q),
        "cu_seqlens_k": _numbers(cu_seqlens_k),
        "alibi_slopes": _numbers(alibi_slopes),
        "sinks": _numbers(sinks),
        "softmax_scale": softmax_scale,
        "softcap": softcap,
        "causal": causal,
        "alignment": alignment,
        "window_left": window_left,
        "window_right": window_right,
        "return_lse": return_lse,
    }
    if return_lse:
        options["lse"] = lse
    if mask is not None and mask.dtype == torch.bool:
        options["mask_bits"] = True
    if k is None:
        options["qkv"] = q
        options["num_q_heads"] = num_q_heads
        options["num_kv_heads"] = num_kv_heads
    _ask(None if k is None else q, k, v, options)
    return out, lse


def _ask(q: Any, k: Any, v: Any, options: AttendOptions) -> None:
    """The default client; CUDA tensors are copied for doors that carry bytes."""
    client = default_client()

    def call(q: Any, k: Any, v: Any, options: AttendOptions) -> AttendResult:
        return client.attend(q, k, v, timeout=default_timeout(), **options)

    shares = client.core == "native" and client.door in SHARING_DOORS
    if not shares and is_cuda(options.get("qkv") if q is None else q):
        attend_copied(call, q, k, v, options, f"door {client.door!r} carries bytes")
    else:
        call(q, k, v, options)


@attend.register_fake
def _fake(
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    mask: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
    layout: str,
    num_q_heads: int,
    num_kv_heads: int,
    softmax_scale: float | None,
    softcap: float | None,
    causal: bool,
    alignment: str,
    window_left: int | None,
    window_right: int | None,
    return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    out_shape, lse_shape = _answer_shapes(q, k, v, layout, num_q_heads)
    lse = q.new_empty(lse_shape if return_lse else [0], dtype=torch.float32)
    return q.new_empty(out_shape), lse


def _no_backward(context: Any, *gradients: Any) -> Any:
    raise NotImplementedError(_BACKWARD)


attend.register_autograd(_no_backward)


def call(
    q: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    *,
    layout: str,
    alignment: str,
    mask: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    num_q_heads: int = 0,
    num_kv_heads: int = 0,
    softmax_scale: float | None = None,
    softcap: float | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    return_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator, by names."""
    answer: tuple[torch.Tensor, torch.Tensor] = torch.ops.attendant.attend(
        q,
        k,
        v,
        mask,
        cu_seqlens_q,
        cu_seqlens_k,
        alibi_slopes,
        sinks,
        layout,
        num_q_heads,
        num_kv_heads,
        softmax_scale,
        softcap,
        causal,
        alignment,
        window[0],
        window[1],
        return_lse,
    )
    return answer
