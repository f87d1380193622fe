"""Attention over a union of key sets, from the attention over each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attendant.errors import invalid_field
from attendant.options import LAYOUTS, Array


def _rows_of(lse: Array, layout: str) -> Array:
    """LSE in the order of O's rows, with one more axis for head_dim."""
    axes = (1, 0) if layout == "thd" else (0, 2, 1)
    ordered = lse if layout == "bhsd" else np.transpose(lse, axes)
    return ordered[..., np.newaxis]


def _check(field: str, out: Array, lse: Array, layout: str) -> None:
    if layout not in LAYOUTS:
        raise invalid_field("layout", layout, "one of " + ", ".join(LAYOUTS))
    rank = 3 if layout == "thd" else 4
    for name, array, wanted in (("out", out, rank), ("lse", lse, rank - 1)):
        if array.dtype != np.float32 or array.ndim != wanted:
            raise invalid_field(
                f"{field}{name}",
                f"{array.dtype} of {array.ndim} dimensions",
                f"float32 of {wanted} (ask for output_dtype fp32)",
            )
    if _rows_of(lse, layout).shape[:-1] != out.shape[:-1]:
        raise invalid_field(f"{field}lse.shape", lse.shape, f"that of out {out.shape}")


def merge_partials(
    partials: Sequence[tuple[Array, Array]], *, layout: str = "bshd"
) -> tuple[Array, Array]:
    """O and LSE over all keys, from (O, LSE) pairs over disjoint sets of them.

    Ask for output_dtype fp32 and return_lse, without sinks. A row whose LSE is
    -inf in a partial takes nothing from it, whatever its O holds; in all of
    them: O = 0, LSE = -inf. A row that one partial alone has is that partial's
    row, bit for bit. Raises AttendantError for shapes and types that do not fit.
    """
    if not partials:
        raise invalid_field("partials", "none", "at least one")
    for p, (out, lse) in enumerate(partials):
        _check(f"partials[{p}].", out, lse, layout)
        if out.shape != partials[0][0].shape:
            raise invalid_field(
                f"partials[{p}].out.shape", out.shape, str(partials[0][0].shape)
            )
    lses = np.stack([lse for _, lse in partials])
    largest = lses.max(axis=0)  # NaN if any is
    live = lses != -np.inf
    count = live.sum(axis=0)
    merged_out = np.zeros(partials[0][0].shape)
    alone_out = np.zeros(partials[0][0].shape, dtype=np.float32)
    alone_lse = np.full(largest.shape, -np.inf, dtype=np.float32)
    weights = np.zeros(largest.shape)
    with np.errstate(all="ignore"):
        for p, (out, lse) in enumerate(partials):
            weight = np.where(live[p], np.exp(lse.astype(np.float64) - largest), 0)
            rows = _rows_of(live[p], layout)
            weights += weight
            merged_out += np.where(rows, _rows_of(weight, layout) * out, 0)
            np.copyto(alone_out, out, where=rows)
            np.copyto(alone_lse, lse, where=live[p])
        merged_out /= _rows_of(weights, layout)
        merged_lse = (largest + np.log(weights)).astype(np.float32)
    few = count <= 1
    return (
        np.where(_rows_of(few, layout), alone_out, merged_out).astype(np.float32),
        np.where(few, alone_lse, merged_lse),
    )


def apply_sinks(
    out: Array, lse: Array, sinks: Sequence[float] | Array, *, layout: str = "bshd"
) -> Array:
    """O with one more logit sinks[h] in the denominator: once, after the merge.

    LSE is without the sink and stays. -inf = no sink for that head.
    """
    _check("", out, lse, layout)
    heads = lse.shape[0] if layout == "thd" else lse.shape[1]
    logits: Any = np.asarray(sinks, dtype=np.float64)
    if logits.shape != (heads,):
        raise invalid_field("sinks.shape", logits.shape, f"({heads},)")
    logits = logits[:, np.newaxis]
    with np.errstate(all="ignore"):
        share = 1 / (1 + np.exp(logits - lse))
    untouched = (lse == -np.inf) | (logits == -np.inf)
    share = np.where(untouched, 1.0, share)
    scaled: Array = (out * _rows_of(share, layout)).astype(np.float32)
    return scaled
