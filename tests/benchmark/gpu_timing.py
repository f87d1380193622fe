"""Device time of functions that enqueue GPU work, side by side.

Every timed call is queued behind a spin kernel, so that the events enclose
device work alone; the functions take turns, so that clocks and heat are
shared; medians. `call` is the time between events on an idle GPU, which
includes the host's part.
"""

import datetime
import functools
import os
import statistics
import subprocess
import sys
import threading
import time

import torch


def _events():
    return (torch.cuda.Event(enable_timing=True),
            torch.cuda.Event(enable_timing=True))


class Timing:
    """Milliseconds of one function."""

    def __init__(self):
        self.device = []
        self.call = []

    def ms(self):
        return statistics.median(self.device)

    def call_ms(self):
        return statistics.median(self.call) if self.call else None


def interleaved(functions, reps=30, warm=3, spin=400_000, call_reps=8):
    """Times {name: function}; returns {name: Timing}."""
    for function in functions.values():
        for _ in range(warm):
            function()
    torch.cuda.synchronize()
    timings = {name: Timing() for name in functions}
    for rep in range(reps):
        for name, function in functions.items():
            begin, end = _events()
            torch.cuda._sleep(spin)
            begin.record()
            function()
            end.record()
            end.synchronize()
            timings[name].device.append(begin.elapsed_time(end))
            if rep < call_reps:
                begin, end = _events()
                begin.record()
                function()
                end.record()
                end.synchronize()
                timings[name].call.append(begin.elapsed_time(end))
    return timings


def paired_ratio(peer, ours):
    """Median over the turns of peer time / our time: above 1, ours is faster."""
    return statistics.median(p / o for p, o in zip(peer.device, ours.device))


def difference(a, b):
    """(largest |a - b|, largest |a - b| beyond 1/64 of |b|): two roundings to
    bf16 of large values differ by that much. NaN if either holds one."""
    b = b.float()
    absolute = (a.float() - b).abs()
    return absolute.max().item(), (absolute - b.abs() / 64).max().item()


class ClockLog:
    """SM clock (MHz) and power (W) while it runs, twice a second."""

    def __init__(self):
        self.samples = []  # (time, clock, power)
        self._process = None
        try:
            self._process = subprocess.Popen(
                ["nvidia-smi", "-i", "0",
                 "--query-gpu=clocks.sm,power.draw",
                 "--format=csv,noheader,nounits", "-lms", "500"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            try:
                clock, power = (float(x) for x in line.split(","))
            except ValueError:
                continue
            self.samples.append((time.monotonic(), clock, power))

    def since(self, begin):
        """Medians since time.monotonic() was `begin`, or None each."""
        recent = [s for s in self.samples if s[0] >= begin] or self.samples[-1:]
        if not recent:
            return {"sm_clock_mhz": None, "power_w": None}
        return {"sm_clock_mhz": statistics.median(s[1] for s in recent),
                "power_w": statistics.median(s[2] for s in recent)}

    def close(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


@functools.cache
def commit():
    """The commit that ATTENDANT_COMMIT or git names."""
    if os.environ.get("ATTENDANT_COMMIT"):
        return os.environ["ATTENDANT_COMMIT"]
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"],
                              cwd=os.path.dirname(os.path.abspath(__file__)),
                              capture_output=True, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine():
    """What the numbers were measured on, and how."""
    properties = torch.cuda.get_device_properties(0)
    driver = ""
    try:
        driver = subprocess.run(
            ["nvidia-smi", "-i", "0", "--query-gpu=driver_version,power.limit,"
             "clocks.max.sm", "--format=csv,noheader"],
            capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return {
        "machine": torch.cuda.get_device_name(0),
        "multiprocessors": properties.multi_processor_count,
        "driver, power limit, maximal SM clock": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime(
            "%Y-%m-%dT%H:%M:%SZ"),
        # Files by their names: the folders are one machine's own.
        "command": " ".join(["python3"] + [os.path.basename(a) if "/" in a
                                           else a for a in sys.argv]),
        "commit": commit(),
    }
