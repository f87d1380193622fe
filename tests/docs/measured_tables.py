"""Tables of tests/benchmark/results, as text for READMEs and guides."""

import json
import math
import pathlib
import textwrap

RESULTS = pathlib.Path(__file__).parents[1] / "benchmark/results"


def load(name):
    """The rows (or object) of a results file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def geometric_mean(values):
    """Of positive numbers."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def at_least(value, digits=2):
    """A least value, rounded down: 0.998 is not 1.00."""
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def forward():
    """TFLOP/s of the 36 bf16 points, ours / cuDNN."""
    rows = [row for row in load("forward_h200") if row["group"] == "bf16"]
    lengths = sorted({row["seqlen"] for row in rows})
    lines = []
    for dim in (64, 128, 256):
        for causal in (False, True):
            line = [f"d{dim} {'causal' if causal else 'full'}"]
            for length in lengths:
                (row,) = (
                    row
                    for row in rows
                    if (row["head_dim"], row["causal"], row["seqlen"])
                    == (dim, causal, length)
                )
                ours = row["ours_tflops"]
                line.append(f"{ours:.0f} / {ours / row['ratio_cudnn']:.0f}")
            lines.append(line)
    names = [str(n) if n < 1000 else f"{n // 1024}k" for n in lengths]
    return table(["bf16, 16k tokens, hidden 2048", *names], lines)


def forward_ratios():
    """Paired ratios by group of shapes, from the same run."""
    titles = {
        "bf16": "the 36 points above",
        "fp16": "fp16, d64 and d128",
        "gqa": "64 query heads on 8",
        "mla": "head sizes 192 and 128",
        "odd": "head sizes 40 to 192",
    }
    rows = load("forward_h200")
    fa4 = [row["ratio_fa4"] for row in load("forward_fa4_h200")]
    lines = []
    for group, title in titles.items():
        of_group = [row for row in rows if row["group"] == group]
        ratios = [row["ratio_cudnn"] for row in of_group]
        fa2 = [row["ratio_fa2"] for row in of_group if row.get("ratio_fa2")]
        lines.append(
            [title, len(ratios), f"{geometric_mean(ratios):.3f}"]
            + [f"{min(ratios):.3f}", f"{geometric_mean(fa2):.2f}" if fa2 else "-"]
            + [f"{geometric_mean(fa4):.3f}" if group == "bf16" else "-"]
        )
    (ragged,) = load("ragged_h200")
    shown = f"{ragged['requests']} requests of 64 to 8192 tokens, one launch"
    lines.append([shown, 1, *[f"{ragged['ratio_cudnn']:.2f}"] * 2, "-", "-"])
    head = ["shapes", "points", "times cuDNN", "least", "times FA2", "times FA4"]
    return table(head, lines)


def headline():
    """What the front page says in words."""
    rows = [row for row in load("forward_h200") if row["group"] == "bf16"]
    ratios = {
        "cudnn": [row["ratio_cudnn"] for row in rows],
        "fa2": [row["ratio_fa2"] for row in rows],
        "fa4": [row["ratio_fa4"] for row in load("forward_fa4_h200")],
    }
    mean = {name: geometric_mean(found) for name, found in ratios.items()}
    one, more = (
        [r["ratio_cudnn"] for r in load("decode_h200") if (r["seqlen_q"] == 1) == few]
        for few in (True, False)
    )
    largest = max(load("memory_h200"), key=lambda row: row["seqlen"])
    least = min(
        row["speedup"]
        for name in ("cpu_forward", "cpu_forward_16")
        for row in load(name)
    )
    return textwrap.fill(
        f"Over these {len(rows)} points {mean['cudnn']:.2f} times cuDNN (least "
        f"{at_least(min(ratios['cudnn']))}), {mean['fa2']:.2f} times FlashAttention-2, "
        f"{mean['fa4']:.2f} times FlashAttention-4. Against long K and V, times cuDNN: "
        f"one query row at least {at_least(min(one))}, 4 or 16 rows at least "
        f"{at_least(min(more), 1)}. Beside the inputs {largest['seqlen'] // 1024}k tokens "
        f"take {megabytes(largest['ours_peak_bytes'])}, materialised attention "
        f"{megabytes(largest['standard_peak_bytes'])}. CPUs: at least {at_least(least, 1)} "
        "times PyTorch.",
        width=100,
    )


