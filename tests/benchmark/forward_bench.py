#!/usr/bin/env python3
"""Ours against PyTorch's cuDNN and FlashAttention-2 on one GPU, one process.

    python3 forward_bench.py --library libattendant_attention_c.so --out results

Writes forward_h200.json, decode_h200.json and ragged_h200.json (those whose
groups ran) and *.meta.json beside them: machine, date, command, clocks. The
method is gpu_timing's. 16k tokens in all and hidden size 2048 in the forward
points, random normal inputs, BSHD storage; every answer is compared with
cuDNN's (or FA2's) before it is timed. Exit status 1 if a point of ours failed.
"""

import argparse
import json
import math
import os
import re
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import attention_c
import gpu_timing

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION,
            "fa2": SDPBackend.FLASH_ATTENTION}
GROUPS = ("bf16", "fp16", "gqa", "mla", "odd", "decode", "ragged")
# 64 lengths, log-uniform in 64..8192.
RAGGED = [
    2527, 248, 452, 2261, 73, 3102, 439, 2487, 1014, 537, 1419, 816, 1756, 281,
    606, 582, 1029, 717, 6036, 1540, 293, 167, 482, 254, 332, 813, 3075, 2706,
    67, 3257, 1426, 7230, 3591, 79, 72, 224, 6094, 483, 2044, 234, 7827, 259,
    4465, 745, 201, 2519, 199, 1477, 359, 554, 70, 227, 2700, 401, 8113, 5062,
    646, 143, 3172, 1537, 150, 3500, 3158, 6226]


def normal(batch, rows, heads, head_dim, dtype):
    """[batch, rows, heads, head_dim]."""
    return torch.randn(batch, rows, heads, head_dim, device="cuda", dtype=dtype)


def sdpa(backend, q, k, v, causal):
    """A call of PyTorch's on BSHD tensors, or None if it refuses them."""
    gqa = q.shape[2] != k.shape[2]
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))

    def call():
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                  enable_gqa=gqa)
    try:
        call()
        torch.cuda.synchronize()
        return call
    except RuntimeError:
        return None


def fa4(q, k, v, causal):
    """The same of FlashAttention-4 (PyPI's flash-attn-4), which compiles its
    kernel on the first call, or None if it refuses them."""
    from flash_attn.cute import flash_attn_func

    def call():
        with torch.no_grad():
            answer = flash_attn_func(q, k, v, causal=causal)
        return (answer[0] if isinstance(answer, tuple) else answer
                ).transpose(1, 2)
    try:
        call()
        torch.cuda.synchronize()
        return call
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        print(f"  FA4 refuses: {str(error)[:200]}", flush=True)
        return None


