"""Small models of real architectures, and batches of every kind for them."""

import copy
import dataclasses

import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
VOCABULARY = 199
LENGTHS = (23, 9, 1, 16)
_SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 96,
    "intermediate_size": 128,
    "num_attention_heads": 6,
    "pad_token_id": 0,
}
_GQA = {**_SHARED, "num_key_value_heads": 2, "head_dim": 16}


def llama():
    """GQA."""
    return LlamaForCausalLM(LlamaConfig(**_GQA, num_hidden_layers=3))


def gemma():
    """Softcap, windows in every other layer, a scale of its own."""
    return Gemma2ForCausalLM(
        Gemma2Config(
            **_GQA,
            num_hidden_layers=4,
            sliding_window=7,
            query_pre_attn_scalar=50,
            attn_logit_softcapping=2.0,
            attention_dropout=0.0,
        )
    )


def gpt_oss():
    """Sinks, and windows in every other layer; every expert always works."""
    model = GptOssForCausalLM(
        GptOssConfig(
            **_GQA,
            num_hidden_layers=4,
            sliding_window=7,
            num_local_experts=2,
            num_experts_per_tok=2,
        )
    )
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, std=1.5)
    return model


def bert():
    """Every token sees every other."""
    return BertForMaskedLM(
        BertConfig(
            **_SHARED,
            num_hidden_layers=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


CAUSAL = {"llama": llama, "gemma": gemma, "gpt_oss": gpt_oss}
BUILDERS = {**CAUSAL, "bert": bert}


def build(name, dtype, device):
    """Always the same weights, of a spread that makes attention matter."""
    torch.manual_seed(3)
    model = BUILDERS[name]().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 3
    return model.to(device, dtype)


@dataclasses.dataclass
class Batch:
    """What a model is called with, and where its real tokens are."""

    inputs: dict
    real: torch.Tensor  # [batch, length], bool


def texts():
    """Token lists of LENGTHS; 0 is the padding."""
    generator = torch.Generator().manual_seed(9)
    return [torch.randint(1, VOCABULARY, (n,), generator=generator) for n in LENGTHS]


def padded(side):
    """The texts as one batch, filled up on a side."""
    rows = texts()
    longest = max(len(row) for row in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    real = torch.zeros(len(rows), longest, dtype=torch.bool)
    for r, row in enumerate(rows):
        at = slice(0, len(row)) if side == "right" else slice(longest - len(row), None)
        tokens[r, at], real[r, at] = row, True
    inputs = {"input_ids": tokens, "attention_mask": real.long()}
    return Batch(inputs, real), (real.long().cumsum(-1) - 1).clamp(min=0)


def batch_of(kind, causal):
    """single, left, right, packed (by position_ids) or flat (by cu_seq_lens)."""
    if kind == "single":
        tokens = texts()[0][None]
        return Batch({"input_ids": tokens}, torch.ones_like(tokens, dtype=torch.bool))
    if kind in ("left", "right"):
        batch, positions = padded(kind)
        if causal:
            batch.inputs["position_ids"] = positions
        return batch
    tokens = torch.cat(texts())[None]
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None]
    inputs = {"input_ids": tokens, "position_ids": positions}
    if causal:
        inputs["use_cache"] = False
    if kind == "flat":
        ends = torch.tensor((0, *LENGTHS)).cumsum(0).int()
        inputs |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
        inputs |= {"max_length_q": max(LENGTHS), "max_length_k": max(LENGTHS)}
    return Batch(inputs, torch.ones_like(tokens, dtype=torch.bool))


def reference_batches(kind, causal):
    """What eager attention is asked instead: texts in flat batches one by one.

    Eager attention knows no cu_seq_lens, and not every model of every version
    tells its masks of position_ids.
    """
    if kind != "flat":
        return [batch_of(kind, causal)]
    rows = [tokens[None] for tokens in texts()]
    everything = [torch.ones_like(tokens, dtype=torch.bool) for tokens in rows]
    return [Batch({"input_ids": t}, r) for t, r in zip(rows, everything, strict=True)]


def eager_logits(model, kind, causal):
    """Of a kind of batch, as logits_of."""
    batches = reference_batches(kind, causal)
    return torch.cat([logits_of(model, "eager", batch) for batch in batches])


def with_attention(model, implementation):
    """The model, or a copy: BERT before 5.0 takes it while it is made alone."""
    if VERSION >= (5, 0) or not isinstance(model, BertForMaskedLM):
        model.set_attn_implementation(implementation)
        return model
    config = copy.deepcopy(model.config)
    made = BertForMaskedLM._from_config(config, attn_implementation=implementation)
    made.load_state_dict(model.state_dict())
    return made.eval().to(model.device, model.dtype)


def logits_of(model, implementation, batch):
    """Of the real tokens, float64, [tokens, vocabulary]."""
    model = with_attention(model, implementation)
    device = next(model.parameters()).device
    inputs = {
        name: value.to(device) if torch.is_tensor(value) else value
        for name, value in batch.inputs.items()
    }
    with torch.no_grad():
        logits = model(**inputs).logits
    return logits[batch.real.to(device)].double().cpu()
