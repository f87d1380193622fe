"""Spans reach a collector, and a slow collector costs nobody anything.

otlp_test.py ATTENDANT_SERVER ATTENDANT: the real server traces every call and
tells this program, which is the collector. No network beyond loopback.
"""

import contextlib
import http.server
import json
import re
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

READY = re.compile(r" ready: grpc=([^ ,]+) http=([^ ]+) ")
CALL = "attendant.v1.AttentionService/Attend"
STAGES = {"receive", "queue", "kernel", "send"}  # of the CPU backend
SPANS = re.compile(r'^attendant_trace_spans_total\{result="(\w+)"\} (\d+)$', re.M)


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the spans that come; answers once `free` is set."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.free = threading.Event()
        self.requests = []


class Handler(http.server.BaseHTTPRequestHandler):
    """POST /v1/traces."""

    def do_POST(self):  # pylint: disable=invalid-name
        """One batch."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(
            (self.path, self.headers["Content-Type"], json.loads(body))
        )
        self.server.free.wait(60)
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    def log_message(self, *_):
        """Silent."""


class OtlpTest(unittest.TestCase):
    """--otlp_endpoint and --trace_share."""

    server, attendant = sys.argv[1:3]

    def setUp(self):
        self.collector = Collector()
        self.addCleanup(self.collector.server_close)
        threading.Thread(target=self.collector.serve_forever, daemon=True).start()
        self.addCleanup(self.collector.shutdown)
        self.addCleanup(self.collector.free.set)
        port = self.collector.server_address[1]
        command = [
            self.server,
            "--backend=cpu",
            "--listen=127.0.0.1:0",
            "--http=127.0.0.1:0",
            "--host_pool_bytes=64M",
            "--lame_duck_seconds=0",
            "--log_level=error",
            "--trace_share=1",
            f"--otlp_endpoint=http://127.0.0.1:{port}",
        ]
        self.process = self.enterContext(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        )
        self.addCleanup(self.process.terminate)
        found = READY.search(self.process.stdout.readline())
        self.grpc, self.http = found.groups()

    def bench(self, calls):
        """So many small calls, all answered; the seconds they took."""
        begin = time.monotonic()
        done = subprocess.run(
            [
                self.attendant,
                "bench",
                f"--server={self.grpc}",
                "--shapes=s16h1d16",
                "--dtype=fp32",
                f"--requests={calls}",
                "--warmup=0",
                "--json=-",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return time.monotonic() - begin

    def counts(self):
        """attendant_trace_spans_total by result."""
        with urllib.request.urlopen(f"http://{self.http}/metrics") as reply:
            return {k: int(v) for k, v in SPANS.findall(reply.read().decode())}

    def stop(self):
        """Ends the server; it sends what is queued."""
        self.process.terminate()
        self.assertEqual(self.process.wait(60), 0)

    def test_every_call_comes_with_its_stages(self):
        self.collector.free.set()
        self.bench(5)
        self.stop()
        spans = []
        for path, kind, body in self.collector.requests:
            self.assertEqual((path, kind), ("/v1/traces", "application/json"))
            resource = body["resourceSpans"][0]
            names = {a["key"] for a in resource["resource"]["attributes"]}
            self.assertIn("service.name", names)
            spans += resource["scopeSpans"][0]["spans"]
        calls = {s["spanId"]: s for s in spans if s["name"] == CALL}
        self.assertGreaterEqual(len(calls), 5)
        for span_id, call in calls.items():
            stages = {s["name"]: s for s in spans if s.get("parentSpanId") == span_id}
            self.assertEqual(set(stages), STAGES)
            for stage in stages.values():
                self.assertEqual(stage["traceId"], call["traceId"])
                begin, end = (
                    int(stage[k]) for k in ("startTimeUnixNano", "endTimeUnixNano")
                )
                self.assertLessEqual(begin, end)
                # Clocks are read apart, by microseconds.
                self.assertGreater(begin, int(call["startTimeUnixNano"]) - 10**6)
                self.assertLess(end, int(call["endTimeUnixNano"]) + 10**6)
            self.assertLess(abs(time.time() - int(call["endTimeUnixNano"]) / 1e9), 600)

    def test_a_stuck_collector_drops_spans_and_no_calls(self):
        self.bench(3000)
        counts = self.counts()
        self.assertGreater(counts["dropped"], 0)
        self.assertLessEqual(counts["exported"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
