#!/usr/bin/env python3
"""What Python adds to a call: the C++ client and Python's, turn by turn.

    python3 tests/benchmark/python_bench.py --build build \\
        --out tests/benchmark/results --name python_h200 --commit $(git
        rev-parse --short HEAD)

Closed loop, one caller, fp16, 16 heads of 128. Clients in C++ are `attendant
bench`: cpp (a prepared call), cpp_out (Attend into the caller's memory), cpp_new
(each answer in memory of its own). In Python: python (native core, numpy, a
prepared call), python_out (attend, `out=` reused), python_new_array (each answer
in an array of its own), python_torch (torch tensors, `out=`), python_grpcio
(where grpcio is); on the door "ipc" all their tensors are torch's, in GPU memory.
plain_grpcio is no client of ours: a server and a client as one writes them in an
afternoon of Python (transport/python_grpcio_peer.py). One server for all others;
who comes first of C++'s, and of Python's after them, changes from round to round,
and a row's p50_ms is the median of its rounds' medians; outside_us is what of a
call was not the library's C++ client (by doors of one machine its copies count,
too).

Writes NAME.json and NAME.meta.json, which holds each door's distance to its bar:
15 % at 8192 tokens, 60 us at 128. What a client adds (added_us) is the median of
what it adds to `against` in the same round, since machines drift: small calls go
in three times as many rounds, of a third of the calls. `against` is the C++ client
that calls alike, by "ipc" always the prepared one (cpp_out's tensors are the
host's, and would be copied); added_to_prepared_us and held_to_prepared are the
same, always against cpp.

Without a GPU the CPU's time to compute hides what is looked for: --heads=256
--seqlens=8 moves the bytes of 128 tokens in a sixteenth of it.
"""

import argparse
import atexit
import collections
import datetime
import functools
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "transport"))
import processes  # noqa: E402

DOORS = ("unary", "stream", "striped", "shm", "ipc")
HEAD_DIM = 128
SPLIT = 3  # rounds of small calls, for one of large ones
CPP = {"cpp": "prepared", "cpp_out": "out", "cpp_new": "new"}  # bench --call
ALIKE = {"python_out": "cpp_out", "python_new_array": "cpp_new",
         "python_torch": "cpp_out", "python_grpcio": "cpp_out"}


def against(kind, door):
    """The C++ client that calls as `kind` does."""
    return "cpp" if door == "ipc" else ALIKE.get(kind, "cpp")


def histogram_median(buckets):
    """Of [upper edge in ms, count]: a bucket's values count as its middle.

    The p50_ms beside it is an edge: 2 to 4 us too much at a millisecond.
    """
    values = []
    for edge, count in buckets:
        width = 2 ** max(0, round(edge * 1e6).bit_length() - 8)  # ns
        values += [edge - (width - 1) / 2e6] * count
    return statistics.median(values)


def cpp_median(args, target, door, seqlen, calls, kind="cpp"):
    """Milliseconds, by the C++ client's own loop."""
    done = subprocess.run(
        [args.client, "bench", f"--server={target}", f"--door={door}",
         f"--shapes=s{seqlen}h{args.heads}d{HEAD_DIM}", "--dtype=fp16",
         f"--requests={calls}", f"--call={CPP[kind]}", "--warmup=3",
         "--json=-"], capture_output=True, text=True, check=True)
    return histogram_median(json.loads(done.stdout)["rows"][0]["histogram_ms"])


@functools.cache
def arrays(seqlen, heads):
    """Of q, k and v; nobody writes to them."""
    import numpy as np
    random = np.random.default_rng(0)
    shape = (1, seqlen, heads, HEAD_DIM)
    return [random.standard_normal(shape, np.float32).astype(np.float16)
            for _ in range(3)]


class PythonCaller:
    """The same loop in Python, by one kind of client."""

    def __init__(self, kind, target, door, seqlen, heads):
        import attendant
        import numpy as np
        core = "grpcio" if kind == "python_grpcio" else "native"
        self._client = attendant.Client(target, core=core, door=door)
        self.outside_us = []  # of each round: not in the library's client
        self._tensors = arrays(seqlen, heads)
        out = np.zeros_like(self._tensors[0])
        if kind == "python_torch" or door == "ipc":
            import torch
            device = "cuda" if door == "ipc" else "cpu"
            *self._tensors, out = (torch.from_numpy(x).to(device)
                                   for x in (*self._tensors, out))
        self._options = {"timeout": 120}
        if kind != "python_new_array":
            self._options["out"] = out
        self._attend = self._client.attend
        if kind == "python":
            del self._options["out"]
            self._attend = self._client.prepare(*self._tensors, out=out).attend
            self._tensors = []

    def median(self, calls):
        """Milliseconds; each call drops the answer before."""
        attend, options = self._attend, self._options
        tensors = self._tensors
        times, outside = [], []
        for call in range(calls + 3):
            begin = time.perf_counter_ns()
            result = attend(*tensors, **options)
            elapsed = time.perf_counter_ns() - begin
            if call >= 3:
                times.append(elapsed)
                if hasattr(result, "reply"):
                    outside.append(elapsed - result.reply.client_ns)
        if outside:
            self.outside_us.append(statistics.median(outside) / 1e3)
        return statistics.median(times) / 1e6

    def close(self):
        self._client.close()


@functools.cache
def plain_server():
    """The afternoon's server: it takes long to start."""
    peer = processes.python_peer("python_grpcio")
    atexit.register(peer.stop)
    return peer


class PlainGrpcio:
    """The afternoon's client."""

    outside_us = ()

    def __init__(self, seqlen, heads):
        self._shape = (1, seqlen, heads, HEAD_DIM, 0)

    def median(self, calls):
        """Milliseconds."""
        return plain_server().calls(self._shape, 1, calls)["p50_ms"]

    def close(self):
        """The server stays for the next."""


