#!/usr/bin/env python3
"""Our CPU kernel against PyTorch's scaled_dot_product_attention on the CPU, in
one process, with the same number of threads, by turns.

    python3 cpu_forward_bench.py --library libattendant_attention_c.so \\
        --out results [--threads 2] [--only prefill] [--target AVX2]

Tensors are [batch, heads, rows, head_dim], contiguous, random normal, and lie in
huge pages where the system has them (--small_pages: not). Times are medians. Of
PyTorch's two ways to share KV heads (enable_gqa, repeated heads made beforehand)
the faster one counts. Before it is timed, each case is compared with PyTorch's
answer in fp32.

Decode is also set beside mere reading, by plain loads of whole lines in order,
with the same pool of threads, which takes pieces of 1 MiB as it takes our tasks,
each in one stream or in four: of each reader the faster one counts. (Prefetches
2 to 16 KiB ahead and 2, 8 or 16 streams read no faster where this was tried.)
Ours and a reader's loops run call by call in turn, at least 30 rounds, each round
beginning with another one, so that what neighbours take of the memory's speed
cancels: a share is the median over the rounds of a reader's time over ours, and
its quartiles stand beside it, and the medians of repeats. Two readers:
- of K and V, the very bytes and pages that ours reads: read_gbytes_per_s,
  of_read. The bar (at least 0.80 at 32k keys on all cores) means this one: it is
  what the machine gives these threads for these bytes, caches included.
- of memory, STREAM's rule, 1 GiB or four times the last cache if that is more:
  memory_gbytes_per_s, of_memory_read. Ours follows it in these rounds, so that
  hardly any of K and V is in a cache.
torch_sum_gbytes_per_s is the rate of PyTorch's sum of K and V, timed alone.

Writes cpu_forward.json and cpu_forward.meta.json (machine, versions, command)
after each case, so that a time limit loses nothing but what is left.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import cpu_memory

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16",
         "amx_bf16")

MIN_ROUNDS = 30  # of functions whose times are compared round by round


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--name", default="cpu_forward")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="words that a case's name "
                        "has to have, such as 'prefill bf16'; with --out, "
                        "other rows there are kept")
    parser.add_argument("--target", help="ATTENDANT_CPU_TARGET of our kernel")
    parser.add_argument("--small_pages", action="store_true",
                        help="K, V and memory in the system's small pages")
    parser.add_argument("--repeats", type=int, default=1,
                        help="of decode beside the reader of K and V: "
                        "of_read_repeats are their medians")
    parser.add_argument("--seconds", type=float, default=0.6,
                        help="measured time of a case, for each peer")
    return parser.parse_args()


def cpu_info():
    model, flags = platform.processor(), []
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            if key.strip() == "flags":
                flags = value.split()
    return model, " ".join(f for f in FLAGS if f in flags)


def cases():
    for dtype in ("fp32", "bf16"):
        for head_dim in (64, 128):
            for causal in (True, False):
                for rows in (512, 1024, 2048, 4096):
                    yield {"phase": "prefill", "dtype": dtype,
                           "head_dim": head_dim, "causal": causal, "batch": 1,
                           "num_heads": 16, "num_kv_heads": 16,
                           "seqlen_q": rows, "seqlen_kv": rows}
    for dtype in ("fp32", "bf16"):
        for batch in (1, 8):
            for keys in (4096, 32768):
                yield {"phase": "decode", "dtype": dtype, "head_dim": 128,
                       "causal": False, "batch": batch, "num_heads": 32,
                       "num_kv_heads": 8, "seqlen_q": 1, "seqlen_kv": keys}


def name_of(case):
    return (f"{case['phase']} {case['dtype']} d{case['head_dim']} "
            f"{'causal' if case['causal'] else 'full'} b{case['batch']} "
            f"h{case['num_heads']}/{case['num_kv_heads']} "
            f"{case['seqlen_q']}x{case['seqlen_kv']}")


def key_of(row):
    return tuple(row[key] for key in (
        "dtype", "head_dim", "causal", "batch", "num_heads", "num_kv_heads",
        "seqlen_q", "seqlen_kv"))


def time_by_turns(groups, seconds, turns=4):
    """The seconds of each call, by the functions' names. The functions of a
    group run call by call in turn, each round from another one on; each group
    for about `seconds` for each of its functions, one of several functions for
    MIN_ROUNDS at least, in turns that begin with a pause and untimed calls:
    OpenMP's threads spin for milliseconds after their last work, on the cores
    that the next needs."""
    times = {name: [] for group in groups for name in group}
    for _ in range(turns):
        for group in groups:
            names = list(group)
            time.sleep(0.03)
            for function in group.values():
                function()
            end = time.perf_counter() + len(group) * seconds / turns
            least = -(-MIN_ROUNDS // turns) if len(group) > 1 else 1
            done = 0
            while done < least or time.perf_counter() < end:
                for name in names:
                    start = time.perf_counter()
                    group[name]()
                    times[name].append(time.perf_counter() - start)
                names = names[1:] + names[:1]
                done += 1
    return times


def beside_reader(calls, what, ours):
    """The faster loop that reads `what`: its seconds, and the quartiles of what
    `ours` reaches of it in the rounds."""
    name = min((n for n in calls if n.startswith(what)),
               key=lambda n: statistics.median(calls[n]))
    shares = [read / own for read, own in zip(calls[name], calls[ours])]
    return statistics.median(calls[name]), [
        round(q, 3) for q in statistics.quantiles(shares, n=4)]


def visible_pairs(case):
    pairs = case["seqlen_q"] * case["seqlen_kv"]
    if case["causal"]:
        pairs = case["seqlen_q"] * (case["seqlen_q"] + 1) // 2
    return pairs


def our_readers(what, plan, tensors):
    """Loops of ours that read `tensors` once with the plan's threads."""
    return {f"{what} by us, {streams}": lambda streams=streams: [
        plan.read(t, streams) for t in tensors] for streams in (1, 4)}


