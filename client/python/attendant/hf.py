"""Attention of Hugging Face models by a server: one line in the caller's program.

    attendant.hf.install("localhost:50051")
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="attendant")

transformers 4.53 and later; BERT before 5.0 by hf_bert, which says its limits. GQA,
sliding windows, softcap, sinks, padding masks and packed batches (by position_ids,
or by cu_seq_lens of a flattening collator) are served. What is not raises
NotImplementedError: dropout while training, backward, paged caches, position biases
(T5) and head masks. output_attentions gets None, and one warning.

The cache stays with the model: prefill and encoders are what this is for. A
step of generation sends all of K and V, and one that sends much says so once.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from attendant import hf_bert
from attendant.client import Client
from attendant.default import set_default_client
from attendant.torch_ops import call

NAME = "attendant"
_MANY_KEYS = 1024  # a step of generation that reads more is worth a warning
_NOT_OFFERED = (
    "cache",
    "block_table",
    "read_index",
    "write_index",
    "position_bias",
    "head_mask",
)
_told: set[str] = set()


def install(target: str | Client | None = None, *, timeout: float = 600.0) -> None:
    """Registers attn_implementation="attendant": the attention and its masks.

    target: where the server is, or a client; None = attendant.default_client().
    Without the mask function transformers would pass no mask at all, without a
    word: a version that has no interface for it is refused (ImportError).
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        raise ImportError("attendant.hf needs transformers >= 4.53") from error
    if target is not None:
        client = Client(target, door="auto") if isinstance(target, str) else target
        set_default_client(client, timeout=timeout)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    AttentionInterface.register(f"paged|{NAME}", _paged)
    AttentionMaskInterface.register(f"paged|{NAME}", mask)
    hf_bert.register(NAME, attention)


def mask(*arguments: Any, **options: Any) -> torch.Tensor | None:
    """Which key each query may see: [batch, 1, q, kv], True = attend.

    None where is_causal of the attention says the same; sinks, softcap and
    windows do not change that.
    """
    from transformers.masking_utils import sdpa_mask

    answer: torch.Tensor | None = sdpa_mask(*arguments, **options)
    return answer


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """query [batch, heads, q, size], key and value [batch, kv_heads, kv, size].

    O [batch, q, heads, size], contiguous. Masks as `mask` makes them, or floats
    that are added.
    """
    _refuse(dropout, options)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    rows = query.shape[2]
    # [batch, length, heads, size]: views, whose strides travel along.
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    shared: dict[str, Any] = {
        "softmax_scale": scaling,
        "softcap": softcap,
        "sinks": None if s_aux is None else s_aux.float(),
    }
    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        return _packed(
            q, k, v, cu_seq_lens_q, cu_seq_lens_k, is_causal, sliding_window, shared
        )
    if attention_mask is not None and attention_mask.dim() != 4:
        raise ValueError(
            f"attention_mask has {attention_mask.dim()} dimensions, must have 4: "
            "attendant.hf.install() registers the function that makes it"
        )
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[2]]
    if rows == 1:
        _tell_of_traffic(key.shape[2])
    out, _ = call(
        q,
        k,
        v,
        layout="bshd",
        # The mask function leaves out the mask only where its diagonal begins
        # at the first key: of an empty cache that is longer than the query, too.
        alignment="top_left",
        causal=attention_mask is None and is_causal and rows > 1,
        mask=attention_mask,
        **shared,
    )
    return out, None


def _packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    causal: bool,
    sliding_window: int | None,
    shared: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    """Several texts in one row: each sees itself alone."""
    if q.shape[0] != 1:
        raise ValueError(f"a packed batch has {q.shape[0]} rows, must have 1")
    window: tuple[int | None, int | None] = (None, None)
    if sliding_window is not None:  # so many tokens, its own among them
        window = (sliding_window - 1, 0 if causal else sliding_window - 1)
    out, _ = call(
        q[0],
        k[0],
        v[0],
        layout="thd",
        alignment="bottom_right",
        causal=causal,
        window=window,
        cu_seqlens_q=cu_seqlens_q.to(torch.int32),
        cu_seqlens_k=cu_seqlens_k.to(torch.int32),
        **shared,
    )
    return out.unsqueeze(0), None


def _paged(*arguments: Any, **options: Any) -> tuple[torch.Tensor, None]:
    raise NotImplementedError("attendant has no paged cache yet")


def _refuse(dropout: float, options: dict[str, Any]) -> None:
    if dropout > 0:
        raise NotImplementedError(
            f"attention_dropout is {dropout}: there is no dropout; model.eval() or "
            "a configuration without it"
        )
    for name in _NOT_OFFERED:
        if options.get(name) is not None:
            raise NotImplementedError(
                f"{name} is given, and attendant does not offer it"
            )
    if options.get("output_attentions"):
        _tell_once("attendant gives no attention weights: output_attentions gets None")


def _tell_of_traffic(keys: int) -> None:
    if keys > _MANY_KEYS:
        _tell_once(
            f"a step of generation sends {keys} keys and values again: attendant "
            "keeps no cache yet"
        )


def _tell_once(message: str) -> None:
    kind = message.split(":")[0].split(" sends ")[0]
    if kind not in _told:
        _told.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=4)
