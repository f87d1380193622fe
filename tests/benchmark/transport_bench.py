#!/usr/bin/env python3
"""Every road from a caller to the server, and what others use, in one run.

    python3 tests/benchmark/transport_bench.py --build build \\
        --out tests/benchmark/results --name transport_h200 --commit $(git
        rev-parse --short HEAD)

--sections chooses (default: all); each says its time:
    large      the large call, alone, by every door and by every peer
    sustained  8 connections, many large calls in flight
    small      s128 h16 d128
    smallest   s1 h1 d64, and its floors: gRPC's empty call, launch and copy
               (small and smallest go turn by turn: a row's figures are medians
               of its rounds', rounds_ms each round's p50, and the ratio to the
               floor the median of the rounds' ratios)
    idle       how idle the GPU is between queued requests of 100 MB
    memory     resident memory after 2,000 and 10,000 requests of 1 to 96 MB
    attack     resident memory while clients push more than is allowed

--tiny: small sizes and counts, for a test of this script. Writes NAME.json, one
object a row, and NAME.meta.json. A door or peer that is not there is a line in
the meta file's "missing". Peers and floors: transport/README.md.
"""

import argparse
import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "transport"))
import processes  # noqa: E402
import turns  # noqa: E402

DOORS = ("unary", "stream", "striped", "shm", "ipc")
KEPT = ("layout", "batch", "seqlen", "num_heads", "head_dim", "connections",
        "concurrency", "p50_ms", "p99_ms", "gbps", "answered", "failed",
        "rounds_ms", "stages", "kernel")


class Sizes:
    """What --tiny makes small."""

    def __init__(self, tiny):
        self.large = 256 if tiny else 8192
        self.small = 32 if tiny else 128
        self.heads = 2 if tiny else 16
        self.calls = 3 if tiny else 15
        self.rounds = 2 if tiny else 9
        self.small_calls = 10 if tiny else 45  # a round
        self.smallest_calls = 10 if tiny else 225
        self.seconds = 0.3 if tiny else 1.5
        self.memory_calls = (20, 80) if tiny else (2000, 8000)
        self.settle_seconds = 1 if tiny else 30
        self.attack_bytes = (1 << 20) if tiny else (200 << 20)
        self.attack_limit = "64K" if tiny else "4M"
        self.pool = "256M" if tiny else "4G"
        self.regions = "256M" if tiny else "16G"
        self.most_mb = 2 if tiny else 96

    def shape(self, seqlen):
        return f"s{seqlen}h{self.heads}d128"

    def mix(self):
        """16 shapes, a geometric series of 1 MB to most_mb MB of input."""
        bytes_a_row = 3 * self.heads * 128 * 2
        return ",".join(
            self.shape(round(1e6 * self.most_mb ** (i / 15) / bytes_a_row))
            for i in range(16))


