#!/usr/bin/env python3
"""Memory and time of standard attention (S and P materialised by cuBLAS and
PyTorch's softmax) and of ours, b1 h32 d128 causal bf16.

    python3 memory_bench.py --library libattendant_attention_c.so --out results

Peak bytes count everything beside q, k and v: the output too. Writes
memory_h200.json and memory_h200.meta.json.
"""

import argparse
import json
import os
import sys
import time

import torch

import attention_c
import gpu_timing

HEADS, HEAD_DIM = 32, 128


def standard(q, k, v, hidden):
    """Attention as written in model code; q, k, v are [b, h, s, d]."""
    scores = torch.matmul(q, k.transpose(2, 3)) * HEAD_DIM ** -0.5
    scores = scores.masked_fill(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)


def peak_of(function):
    """Bytes that `function` allocates at most, its result included."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before, result


def measure(library, rows, kernel, reps):
    q, k, v = (torch.randn(1, rows, HEADS, HEAD_DIM, device="cuda",
                           dtype=torch.bfloat16) for _ in range(3))
    heads_first = [t.transpose(1, 2) for t in (q, k, v)]
    hidden = torch.ones(rows, rows, device="cuda",
                        dtype=torch.bool).triu(diagonal=1)
    row = {"batch": 1, "num_heads": HEADS, "head_dim": HEAD_DIM,
           "causal": True, "dtype": "bf16", "seqlen": rows}
    out_bytes, out = peak_of(lambda: torch.empty_like(q))
    plan = library.plan([attention_c.problem(q, k, v, out, causal=True)],
                        kernel)
    stream = torch.cuda.current_stream().cuda_stream
    functions = {"ours": lambda: plan.launch(stream)}
    plan.launch(stream)
    plan.repair(stream)
    row["kernel"] = plan.kernel()
    row["ours_peak_bytes"] = out_bytes + plan.device_bytes()
    try:
        row["standard_peak_bytes"], want = peak_of(
            lambda: standard(*heads_first, hidden))
        row["max_abs_diff"], row["excess"] = gpu_timing.difference(
            out, want.transpose(1, 2))
        del want
        functions["standard"] = lambda: standard(*heads_first, hidden)
    except torch.cuda.OutOfMemoryError:
        row["standard_peak_bytes"] = None  # more than the card has
        torch.cuda.empty_cache()
    begin = time.monotonic()
    timings = gpu_timing.interleaved(functions, reps=reps, warm=1, call_reps=0)
    for name in ("ours", "standard"):
        row[name + "_ms"] = timings[name].ms() if name in timings else None
    plan.close()
    return row, begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", default=os.environ.get("OUT", "results"))
    parser.add_argument("--kernel", default="")
    parser.add_argument("--tag", default="h200")
    parser.add_argument("--reps", type=int, default=30)
    options = parser.parse_args()
    torch.manual_seed(0)
    library = attention_c.Library(os.path.abspath(options.library))
    clocks = gpu_timing.ClockLog()
    rows = []
    failures = 0
    for seqlen in (2048, 4096, 8192, 16384):
        row, begin = measure(library, seqlen, options.kernel, options.reps)
        row.update(clocks.since(begin))
        row["commit"] = gpu_timing.commit()
        rows.append(row)
        failures += not row.get("excess", 0) < 0.02
        standard_bytes = row["standard_peak_bytes"]
        print(f"s{seqlen}: standard "
              f"{standard_bytes and standard_bytes / 1e6} MB "
              f"{row['standard_ms']} ms, ours {row['ours_peak_bytes'] / 1e6} "
              f"MB {row['ours_ms']} ms, difference "
              f"{row.get('max_abs_diff')}", flush=True)
        torch.cuda.empty_cache()
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, f"memory_{options.tag}")
    with open(path + ".json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    with open(path + ".meta.json", "w") as file:
        json.dump({**gpu_timing.machine(), **clocks.since(0)}, file, indent=1)
        file.write("\n")
    clocks.close()
    growth = rows[-1]["ours_peak_bytes"] / rows[0]["ours_peak_bytes"]
    print(f"ours grows {growth:.2f} times from 2k to 16k (8 is linear)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