def forward_fa4():
    """Paired ratios to FlashAttention-4 at the 36 bf16 points."""
    rows = load("forward_fa4_h200")
    lengths = sorted({row["seqlen"] for row in rows})
    lines = []
    for dim in (64, 128, 256):
        for causal in (False, True):
            found = {
                row["seqlen"]: row["ratio_fa4"]
                for row in rows
                if (row["head_dim"], row["causal"]) == (dim, causal)
            }
            name = f"d{dim} {'causal' if causal else 'full'}"
            lines.append([name, *(f"{found[n]:.3f}" for n in lengths)])
    names = [str(n) if n < 1000 else f"{n // 1024}k" for n in lengths]
    return table(["times FA4, bf16", *names], lines)


def decode():
    """Microseconds and bandwidth where few query rows meet long K and V."""
    lines = []
    for row in load("decode_h200"):
        lines.append(
            [row["batch"], row["seqlen_q"], row["seqlen_kv"]]
            + [f"{row['ours_us']:.1f}", f"{row['cudnn_us']:.1f}"]
            + [f"{row['ours_tb_per_s']:.2f}", f"{row['ratio_cudnn']:.2f}"]
        )
    head = ["batch", "query rows", "keys", "ours, us", "cuDNN, us", "TB/s"]
    return table([*head, "times cuDNN"], lines)


def megabytes(number):
    """As people write it."""
    return f"{number / 1e6:,.0f} MB" if number < 1e9 else f"{number / 1e9:,.1f} GB"


def memory():
    """Memory beside the inputs, ours against materialised attention."""
    lines = [
        [row["seqlen"], megabytes(row["ours_peak_bytes"])]
        + [megabytes(row["standard_peak_bytes"])]
        + [f"{row['ours_ms']:.2f} ms", f"{row['standard_ms']:.1f} ms"]
        for row in load("memory_h200")
        if row.get("standard_peak_bytes")
    ]
    head = ["tokens", "ours", "materialised", "ours takes", "materialised takes"]
    return table(head, lines)


def cpu():
    """The CPU backend against PyTorch, by machine and kind of work."""
    lines = []
    for name, machine in (
        ("cpu_forward", "2 cores"),
        ("cpu_forward_16", "16 cores, AMX"),
    ):
        rows = load(name)
        for dtype in ("fp32", "bf16", "fp16"):
            for title, few in (("prefill", False), ("decode", True)):
                ratios = [
                    row["speedup"]
                    for row in rows
                    if row["dtype"] == dtype and (row["seqlen_q"] <= 16) == few
                ]
                if ratios:
                    mean = f"{geometric_mean(ratios):.2f}"
                    lines.append([f"{machine}: {dtype} {title}", len(ratios), mean])
                    lines[-1] += [f"{min(ratios):.2f}", f"{max(ratios):.2f}"]
    return table(["CPU", "points", "times PyTorch", "least", "most"], lines)


def cpu_decode():
    """Decode at 32k keys: GB/s of K and V beside two readers of as many threads;
    shares with their quartiles over the rounds."""
    lines = []
    for name, machine in (("cpu_forward", "2"), ("cpu_forward_16", "16, AMX")):
        for row in load(name):
            if (row["seqlen_q"], row["seqlen_kv"]) != (1, 32768):
                continue
            lines.append([machine, row["dtype"], row["batch"]])
            lines[-1] += [row["ours_kv_gbytes_per_s"]]
            for rate, share in (
                ("read_gbytes_per_s", "of_read"),
                ("memory_gbytes_per_s", "of_memory_read"),
            ):
                text = f"{row[share]:.2f}" if share in row else "-"
                if f"{share}_quartiles" in row:
                    text += " ({:.2f} to {:.2f})".format(*row[f"{share}_quartiles"])
                lines[-1] += [row.get(rate, "-"), text]
    head = ["cores", "dtype", "batch", "ours, GB/s", "K and V read", "share of it"]
    return table([*head, "memory read", "share of it"], lines)


