"""Runs a Llama-like model whose attention a server computes, and compares.

python hf_generate.py [host:port]

Random weights, so that nothing is downloaded; from_pretrained takes the same
attn_implementation="attendant".
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from attendant import hf


def main() -> None:
    """Prefill and generation on both, eager and served."""
    hf.install(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051")
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    text = torch.randint(0, 256, (2, 40))
    answers = {}
    for name in ("eager", "attendant"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            logits = model(text).logits
            tokens = model.generate(
                text,
                attention_mask=torch.ones_like(text),
                max_new_tokens=20,
                do_sample=False,
                pad_token_id=0,
            )
        answers[name] = logits, tokens
    (want, want_tokens), (got, got_tokens) = answers["eager"], answers["attendant"]
    print(f"largest difference of logits: {(got - want).abs().max().item():.2e}")
    assert torch.equal(got_tokens, want_tokens)
    print(f"the same {got_tokens.shape[1] - text.shape[1]} tokens generated, twice")


if __name__ == "__main__":
    main()