class Bench:
    """Runs rows, keeps results, prints a line each."""

    def __init__(self, options):
        self.options = options
        self.library = attention_c.Library(os.path.abspath(options.library))
        self.stream = torch.cuda.current_stream().cuda_stream
        self.clocks = gpu_timing.ClockLog()
        self.rows = {"forward": [], "decode": [], "ragged": []}
        self.failures = []
        self.ratios = {}  # group -> [(ratio, label)]

    def ours(self, problems):
        """(function, plan), or (None, None) if the kernel refuses."""
        try:
            plan = self.library.plan(problems, self.options.kernel)
            plan.launch(self.stream)
            plan.repair(self.stream)
            torch.cuda.synchronize()
            return (lambda: plan.launch(self.stream)), plan
        except attention_c.AttentionError as error:
            print(f"  ours failed: {error}", flush=True)
            return None, None

    def check(self, label, out, want):
        """Largest difference from a peer's answer; a gross one is a failure."""
        difference, excess = gpu_timing.difference(out, want.transpose(1, 2))
        if not excess < 0.02:
            self.failures.append(f"{label}: differs from the peer by "
                                 f"{difference:.3g}")
        return difference

    def time(self, group, label, q, k, v, causal, flops):
        """Times all of them; returns the fields every row shares."""
        out = torch.full((*q.shape[:3], v.shape[3]), float("nan"),
                         device="cuda", dtype=q.dtype)
        functions = {}
        for backend in BACKENDS:
            if backend == "fa2" and self.options.no_fa2:
                continue
            call = sdpa(backend, q, k, v, causal)
            if call is not None:
                functions[backend] = call
        if self.options.fa4:
            call = fa4(q, k, v, causal)
            if call is not None:
                functions["fa4"] = call
        # What is compared with, before `out` is overwritten by timing.
        want = functions[next(iter(functions))]() if functions else None
        ours, plan = self.ours([attention_c.problem(q, k, v, out, causal)])
        fields = {"kernel": None, "max_abs_diff": None}
        if ours is None:
            self.failures.append(f"{label}: no plan")
        else:
            fields["kernel"] = plan.kernel()
            if want is not None:
                fields["max_abs_diff"] = self.check(label, out, want)
            functions["ours"] = ours
        del want
        begin = time.monotonic()
        timings = gpu_timing.interleaved(functions, reps=self.options.reps)
        for name in ("ours", "cudnn", "fa2") + (("fa4",) * self.options.fa4):
            timing = timings.get(name)
            fields[name + "_ms"] = timing and timing.ms()
            fields[name + "_call_ms"] = timing and timing.call_ms()
        if ours is not None:
            fields["ours_tflops"] = flops / fields["ours_ms"] / 1e9
            for peer in ("cudnn", "fa2", "fa4"):
                if peer in timings:
                    fields["ratio_" + peer] = gpu_timing.paired_ratio(
                        timings[peer], timings["ours"])
            if "cudnn" in timings:
                self.ratios.setdefault(group, []).append(
                    (fields["ratio_cudnn"], label))
        fields.update(self.clocks.since(begin))
        fields["commit"] = gpu_timing.commit()
        self.print_row(label, fields)
        if plan is not None:
            plan.close()
        return fields

    def print_row(self, label, fields):
        def number(value, width, digits):
            return " " * (width - 1) + "-" if value is None else (
                f"{value:{width}.{digits}f}")
        print(f"{label:34s} ours {number(fields['ours_ms'], 8, 4)} ms "
              f"{number(fields.get('ours_tflops'), 6, 1)} TFLOP/s  cudnn "
              f"{number(fields['cudnn_ms'], 8, 4)}  fa2 "
              f"{number(fields['fa2_ms'], 8, 4)}  x cudnn "
              f"{number(fields.get('ratio_cudnn'), 6, 3)}  x fa2 "
              f"{number(fields.get('ratio_fa2'), 6, 3)}  x fa4 "
              f"{number(fields.get('ratio_fa4'), 6, 3)}  call "
              f"{number(fields['ours_call_ms'], 8, 4)} {fields['kernel']}",
              flush=True)

    def forward(self, group, dtype, batch, rows, heads, kv_heads, head_dim,
                head_dim_v, causal):
        name = "bf16" if dtype == torch.bfloat16 else "fp16"
        label = (("" if group == name else group + " ") + f"{name} d{head_dim}"
                 + (f"/{head_dim_v}" if head_dim_v != head_dim else "")
                 + f" {'causal' if causal else 'full'} s{rows}")
        if not re.search(self.options.only, label):
            return
        q = normal(batch, rows, heads, head_dim, dtype)
        k = normal(batch, rows, kv_heads, head_dim, dtype)
        v = normal(batch, rows, kv_heads, head_dim_v, dtype)
        flops = 2.0 * batch * heads * rows * rows * (head_dim + head_dim_v)
        fields = self.time(group, label, q, k, v, causal,
                           flops * (0.5 if causal else 1))
        row = {"kernel": fields.pop("kernel"), "dtype": name, "layout": "BSHD",
               "head_dim": head_dim, "head_dim_v": head_dim_v,
               "causal": causal, "batch": batch, "num_heads": heads,
               "num_kv_heads": kv_heads, "seqlen": rows, "group": group}
        self.rows["forward"].append({**row, **fields})

    def points(self, group, dtype, head_dims):
        for head_dim in head_dims:
            for causal in (False, True):
                for rows in (512, 1024, 2048, 4096, 8192, 16384):
                    heads = 2048 // head_dim
                    self.forward(group, dtype, 16384 // rows, rows, heads,
                                 heads, head_dim, head_dim, causal)

    def run_bf16(self):
        self.points("bf16", torch.bfloat16, (64, 128, 256))

    def run_fp16(self):
        self.points("fp16", torch.float16, (64, 128))

    def run_gqa(self):
        for causal in (False, True):
            for rows in (2048, 4096, 8192, 16384, 32768):
                self.forward("gqa", torch.bfloat16, 2, rows, 64, 8, 128, 128,
                             causal)

    def run_mla(self):
        for causal in (False, True):
            for rows in (2048, 8192, 16384):
                self.forward("mla", torch.bfloat16, 2, rows, 128, 128, 192, 128,
                             causal)

    def run_odd(self):
        for head_dim in (40, 72, 80, 96, 112, 160, 192):
            self.forward("odd", torch.bfloat16, 4, 4096, 16, 16, head_dim,
                         head_dim, True)

    def run_decode(self):
        points = ((1, 2048), (1, 8192), (1, 32768), (1, 131072), (8, 2048),
                  (8, 8192), (8, 32768), (32, 8192), (128, 2048), (128, 8192))
        for batch, rows_kv in points:
            k = normal(batch, rows_kv, 8, 128, torch.bfloat16)
            v = normal(batch, rows_kv, 8, 128, torch.bfloat16)
            for rows_q in (1, 4, 16):
                q = normal(batch, rows_q, 64, 128, torch.bfloat16)
                label = f"decode b{batch} kv{rows_kv} sq{rows_q}"
                fields = self.time("decode" if rows_q == 1 else "few rows",
                                   label, q, k, v, False,
                                   4.0 * batch * 64 * rows_q * rows_kv * 128)
                row = {"kernel": fields["kernel"], "batch": batch,
                       "num_heads": 64, "num_kv_heads": 8, "head_dim": 128,
                       "seqlen_q": rows_q, "seqlen_kv": rows_kv}
                for name in ("ours", "cudnn", "fa2"):
                    ms = fields[name + "_ms"]
                    row[name + "_us"] = ms and ms * 1e3
                    ms = fields[name + "_call_ms"]
                    row[name + "_call_us"] = ms and ms * 1e3
                kv_bytes = 2 * batch * 8 * rows_kv * 128 * 2
                row["ours_tb_per_s"] = (fields["ours_ms"]
                                        and kv_bytes / fields["ours_ms"] / 1e9)
                for name in ("ratio_cudnn", "ratio_fa2", "max_abs_diff",
                             "sm_clock_mhz", "power_w", "commit"):
                    row[name] = fields.get(name)
                self.rows["decode"].append(row)

    def run_ragged(self):
        tensors = [tuple(normal(1, n, 16, 128, torch.bfloat16)
                         for _ in range(4)) for n in RAGGED]
        calls = [sdpa("cudnn", q, k, v, True) for q, k, v, _ in tensors]
        problems = [attention_c.problem(q, k, v, out, True)
                    for q, k, v, out in tensors]
        flops = sum(2.0 * 16 * n * n * 128 for n in RAGGED)
        row = {"kernel": None, "requests": len(RAGGED), "num_heads": 16,
               "head_dim": 128, "causal": True, "lengths": RAGGED,
               "ours_ms": None, "cudnn_sequential_ms": None, "tflops": None}

        def one_by_one():
            for call in calls:
                call()
        functions = {}
        if all(call is not None for call in calls):
            functions["cudnn"] = one_by_one
        else:
            print("  cuDNN refuses a ragged request", flush=True)
        ours, plan = self.ours(problems)
        if ours is None:
            self.failures.append("ragged: no plan")
        else:
            functions["ours"] = ours
            row["kernel"] = plan.kernel()
            if "cudnn" in functions:
                row["max_abs_diff"] = max(
                    self.check(f"ragged {n}", tensor[3], call())
                    for n, tensor, call in zip(RAGGED, tensors, calls))
        begin = time.monotonic()
        timings = gpu_timing.interleaved(functions, reps=self.options.reps,
                                         spin=8_000_000)
        if "cudnn" in timings:
            row["cudnn_sequential_ms"] = timings["cudnn"].ms()
            row["cudnn_call_ms"] = timings["cudnn"].call_ms()
        if "ours" in timings:
            row["ours_ms"] = timings["ours"].ms()
            row["ours_call_ms"] = timings["ours"].call_ms()
            row["tflops"] = flops / row["ours_ms"] / 1e9
        if len(timings) == 2:
            row["ratio_cudnn"] = gpu_timing.paired_ratio(timings["cudnn"],
                                                         timings["ours"])
            self.ratios["ragged"] = [(row["ratio_cudnn"], "ragged")]
        row.update(self.clocks.since(begin))
        row["commit"] = gpu_timing.commit()
        print(f"ragged: ours {row['ours_ms']} ms in one launch "
              f"({row['tflops']} TFLOP/s), cuDNN one by one "
              f"{row['cudnn_sequential_ms']} ms", flush=True)
        self.rows["ragged"].append(row)

    def write(self, seconds):
        meta = {**gpu_timing.machine(), "reps": self.options.reps,
                "seconds": seconds, "kernel_option": self.options.kernel,
                **self.clocks.since(0), "failures": self.failures}
        os.makedirs(self.options.out, exist_ok=True)
        for name, rows in self.rows.items():
            if not rows:
                continue
            path = os.path.join(self.options.out, f"{name}_{self.options.tag}")
            with open(path + ".json", "w") as file:
                file.write("[\n" + ",\n".join(json.dumps(r) for r in rows)
                           + "\n]\n")
            with open(path + ".meta.json", "w") as file:
                json.dump(meta, file, indent=1)
                file.write("\n")

    def summary(self):
        print("\ngroup        points   x cuDNN: geometric mean   least (where)")
        for group, ratios in self.ratios.items():
            mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
            least, where = min(ratios)
            print(f"{group:12s} {len(ratios):6d}   {mean:23.3f}   "
                  f"{least:.3f} ({where})")
        for peer in ("fa2", "fa4"):
            ratios = [row["ratio_" + peer] for row in self.rows["forward"]
                      if row.get("ratio_" + peer) and row["group"] == "bf16"]
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                print(f"bf16 x {peer.upper()}: geometric mean {mean:.3f}, least "
                      f"{min(ratios):.3f} of {len(ratios)} points")
        by_point = {(r["batch"], r["seqlen_kv"], r["seqlen_q"]): r["ours_us"]
                    for r in self.rows["decode"] if r["ours_us"]}
        growth = [(us / by_point[(b, n, 1)], b, n, sq)
                  for (b, n, sq), us in by_point.items()
                  if sq > 1 and (b, n, 1) in by_point]
        if growth:
            worst, b, n, sq = max(growth)
            print(f"few rows: at most {worst:.2f} times one row's time "
                  f"(b{b} kv{n} sq{sq})")
        for failure in self.failures:
            print("FAILED", failure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True,
                        help="path of libattendant_attention_c.so")
    parser.add_argument("--out", default=os.environ.get("OUT", "results"),
                        help="folder for the results")
    parser.add_argument("--groups", default=",".join(GROUPS),
                        help="some of " + ",".join(GROUPS))
    parser.add_argument("--only", default="", help="regular expression: the "
                        "forward points to run, by their printed label")
    parser.add_argument("--kernel", default="",
                        help="row of the capability table; empty: the best")
    parser.add_argument("--tag", default="h200", help="suffix of the files")
    parser.add_argument("--reps", type=int, default=30)
    parser.add_argument("--no-fa2", action="store_true",
                        help="leave FlashAttention-2 out")
    parser.add_argument("--fa4", action="store_true", help="beside "
                        "FlashAttention-4 (pip install flash-attn-4), too")
    options = parser.parse_args()
    groups = options.groups.split(",")
    unknown = set(groups) - set(GROUPS)
    if unknown:
        parser.error(f"unknown groups: {', '.join(sorted(unknown))}")
    torch.manual_seed(0)
    begin = time.monotonic()
    bench = Bench(options)
    for group in groups:
        getattr(bench, "run_" + group)()
        torch.cuda.empty_cache()
    bench.write(time.monotonic() - begin)
    bench.clocks.close()
    bench.summary()
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