def transport():
    """Every road on one host, and its peers, from the same run."""
    titles = {
        "unary": "unary, one message",
        "stream": "AttendStream",
        "striped": "AttendStream on 8 connections",
        "shm": "shared memory",
        "ipc": "CUDA IPC, tensors stay on the GPU",
        "flight": "Arrow Flight (C++), moving the same bytes",
        "plain_protobuf": "ordinary protobuf server, our kernel",
        "python_grpcio": "Python grpcio server and torch",
    }
    rows = load("transport_h200")

    def shown(door, section, key, text):
        for row in rows:
            if (row["door"], row["section"], row.get("layout")) == (
                *(door, section),
                "BSHD",
            ):
                return text.format(row[key])
        return "-"

    lines = [
        [
            title,
            shown(door, "large", "p50_ms", "{:.1f} ms"),
            shown(door, "sustained", "gbps", "{:.1f} GB/s"),
            shown(door, "small", "p50_ms", "{:.2f} ms"),
        ]
        for door, title in titles.items()
    ]
    head = ["road", "one large call", "8 connections, 16 calls", "one small call"]
    return table(head, lines)


def python_calls():
    """Medians of one caller by door: C++, Python, and what is usual."""
    clients = {
        "cpp": "C++, prepared",
        "python": "Python, prepared",
        "cpp_out": "C++, out",
        "python_out": "attend(out=)",
        "cpp_new": "C++, new answer",
        "python_new_array": "attend()",
        "python_grpcio": "without the library",
        "plain_grpcio": "a plain grpcio server",
    }
    found = {
        (row["door"], row["seqlen"], row["client"]): row["p50_ms"]
        for row in load("python_h200")
    }
    lines = []
    for door in dict.fromkeys(door for door, _, _ in found):
        for seqlen in (8192, 128):
            times = [found.get((door, seqlen, client)) for client in clients]
            cells = ["-" if time is None else f"{time:.3g}" for time in times]
            lines.append([f"{door}, {seqlen} tokens", *cells])
    return table(["ms", *clients.values()], lines)


def fresh_machines():
    """How long the README's commands took where nothing was."""
    result = load("fresh_machine")
    lines = [
        [run["suite"], f"`{run['command']}`"]
        + [f"{run['seconds'] // 60} min {run['seconds'] % 60} s"]
        + ["passed" if run["exit_code"] == 0 else f"exit code {run['exit_code']}"]
        + ["yes" if run["compiler_cache"] else "no", run["commit"][:7]]
        for run in result["runs"]
    ]
    return table(
        ["Debian", "command", "time", "result", "compiler cache", "commit"], lines
    )


def images():
    """Sizes of the container image."""
    lines = [
        [kind, f"{image['bytes'] / 1e6:.1f} MB", f"{image['bound'] / 1e6:.0f} MB"]
        for kind, image in sorted(load("container").items(), reverse=True)
    ]
    return table(["image", "size", "at most"], lines)


def operation():
    """What was recorded of each promise to operators, with its bar."""
    lines = []
    for suite in "overload deadline drain fairness faults hostile metrics_cost".split():
        for situation, record in load(suite).items():
            shown = []
            for name, check in record.items():
                for bar in ("at most", "at least"):
                    if isinstance(check, dict) and bar in check:
                        value = check["value"]
                        said = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
                        said = f"{name.replace('_', ' ')} {said}"
                        if value or check[bar]:
                            said += f" ({bar} {check[bar]:.5g})"
                        shown.append(said if check["held"] else f"**{said}**")
            lines.append([suite, situation, "; ".join(shown), record["commit"]])
    return table(["suite", "situation", "measured (bar)", "commit"], lines)


TABLES = {
    "operation": operation,
    "headline": headline,
    "forward": forward,
    "forward_ratios": forward_ratios,
    "forward_fa4": forward_fa4,
    "decode": decode,
    "memory": memory,
    "cpu": cpu,
    "cpu_decode": cpu_decode,
    "transport": transport,
    "python_calls": python_calls,
    "fresh_machines": fresh_machines,
    "images": images,
}
