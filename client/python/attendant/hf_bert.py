"""BERT and its kin of transformers before 5.0, which ask no AttentionInterface.

Their layers look a class up in a table of their own module, by the name of the
implementation, while the model is made. So a class is put there. It serves
encoders; cross-attention, caches, head masks and relative positions raise
NotImplementedError: those models are served from transformers 5.0 on.

The table is read once: choose in from_pretrained(..., attn_implementation=...).
set_attn_implementation() changes nothing in such a model, and transformers only
logs that.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

_KIN = ("bert", "roberta", "xlm_roberta", "camembert", "electra")
_NOT_OFFERED = (
    "head_mask",
    "encoder_hidden_states",
    "encoder_attention_mask",
    "past_key_value",
    "past_key_values",
)


def register(name: str, attention: Any) -> None:
    """Puts `attention` (hf.attention) into every table that there is."""
    for family in _KIN:
        path = f"transformers.models.{family}.modeling_{family}"
        module = importlib.import_module(path)
        table = getattr(module, f"{family.upper()}_SELF_ATTENTION_CLASSES", None)
        if table is not None:
            table[name] = _served(table["eager"], attention)


@functools.cache
def _served(eager: Any, attention: Any) -> Any:
    """A class like transformers' own `eager`, whose attention is `attention`."""
    arguments_of = inspect.signature(eager.forward)

    def forward(self: Any, *given: Any, **options: Any) -> tuple[Any, None]:
        arguments = arguments_of.bind(self, *given, **options).arguments
        _refuse(self, arguments)
        hidden = arguments["hidden_states"]
        heads = (self.num_attention_heads, self.attention_head_size)
        query, key, value = (
            layer(hidden).unflatten(-1, heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        out, _ = attention(
            self,
            query,
            key,
            value,
            arguments.get("attention_mask"),
            dropout=self.dropout.p if self.training else 0.0,
            is_causal=False,
            output_attentions=arguments.get("output_attentions"),
        )
        return out.flatten(2), None

    return type(f"Attendant{eager.__name__}", (eager,), {"forward": forward})


def _refuse(layer: Any, arguments: dict[str, Any]) -> None:
    for name in _NOT_OFFERED:
        if arguments.get(name) is not None:
            raise NotImplementedError(
                f"{name} is given: attendant serves encoders of this family, and "
                "the rest from transformers 5.0 on"
            )
    if getattr(layer, "is_decoder", False):
        raise NotImplementedError(
            "this layer is of a decoder: attendant serves those of this family "
            "from transformers 5.0 on"
        )
    positions = getattr(layer, "position_embedding_type", "absolute")
    if positions != "absolute":
        raise NotImplementedError(
            f"position_embedding_type is {positions}: attendant serves 'absolute'"
        )