def add_readers(row, calls, kv_bytes, memory_bytes):
    read, shares = beside_reader(calls, "read", "ours")
    row["read_gbytes_per_s"] = round(kv_bytes / read / 1e9, 1)
    row["of_read"], row["of_read_quartiles"] = shares[1], shares[::2]
    row["read_rounds"] = len(calls["ours"])
    read, shares = beside_reader(calls, "memory", "ours after memory")
    row["memory_gbytes_per_s"] = round(memory_bytes / read / 1e9, 1)
    row["of_memory_read"] = round(
        shares[1] * kv_bytes / memory_bytes, 3)
    row["of_memory_read_quartiles"] = [
        round(share * kv_bytes / memory_bytes, 3) for share in shares[::2]]
    row["torch_sum_gbytes_per_s"] = round(
        kv_bytes / statistics.median(calls["torch's sum"]) / 1e9, 1)


def measure(torch, attention_c, library, case, memory, arguments):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def empty(heads, rows):
        return cpu_memory.empty(
            torch, (case["batch"], heads, rows, case["head_dim"]), dtype,
            not arguments.small_pages)

    def tensor(heads, rows):
        return empty(heads, rows).normal_()

    q = tensor(case["num_heads"], case["seqlen_q"])
    k = tensor(case["num_kv_heads"], case["seqlen_kv"])
    v = tensor(case["num_kv_heads"], case["seqlen_kv"])
    out = torch.empty_like(q)
    ours = library.plan(
        [attention_c.problem(*(t.transpose(1, 2) for t in (q, k, v, out)),
                             causal=case["causal"])],
        "cpu", arguments.threads)
    functions = {}
    if case["num_heads"] == case["num_kv_heads"]:
        functions["torch"] = lambda: sdpa(q, k, v, is_causal=case["causal"])
    else:
        group = case["num_heads"] // case["num_kv_heads"]
        functions["torch gqa"] = lambda: sdpa(q, k, v, enable_gqa=True)
        wide_k, wide_v = (
            empty(case["num_heads"], case["seqlen_kv"]).copy_(
                t.repeat_interleave(group, 1)) for t in (k, v))
        functions["torch wide"] = lambda: sdpa(q, wide_k, wide_v)

    in_turn = [{"ours": ours.launch}]
    if case["phase"] == "decode":
        in_turn[0] |= our_readers("read", ours, (k, v))
        in_turn.append(our_readers("memory", ours, (memory,)) |
                       {"ours after memory": ours.launch})
        words = [t.view(-1).view(torch.int32).view(torch.float32)
                 for t in (k, v)]
        functions["torch's sum"] = lambda: [w.sum() for w in words]

    ours.launch()
    reference = sdpa(q.float(), k.float(), v.float(), enable_gqa=True,
                     is_causal=case["causal"])
    error = (out.float() - reference).abs().max().item()
    if error > {"fp32": 1e-5, "bf16": 2e-2}[case["dtype"]]:
        sys.exit(f"{name_of(case)}: wrong by {error}")

    with torch.inference_mode():
        calls = time_by_turns(
            in_turn + [{name: f} for name, f in functions.items()],
            arguments.seconds)
        repeats = [time_by_turns(in_turn[:1], arguments.seconds)
                   for _ in range(arguments.repeats - 1)]
    times = {name: 1e3 * statistics.median(t) for name, t in calls.items()}

    row = {key: value for key, value in case.items() if key != "phase"}
    row["ours_ms"] = round(times["ours"], 4)
    row["torch_ms"] = round(min(
        times[name] for name in ("torch", "torch gqa", "torch wide")
        if name in times), 4)
    row["speedup"] = round(row["torch_ms"] / row["ours_ms"], 3)
    flops = (4 * case["head_dim"] * visible_pairs(case) * case["num_heads"] *
             case["batch"])
    row["ours_gflops"] = round(flops / row["ours_ms"] / 1e6, 1)
    kv_bytes = k.element_size() * (k.numel() + v.numel())
    row["ours_kv_gbytes_per_s"] = round(kv_bytes / row["ours_ms"] / 1e6, 1)
    if case["phase"] == "decode":
        add_readers(row, calls, kv_bytes,
                    memory.numel() * memory.element_size())
        if repeats:
            row["of_read_repeats"] = [row["of_read"]] + [
                beside_reader(again, "read", "ours")[1][1] for again in repeats]
    row["max_error"] = float(f"{error:.2g}")
    return row


