"""flash-attn 2's functions: names, order and defaults of its arguments.

    from attendant.flash_attn import flash_attn_func

Its rules too: causal and window are aligned to the bottom right, the scale is
that of the true head size, rows that see no key give 0. What differs:

- Rows that see no key have LSE = -inf (flash-attn's kernels disagree on it).
- float32 is answered where the server computes it.
- With return_attn_probs the third value, S_dmask, is None: there is no dropout.
- max_seqlen_q and max_seqlen_k are not used: the lengths say it.
- Answers are always deterministic, so `deterministic` changes nothing.
- dropout_p > 0 and block_table raise NotImplementedError; so does backward().
  What the server refuses raises AttendantError. Nothing falls back.
"""

from __future__ import annotations

from typing import Any

import torch

from attendant.torch_ops import call

Window = tuple[int, int]


def _check_dropout(dropout_p: Any) -> None:
    hint = (
        "; the fourth argument of flash-attn 3 is softmax_scale: for its order "
        "import attendant.flash_attn_3"
    )
    if isinstance(dropout_p, torch.Tensor) or not isinstance(dropout_p, (int, float)):
        raise TypeError(f"dropout_p is {type(dropout_p).__name__}, not a number{hint}")
    if not 0 <= dropout_p < 1:
        raise TypeError(f"dropout_p is {dropout_p}, must be in [0, 1){hint}")
    if dropout_p > 0:
        raise NotImplementedError(f"dropout_p is {dropout_p}: there is no dropout")


def open_ends(window_size: Window) -> tuple[int | None, int | None]:
    """flash-attn's -1 is an end that is open."""
    left, right = window_size
    return (None if left < 0 else left, None if right < 0 else right)


def _answer(
    tensors: tuple[torch.Tensor, ...],
    layout: str,
    dropout_p: Any,
    softmax_scale: float | None,
    causal: bool,
    window_size: Window,
    softcap: float,
    alibi_slopes: torch.Tensor | None,
    return_attn_probs: bool,
    cu_seqlens: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None),
) -> Any:
    _check_dropout(dropout_p)
    out, lse = call(
        *tensors,
        layout=layout,
        alignment="bottom_right",
        cu_seqlens_q=cu_seqlens[0],
        cu_seqlens_k=cu_seqlens[1],
        softmax_scale=softmax_scale,
        softcap=softcap if softcap > 0 else None,
        causal=causal,
        window=open_ends(window_size),
        alibi_slopes=alibi_slopes,
        return_lse=return_attn_probs,
    )
    return (out, lse, None) if return_attn_probs else out


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """q [batch, seqlen_q, heads, head_dim], k and v [batch, seqlen_k, kv_heads, .].

    O as q; with return_attn_probs (O, LSE [batch, heads, seqlen_q], None).
    """
    return _answer(
        (q, k, v),
        "bshd",
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        return_attn_probs,
    )


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """qkv [batch, seqlen, 3, heads, head_dim]."""
    _check_rank("qkv", qkv, 5, -3, 3)
    return _answer(
        (qkv,),
        "bshd",
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        return_attn_probs,
    )


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """q [batch, seqlen_q, heads, head_dim], kv [batch, seqlen_k, 2, kv_heads, .]."""
    _check_rank("kv", kv, 5, -3, 2)
    return _answer(
        (q, *kv.unbind(-3)),
        "bshd",
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        return_attn_probs,
    )


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> Any:
    """q [total_q, heads, head_dim], k and v [total_k, kv_heads, .]; LSE
    [heads, total_q].
    """
    if block_table is not None:
        raise NotImplementedError("block_table: there is no paged K and V")
    return _answer(
        (q, k, v),
        "thd",
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        return_attn_probs,
        (cu_seqlens_q, cu_seqlens_k),
    )


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """qkv [total, 3, heads, head_dim]."""
    _check_rank("qkv", qkv, 4, -3, 3)
    return _answer(
        (qkv,),
        "thd",
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        return_attn_probs,
        (cu_seqlens, cu_seqlens),
    )


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """q [total_q, heads, head_dim], kv [total_k, 2, kv_heads, head_dim]."""
    _check_rank("kv", kv, 4, -3, 2)
    return _answer(
        (q, *kv.unbind(-3)),
        "thd",
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        return_attn_probs,
        (cu_seqlens_q, cu_seqlens_k),
    )


def _check_rank(name: str, packed: torch.Tensor, rank: int, at: int, size: int) -> None:
    if packed.dim() != rank or packed.shape[at] != size:
        raise ValueError(
            f"{name}.shape is {tuple(packed.shape)}, must have {rank} dimensions "
            f"with {size} at [{rank + at}]"
        )
