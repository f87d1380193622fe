"""flash-attn 3's functions: its order of arguments, where the fourth is the scale.

Rules and differences are those of attendant.flash_attn. qv, descales (fp8),
attention_chunk, seqused_q and seqused_k raise NotImplementedError. num_splits,
pack_gqa, deterministic and sm_margin are hints and change no answer.
"""

from __future__ import annotations

from typing import Any

import torch

from attendant.flash_attn import Window, open_ends
from attendant.torch_ops import call


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and not (name == "attention_chunk" and value == 0):
            raise NotImplementedError(f"{name} is given, and is not offered")


def _answer(
    tensors: tuple[torch.Tensor, ...],
    layout: str,
    softmax_scale: float | None,
    causal: bool,
    window_size: Window,
    softcap: float,
    return_attn_probs: bool,
    **options: Any,
) -> Any:
    if isinstance(softmax_scale, bool):
        raise TypeError(
            "softmax_scale is a bool; for flash-attn 2's order import "
            "attendant.flash_attn"
        )
    out, lse = call(
        *tensors,
        layout=layout,
        alignment="bottom_right",
        softmax_scale=softmax_scale,
        softcap=softcap if softcap > 0 else None,
        causal=causal,
        window=open_ends(window_size),
        return_lse=return_attn_probs,
        **options,
    )
    return (out, lse) if return_attn_probs else out


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """As attendant.flash_attn's; with return_attn_probs (O, LSE)."""
    _refuse(
        qv=qv,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        attention_chunk=attention_chunk,
    )
    return _answer(
        (q, k, v),
        "bshd",
        softmax_scale,
        causal,
        window_size,
        softcap,
        return_attn_probs,
    )


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """qkv [batch, seqlen, 3, heads, head_dim], or with num_heads_q
    [batch, seqlen, num_heads_q + 2 * kv_heads, head_dim].
    """
    _refuse(
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        attention_chunk=attention_chunk,
    )
    heads = {}
    if qkv.dim() == 4:
        if num_heads_q is None:
            raise ValueError("num_heads_q is not given, and qkv has 4 dimensions")
        kv_heads = (qkv.shape[2] - num_heads_q) // 2
        heads = {"num_q_heads": num_heads_q, "num_kv_heads": kv_heads}
    return _answer(
        (qkv,),
        "bshd",
        softmax_scale,
        causal,
        window_size,
        softcap,
        return_attn_probs,
        **heads,
    )


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """As attendant.flash_attn's; with return_attn_probs (O, LSE)."""
    _refuse(
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        qv=qv,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        attention_chunk=attention_chunk,
    )
    return _answer(
        (q, k, v),
        "thd",
        softmax_scale,
        causal,
        window_size,
        softcap,
        return_attn_probs,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
    )
