#!/usr/bin/env python3
"""What HAProxy and TLS before a server cost: ways in, turn by turn.

    python3 tests/benchmark/proxy_bench.py --build build \\
        --out tests/benchmark/results --name haproxy_2cores --commit $(git
        rev-parse --short HEAD)

Ways: direct; direct_tls (the server's own TLS); proxy_plain (h2 without TLS to
HAProxy); proxy_tls (deploy/haproxy/haproxy.cfg as it is, but for its ports). By
unary and stream, one caller, tensors with next to no work in them (one row and
one key a sequence), so that transport is all there is to see; and the smallest
call. Rounds alternate; a row is the median of its rounds' medians. Writes
NAME.json and NAME.meta.json.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/deploy"))
import haproxy_setup  # noqa: E402

# 16 MiB each of q, k, v and O; and the smallest call.
SHAPES = {"large": "b4096s1h16d128", "small": "s16h1d16"}


def measure(attendant, target, flags, door, shape, requests):
    """A row of `attendant bench`."""
    done = subprocess.run(
        [attendant, "bench", f"--server={target}", *flags, f"--door={door}",
         f"--shapes={shape}", f"--requests={requests}", "--warmup=2", "--json=-"],
        capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["rows"][0]


def summary(way, door, size, rounds):
    """One row of the result."""
    return {"way": way, "door": door, "size": size, "shape": SHAPES[size],
            "p50_ms": round(statistics.median(r["p50_ms"] for r in rounds), 4),
            "p50_ms_rounds": [round(r["p50_ms"], 4) for r in rounds],
            "gbytes_per_second": round(
                statistics.median(r["gbps"] for r in rounds), 4)}


def main():
    """Measures all and writes both files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default="tests/benchmark/results")
    parser.add_argument("--name", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    server = f"{options.build}/server/attendant-server"
    attendant = f"{options.build}/client/cpp/attendant"
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tls = haproxy_setup.make_certificate(work)
        plain = stack.enter_context(haproxy_setup.server(server))
        secure = stack.enter_context(haproxy_setup.server(
            server, f"--tls_cert={tls.certificate}", f"--tls_key={tls.key}"))
        proxy = stack.enter_context(haproxy_setup.proxy(work, tls, [plain]))
        secret = ["--tls", f"--ca={tls.certificate}", "--server-name=localhost"]
        ways = {"direct": (plain.grpc, []), "direct_tls": (secure.grpc, secret),
                "proxy_plain": (proxy.plain, []), "proxy_tls": (proxy.tls, secret)}
        rows = []
        for size, requests in (("large", 6), ("small", 200)):
            for door in ("unary", "stream"):
                rounds = {way: [] for way in ways}
                for _ in range(options.rounds):
                    for way, (target, flags) in ways.items():
                        rounds[way].append(measure(attendant, target, flags, door,
                                                   SHAPES[size], requests))
                rows += [summary(w, door, size, r) for w, r in rounds.items()]
    meta = {"date": datetime.date.today().isoformat(), "commit": options.commit,
            "command": "python3 " + " ".join(sys.argv),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "haproxy": haproxy_setup.version(),
            "load_average": [round(load, 1) for load in os.getloadavg()],
            "note": "client, proxy and server share the cores; GB/s is bytes in "
                    "plus bytes out over wall time"}
    out = pathlib.Path(options.out)
    (out / f"{options.name}.json").write_text(
        "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    (out / f"{options.name}.meta.json").write_text(json.dumps(meta, indent=1) + "\n")


if __name__ == "__main__":
    main()
