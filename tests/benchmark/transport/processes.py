"""The processes that transport_bench.py measures: servers, clients, peers."""

import json
import os
import pathlib
import re
import select
import subprocess
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent


def wait_for_line(process, pattern, seconds):
    """The match of `pattern` in the process's output."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        readable, _, _ = select.select([process.stdout], [], [], 1)
        if not readable:
            continue
        line = process.stdout.readline()
        if not line:
            break
        found = re.search(pattern, line)
        if found:
            return found
    raise RuntimeError(f"{process.args[:2]} did not get ready: "
                       f"exit code {process.poll()}")


class Process:
    """A server of its own, ended with the object's `with` block."""

    def __init__(self, command, pattern, seconds=90):
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                         text=True)
        try:
            self.ready = wait_for_line(self._process, pattern, seconds)
        except RuntimeError:
            self._process.kill()
            raise
        self.target = self.ready[1]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()

    def stop(self):
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.stdout.close()

    def status_bytes(self, key):
        """VmRSS or VmHWM of the process."""
        path = pathlib.Path(f"/proc/{self._process.pid}/status")
        found = re.search(rf"{key}:\s+(\d+) kB", path.read_text())
        return int(found[1]) * 1024


class AttendantServer(Process):
    """attendant-server on free ports."""

    def __init__(self, binary, *flags):
        super().__init__(
            [binary, "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
             "--lame_duck_seconds=0", *flags],
            r" ready: grpc=([^ ,]+) http=(\S+) backend=(\w+).*"
            r"host memory bound ([\d.]+) GiB")
        self.http = self.ready[2]
        self.backend = self.ready[3]
        self.bound_bytes = int(float(self.ready[4]) * 2**30)

    def metrics(self):
        """Samples by their name with labels."""
        with urllib.request.urlopen(f"http://{self.http}/metrics",
                                    timeout=10) as reply:
            text = reply.read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if not line.startswith("#")}


class Peer(Process):
    """A peer that has the command line of peer.py."""

    def __init__(self, *command):
        super().__init__([*command, "serve"], r"ready (\S+)")
        self._command = command

    def calls(self, shape, streams, calls):
        """A row; `shape` is (b, s, h, d, causal)."""
        done = subprocess.run(
            [*self._command, "call", self.target,
             *map(str, (*shape, streams, calls))],
            check=True, capture_output=True, text=True, timeout=300)
        return json.loads(done.stdout)


def python_peer(name):
    """One of the Python peers of this folder."""
    return Peer(sys.executable, str(HERE / f"{name}_peer.py"))


def bench(client, target, **flags):
    """Rows of `attendant bench`; an error text instead, if it ended with one.

    Underscores in names stand for dashes, True for a switch.
    """
    command = [client, "bench", f"--server={target}", "--json=-"]
    for name, value in flags.items():
        name = name.replace("_", "-")
        command.append(f"--{name}" if value is True else f"--{name}={value}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=500,
                          check=False)
    if done.returncode > 1 or not done.stdout:
        return done.stderr.strip() or f"exit code {done.returncode}"
    return json.loads(done.stdout)["rows"]


class MemoryWatch:
    """Resident bytes of a process over time, twenty samples a second."""

    def __init__(self, process):
        self.samples = []
        self._process = process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.05):
            self.samples.append((time.monotonic(),
                                 self._process.status_bytes("VmRSS")))

    def median_of_last(self, seconds):
        now = time.monotonic()
        recent = sorted(size for when, size in self.samples
                        if when > now - seconds)
        return recent[len(recent) // 2] if recent else 0

    def peak(self):
        return max((size for _, size in self.samples), default=0)


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{os.cpu_count()} cores"