def main():
    arguments = parse_arguments()
    if arguments.target:
        os.environ["ATTENDANT_CPU_TARGET"] = arguments.target
    import torch
    import attention_c

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    library = attention_c.Library(os.path.abspath(arguments.library))
    model, flags = cpu_info()
    memory = cpu_memory.memory(torch, not arguments.small_pages)
    print(f"{model}, {arguments.threads} threads, torch {torch.__version__}, "
          f"huge pages: {cpu_memory.huge_pages()}")
    rows = []
    for case in cases():
        if not set(arguments.only.split()) <= set(name_of(case).split()):
            continue
        row = measure(torch, attention_c, library, case, memory, arguments)
        row |= {"cpu_flags": flags, "threads": arguments.threads}
        rows.append(row)
        print(f"{name_of(case):48} ours {row['ours_ms']:9.3f} ms  torch "
              f"{row['torch_ms']:9.3f} ms  {row['speedup']:6.2f}x  "
              f"{row['ours_gflops']:7.1f} GFLOP/s  "
              f"{row['ours_kv_gbytes_per_s']:6.1f} GB/s of "
              f"{row.get('read_gbytes_per_s', '-')} "
              f"({row.get('of_read', '-')}), memory "
              f"{row.get('memory_gbytes_per_s', '-')} "
              f"({row.get('of_memory_read', '-')}) "
              f"{row.get('of_read_repeats', '')}", flush=True)
        if arguments.out:
            write(arguments, rows, torch, model, flags)
    for phase, is_phase in (("prefill", lambda r: r["seqlen_q"] > 1),
                            ("decode", lambda r: r["seqlen_q"] == 1)):
        ratios = [r["speedup"] for r in rows if is_phase(r)]
        if ratios:
            print(f"{phase}: geometric mean {statistics.geometric_mean(ratios):.3f}, "
                  f"least {min(ratios):.3f}")


def write(arguments, rows, torch, model, flags):
    folder = os.path.dirname(os.path.abspath(__file__))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, text=True,
                            capture_output=True, check=False).stdout.strip()
    meta = {"machine": model, "cpu_flags": flags, "threads": arguments.threads,
            "cores": os.cpu_count(), "target": arguments.target or "best",
            "torch": torch.__version__, "commit": commit,
            "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "last_cache_bytes": cpu_memory.last_cache_bytes(),
            "huge_pages": "not used" if arguments.small_pages
                          else cpu_memory.huge_pages(),
            "date": datetime.date.today().isoformat(),
            "command": "cpu_forward_bench.py " + " ".join(
                a for a in sys.argv[1:] if "/" not in a)}
    os.makedirs(arguments.out, exist_ok=True)
    base = os.path.join(arguments.out, arguments.name)
    if arguments.only and os.path.exists(base + ".json"):
        with open(base + ".json", encoding="utf-8") as file:
            kept = json.load(file)
        rows = [r for r in kept if key_of(r) not in map(key_of, rows)] + rows
    order = [key_of(case) for case in cases()]
    for row in rows:
        row.setdefault("commit", commit[:12])
    rows.sort(key=lambda r: order.index(key_of(r)))
    with open(base + ".json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    with open(base + ".meta.json", "w", encoding="utf-8") as file:
        json.dump(meta, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