def callers_of(args, target, door, seqlen, missing):
    """Those that can be made; the others' reasons go into `missing`."""
    callers = {}
    for kind in args.kinds:
        if kind in ("python_grpcio", "plain_grpcio") and door != "unary":
            continue
        try:
            callers[kind] = (
                PlainGrpcio(seqlen, args.heads) if kind == "plain_grpcio" else
                PythonCaller(kind, target, door, seqlen, args.heads))
            callers[kind].median(1)
        except Exception as error:
            missing[f"{kind} {door}"] = str(error)[:200]
            callers.pop(kind, None)
    return callers


def measure(args, target, door, seqlen, missing):
    """Rows of one door and length; none for a door that is not there."""
    large = seqlen > 1000
    calls = args.calls if large else max(1, args.calls * 20 // SPLIT)
    rounds = args.rounds if large else args.rounds * SPLIT
    try:
        cpp_median(args, target, door, 8, 1)
    except subprocess.CalledProcessError as error:
        missing[door] = error.stderr.strip().splitlines()[-1][:200]
        return []
    callers = callers_of(args, target, door, seqlen, missing)
    wanted = {"cpp", *(against(kind, door) for kind in callers)}
    cpp = [kind for kind in CPP if kind in wanted]
    medians = {kind: [] for kind in (*cpp, *callers)}
    turns = [collections.deque(kinds) for kinds in (cpp, callers)]
    for _ in range(rounds):
        for kind in (*turns[0], *turns[1]):
            medians[kind].append(
                callers[kind].median(calls) if kind in callers else
                cpp_median(args, target, door, seqlen, calls, kind))
        for kinds in turns:
            kinds.rotate(-1)  # nobody is always the last
    rows = [{"door": door, "client": client, "seqlen": seqlen,
             "num_heads": args.heads,
             "p50_ms": round(statistics.median(values), 4),
             "rounds_ms": [round(value, 4) for value in values],
             "calls": calls, "commit": args.commit}
            for client, values in medians.items()]
    for row in rows[len(cpp):]:
        caller = callers[row["client"]]
        caller.close()
        if caller.outside_us:
            row["outside_us"] = round(statistics.median(caller.outside_us), 1)
    return rows


def added(row, cpp):
    """What `row` adds to `cpp` by rounds, the median, and what it may add."""
    rounds = [(mine - its) * 1e3 for mine, its in
              zip(row["rounds_ms"], cpp["rounds_ms"])]
    bar_us = 60 if row["seqlen"] <= 1000 else 0.15 * cpp["p50_ms"] * 1e3
    return rounds, statistics.median(rounds), bar_us


def bars(rows):
    """Per door and length: what Python adds, and what it may add."""
    found = []
    at = {(row["door"], row["seqlen"], row["client"]): row for row in rows}
    for (door, seqlen, client), row in at.items():
        if client in CPP or client == "plain_grpcio":
            continue
        alike = against(client, door)
        rounds, added_us, bar_us = added(row, at[door, seqlen, alike])
        _, more_us, most_us = added(row, at[door, seqlen, "cpp"])
        found.append({"door": door, "client": client, "seqlen": seqlen,
                      "against": alike, "added_us": round(added_us, 1),
                      "rounds_us": [round(value, 1) for value in rounds],
                      "bar_us": round(bar_us, 1), "held": added_us <= bar_us,
                      "added_to_prepared_us": round(more_us, 1),
                      "held_to_prepared": more_us <= most_us})
    return found


def machine():
    """What the numbers were measured on."""
    lines = {"platform": platform.platform(),
             "python": platform.python_version()}
    model = [line.split(":")[1].strip() for line in
             pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    lines["cpu"] = f"{model[0]}, {len(model)} cores"
    try:
        lines["gpu"] = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version",
             "--format=csv,noheader"], capture_output=True, text=True,
            check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        lines["gpu"] = "none"
    return lines


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--server", help="default: the build's")
    parser.add_argument("--client", help="default: the build's")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--name", default="python")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--seqlens", default="128,8192")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=15)
    parser.add_argument("--kinds", default="python,python_out,python_new_array,"
                        "python_torch,python_grpcio,plain_grpcio")
    args = parser.parse_args()
    args.server = args.server or args.build / "server" / "attendant-server"
    args.client = args.client or args.build / "client" / "cpp" / "attendant"
    args.kinds = args.kinds.split(",")
    return args


def write(args, backend, rows, missing):
    """What there is so far: a run that is cut off leaves it."""
    args.out.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows)
    (args.out / f"{args.name}.json").write_text(f"[\n{lines}\n]\n")
    meta = {"machine": machine(), "backend": backend, "commit": args.commit,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "command": " ".join(map(str, sys.argv)), "bars": bars(rows),
            "missing": missing}
    (args.out / f"{args.name}.meta.json").write_text(
        json.dumps(meta, indent=1) + "\n")


def main():
    args = arguments()
    rows, missing = [], {}
    with tempfile.TemporaryDirectory() as folder, processes.AttendantServer(
            args.server, "--host_pool_bytes=1G", "--regions=cuda_ipc",
            f"--region_socket={folder}/regions") as server:
        for door in args.doors.split(","):
            for seqlen in map(int, args.seqlens.split(",")):
                rows += measure(args, server.target, door, seqlen, missing)
                write(args, server.backend, rows, missing)
    for row in bars(rows):
        print("{door:8} s{seqlen:<5} {client:17} adds {added_us:9.1f} us to "
              "{against:8} bar {bar_us:9.1f}: {word}; to cpp "
              "{added_to_prepared_us:9.1f}".format(
                  word="held" if row["held"] else "missed", **row))


if __name__ == "__main__":
    main()
