"""What the Python peers share: their command line and how calls are timed.

    PEER.py serve                              prints "ready HOST:PORT"
    PEER.py call HOST:PORT B S H D CAUSAL STREAMS CALLS
        STREAMS client processes with one connection each make CALLS calls each,
        one after the other, started together; prints one JSON object
"""

import json
import multiprocessing
import os
import sys
import time
from typing import NamedTuple

ELEMENT_BYTES = 2  # fp16


class Shape(NamedTuple):
    """Of q, k, v and the output alike, BSHD."""

    batch: int
    seqlen: int
    heads: int
    head_dim: int
    causal: int

    def tensor_bytes(self):
        return (self.batch * self.seqlen * self.heads * self.head_dim
                * ELEMENT_BYTES)


def quantile(times, share):
    """Of a list, by the same rule as attendant bench."""
    ordered = sorted(times)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def report(times_s, wall_s, shape, streams):
    """The keys of a row of attendant bench."""
    moved = 4 * shape.tensor_bytes() * len(times_s)
    return {"p50_ms": quantile(times_s, 0.5) * 1e3,
            "p99_ms": quantile(times_s, 0.99) * 1e3,
            "mean_ms": sum(times_s) / len(times_s) * 1e3,
            "gbps": moved / wall_s * 1e-9,
            "answered": len(times_s),
            "connections": streams,
            "concurrency": streams}


def _client(make_call, target, shape, calls, barrier, results):
    call = make_call(target, shape)
    for _ in range(2):
        call()
    barrier.wait()
    times = []
    begin = time.monotonic()
    for _ in range(calls):
        start = time.monotonic()
        call()
        times.append(time.monotonic() - start)
    results.put((times, begin, time.monotonic()))


def run_clients(make_call, target, shape, streams, calls):
    """`make_call(target, shape)` runs in each client's own process."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(streams), context.Queue()
    clients = [context.Process(target=_client, daemon=True,
                               args=(make_call, target, shape, calls, barrier,
                                     results))
               for _ in range(streams)]
    for client in clients:
        client.start()
    collected = [results.get(timeout=300) for _ in clients]
    for client in clients:
        client.join()
    times = [one for times, _, _ in collected for one in times]
    wall = max(end for _, _, end in collected) - min(
        begin for _, begin, _ in collected)
    return report(times, wall, shape, streams)


def main(serve, make_call):
    """Runs a peer's command line."""
    if sys.argv[1:2] == ["serve"]:
        serve(lambda port: print(f"ready 127.0.0.1:{port}", flush=True))
        return
    if sys.argv[1:2] != ["call"] or len(sys.argv) != 10:
        sys.exit(__doc__)
    target = sys.argv[2]
    *shape, streams, calls = map(int, sys.argv[3:])
    print(json.dumps(run_clients(make_call, target, Shape(*shape), streams,
                                 calls)))
    sys.stdout.flush()
    os._exit(0)  # some client libraries never join their threads