class Bench:
    """The run: its servers, its rows, what is missing."""

    def __init__(self, args, stack):
        self.args, self.stack, self.sizes = args, stack, Sizes(args.tiny)
        build = pathlib.Path(args.build)
        self.server_binary = str(build / args.server)
        self.client = str(build / args.client)
        self.floors_binary = str(build / args.floors)
        self.rows, self.missing, self.findings = [], {}, {}
        self.server = self.start_server()
        self.plain = self.start("plain_protobuf", lambda: processes.Process(
            [str(build / args.plain)], r"ready (\S+)"))
        self.flight = self.start(
            "flight", lambda: processes.Peer(str(build / args.flight)))
        self.flight_python = self.start(
            "flight_pyarrow", lambda: processes.python_peer("flight"))
        self.python = self.start(
            "python_grpcio", lambda: processes.python_peer("python_grpcio"))

    def start_server(self, *flags):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        usual = (f"--host_pool_bytes={self.sizes.pool}",
                 f"--max_queued_bytes={self.sizes.pool}",
                 f"--region_bytes={self.sizes.regions}",
                 f"--region_socket={folder}/regions",
                 "--regions=buffers,cuda_ipc")
        return self.stack.enter_context(processes.AttendantServer(
            self.server_binary, f"--backend={self.args.backend}",
            *(flags or usual)))

    def start(self, door, make):
        try:
            return self.stack.enter_context(make())
        except (RuntimeError, OSError) as error:
            self.missing[door] = str(error)
            return None

    def add(self, section, door, row):
        kept = {"section": section, "door": door}
        kept.update((key, row[key]) for key in KEPT if key in row)
        kept["commit"] = self.args.commit
        self.rows.append(kept)
        print(f"{section:10} {door:15} {row.get('layout', ''):5} "
              f"x{row.get('connections', 1):<2} p50 {row['p50_ms']:9.3f} ms  "
              f"p99 {row['p99_ms']:9.3f} ms  {row['gbps']:7.3f} GB/s",
              flush=True)

    def measure(self, door, seqlen, server=None, name=None, **flags):
        """A door's row, of ours or a server that speaks our protocol; or None.
        """
        flags = {"shapes": self.sizes.shape(seqlen), "causal": True, **flags}
        server = server or self.server
        got = processes.bench(self.client, server.target, door=door, **flags)
        if isinstance(got, str):
            self.missing[name or door] = got.splitlines()[0]
            return None
        return got[0]

    def door(self, section, door, seqlen, server=None, name=None, **flags):
        row = self.measure(door, seqlen, server, name, **flags)
        if row is not None:
            self.add(section, name or door, row)
        return row

    def measure_peer(self, door, server, seqlen, streams, calls):
        shape = (1, seqlen, self.sizes.heads, 128, 1)
        try:
            row = server.calls(shape, streams, calls)
        except subprocess.SubprocessError as error:
            self.missing[door] = str(error)
            return None
        row.update(layout="BSHD", batch=1, seqlen=seqlen,
                   num_heads=self.sizes.heads, head_dim=128)
        return row

    def peer(self, section, door, server, seqlen, streams, calls):
        if server is None:
            return
        row = self.measure_peer(door, server, seqlen, streams, calls)
        if row is not None:
            self.add(section, door, row)

    def plain_door(self, section, seqlen, **flags):
        if self.plain is not None:
            self.door(section, "unary", seqlen, self.plain, "plain_protobuf",
                      **flags)

    def large(self):
        size, calls = self.sizes.large, self.sizes.calls
        for door in DOORS:
            connections = 8 if door == "striped" else 1
            for layout in ("bshd", "bhsd"):
                self.door("large", door, size, requests=calls, layout=layout,
                          connections=connections, verify=True)
        self.plain_door("large", size, requests=max(3, calls // 3))
        self.peer("large", "flight", self.flight, size, 1, calls)
        self.peer("large", "flight_pyarrow", self.flight_python, size, 1, calls)
        self.peer("large", "python_grpcio", self.python, size, 1,
                  max(3, calls // 3))

    def sustained(self):
        size, seconds = self.sizes.large, self.sizes.seconds
        for door in DOORS:
            self.door("sustained", door, size, seconds=seconds, connections=8,
                      concurrency=16)
        self.peer("sustained", "flight", self.flight, size, 8,
                  self.sizes.calls)
        self.peer("sustained", "flight_pyarrow", self.flight_python, size, 8,
                  self.sizes.calls)
        self.plain_door("sustained", size, seconds=seconds, connections=8,
                        concurrency=16)

    def add_turns(self, section, found):
        for name, rows in found.items():
            self.add(section, name, turns.merged(list(rows.values())))

    def our_turns(self, seqlen, **flags):
        """Every door and the ordinary server, for turns()."""
        doors = {door: (door, self.server) for door in DOORS}
        if self.plain is not None:
            doors["plain_protobuf"] = ("unary", self.plain)
        return {name: (functools.partial(self.measure, door, seqlen, server,
                                         name, **flags), 1)
                for name, (door, server) in doors.items()}

    def small(self):
        size, calls = self.sizes.small, self.sizes.small_calls
        callers = self.our_turns(size, requests=calls, warmup=20)
        # Each turn of a Python peer starts Python: a second.
        for name, server, every in (("flight", self.flight, 1),
                                    ("flight_pyarrow", self.flight_python, 3),
                                    ("python_grpcio", self.python, 3)):
            if server is not None:
                callers[name] = (functools.partial(
                    self.measure_peer, name, server, size, 1, calls), every)
        self.add_turns("small", turns.by_turns(callers, self.sizes.rounds))

    def smallest(self):
        calls = self.sizes.smallest_calls
        callers = self.our_turns(1, requests=calls, warmup=50, shapes="s1h1d64")
        callers["floors"] = (functools.partial(self.floors, calls), 1)
        found = turns.by_turns(callers, self.sizes.rounds)
        floors = found.pop("floors")
        for name in floors[0]:
            found[name] = {turn: rows[name] for turn, rows in floors.items()}
        self.add_turns("smallest", found)
        self.findings["smallest"] = self.smallest_ratio(found)

    def floors(self, calls):
        done = subprocess.run([self.floors_binary, str(calls)], check=True,
                              capture_output=True, text=True)
        return {name: {"connections": 1, "gbps": 0.0, **row}
                for name, row in json.loads(done.stdout).items()}

    def smallest_ratio(self, found):
        floors = [found[name] for name in ("empty_call_tcp", "launch_and_copy")
                  if name in found]
        found_ms = sum(turns.merged(list(rows.values()))["p50_ms"]
                       for rows in floors)
        return {"floor_ms": found_ms, "bar": 1.3,
                "ratio": turns.ratio(found["unary"], floors)
                if "unary" in found else None}

    def idle(self):
        """Idle: not even the busiest of upload, kernel and download works.

        A launch that several requests shared is in each one's kernel time.
        """
        for door in ("unary", "shm"):
            row = self.door("idle", door, self.sizes.large,
                            seconds=self.sizes.seconds, connections=8,
                            concurrency=8)
            if row is None:
                continue
            busy = {stage: row["stages"][stage]["busy_share"]
                    for stage in ("upload", "kernel", "download")}
            busy["kernel"] /= max(1, row["mean_batch_requests"])
            self.findings[f"idle_{door}"] = {
                "idle_share": max(0.0, 1 - max(busy.values())),
                "busy_shares": busy, "bar": 0.05}

    def memory(self):
        """Returns what is to be called 30 s later, other sections between."""
        server = self.start_server()
        start = server.status_bytes("VmRSS")
        found = {"start_bytes": start, "door": "unary",
                 "bar_drift": 0.02, "bar_growth_bytes": 64 << 20}
        with processes.MemoryWatch(server) as watch:
            for count, name in zip(self.sizes.memory_calls,
                                   ("after_2000_bytes", "after_10000_bytes")):
                row = self.door("memory", found["door"], 0, server,
                                shapes=self.sizes.mix(), mix=True,
                                requests=count, connections=8, concurrency=8)
                found[name] = watch.median_of_last(0.5)
                if row is None:
                    raise RuntimeError(f"memory: {self.missing}")
                found[name.replace("bytes", "failed")] = row["failed"]
            found["peak_bytes"] = watch.peak()
        found["drift"] = (found["after_10000_bytes"]
                          / found["after_2000_bytes"] - 1)
        self.findings["memory"] = found
        ended = time.monotonic()

        def settle():
            wait = self.sizes.settle_seconds - (time.monotonic() - ended)
            time.sleep(max(0.0, wait))
            found["settled_bytes"] = server.status_bytes("VmRSS")
            found["settled_seconds"] = time.monotonic() - ended
            found["host_pool_bytes"] = server.metrics().get(
                "attendant_host_pool_capacity_bytes")
            found["growth_bytes"] = found["settled_bytes"] - start

        return settle

    def attack(self):
        limit = self.sizes.attack_limit
        for kind in ("unary", "stream"):
            server = self.start_server(
                f"--max_request_bytes={limit}", "--host_pool_bytes=256M",
                "--max_queued_bytes=256M", "--max_uploads=16")
            found = {"bound_bytes": server.bound_bytes,
                     "start_bytes": server.status_bytes("VmRSS")}
            with processes.MemoryWatch(server) as watch:
                attackers = subprocess.Popen(
                    [sys.executable, str(processes.HERE / "attack.py"),
                     server.target, kind, "20", str(self.sizes.attack_bytes)],
                    stdout=subprocess.PIPE, text=True)
                row = self.door("attack", "unary", self.sizes.small, server,
                                seconds=2, max_attempts=5,
                                name=f"unary_beside_{kind}")
                found["codes"] = json.loads(attackers.communicate()[0])
                found["peak_bytes"] = watch.peak()
            found["served_meanwhile"] = row["answered"] if row else 0
            found["under_bound"] = found["peak_bytes"] <= server.bound_bytes
            self.findings[f"attack_{kind}"] = found
            server.stop()


def machine():
    facts = {"cpu": processes.cpu_model()}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        facts["gpu"] = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version",
             "--format=csv,noheader"], check=True, capture_output=True,
            text=True).stdout.strip()
    for module in ("pyarrow", "grpc", "torch"):
        with contextlib.suppress(ImportError):
            facts[module] = __import__(module).__version__
    return facts


def write(bench, seconds):
    out = pathlib.Path(bench.args.out)
    lines = ",\n".join(json.dumps(row) for row in bench.rows)
    (out / f"{bench.args.name}.json").write_text(f"[\n{lines}\n]\n")
    meta = {"machine": machine(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": "python3 transport_bench.py " + " ".join(sys.argv[1:]),
            "commit": bench.args.commit, "backend": bench.server.backend,
            "seconds": seconds, "findings": bench.findings,
            "missing": bench.missing}
    (out / f"{bench.args.name}.meta.json").write_text(
        json.dumps(meta, indent=1) + "\n")
    print(json.dumps({"findings": bench.findings, "missing": bench.missing},
                     indent=1))


SECTIONS = ("memory", "large", "sustained", "small", "smallest", "idle",
            "attack")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.
                                     RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--server", default="server/attendant-server")
    parser.add_argument("--client", default="client/cpp/attendant")
    transport = "tests/benchmark/transport/"
    parser.add_argument("--plain", default=transport + "plain_protobuf_server")
    parser.add_argument("--floors", default=transport + "transport_floors")
    parser.add_argument("--flight", default=transport + "transport_flight_peer")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--out", default=".")
    parser.add_argument("--name", default="transport")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    seconds, begin = {}, time.monotonic()
    with contextlib.ExitStack() as stack:
        bench = Bench(args, stack)
        seconds["start"] = time.monotonic() - begin
        later = []
        for section in args.sections.split(","):
            begin = time.monotonic()
            settle = getattr(bench, section)()
            if settle is not None:
                later.append(threading.Thread(target=settle))
                later[-1].start()
            seconds[section] = time.monotonic() - begin
            write(bench, seconds)
        for thread in later:
            thread.join()
        write(bench, seconds)


if __name__ == "__main__":
    main()
