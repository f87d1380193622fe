"""Builds the container image, runs it without privileges, calls it from outside.

container_test.py [ATTENDANT] [--cuda] [--cache DIR] [--results FILE]: buildah
builds deploy/container on a base that mmdebstrap makes, runc runs it with a
read-only root, no capabilities and user 1000; ATTENDANT and Prometheus' promtool
talk to it. No daemon. Needs root; without the tools the exit code is 77, for
"skipped". --cache: a compiler cache, for developing. --results: a JSON file, in
which --commit (or git) says what was built.

--root BUILD|ARCHIVE takes the root that collect.sh makes of a build, or an archive of
one, instead of building the image; then ATTENDANT may be left out: the image's own
command is run, by its own loader. --gpu mounts this machine's driver and devices in,
as NVIDIA's container toolkit does, and wants answers of a GPU. --runtime=chroot: where
runc cannot run, system calls make the same confinement.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import time
import unittest
import urllib.request

from container_image import ROOT, BuiltImage, GivenRoot, run
from container_runtime import Chroot, Runc, driver_libraries, gpu_devices

MOST_BYTES = {False: 60_000_000, True: 120_000_000}  # by CUDA


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attendant", nargs="?")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--cache")
    parser.add_argument("--results")
    parser.add_argument("--commit")
    parser.add_argument("--root")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--runtime", choices=("runc", "chroot"), default="runc")
    return parser.parse_args()


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    """The body of a page."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


class ContainerTest(unittest.TestCase):
    """deploy/container."""

    options = arguments()
    served_by: dict = {}

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.work = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        began = time.monotonic()
        if cls.options.root:
            cls.image = GivenRoot(cls.work, cls.options.root)
        else:
            cls.image = BuiltImage(cls.work, cls.options)
        cls.build_seconds = round(time.monotonic() - began)
        cls.grpc, cls.http = free_port(), free_port()
        cls.start()

    @classmethod
    def start(cls):
        """Runs the image's own entry point, user and environment."""
        cache = cls.work / "cache"
        cache.mkdir()
        shutil.chown(cache, *map(int, cls.image.config["User"].split(":")))
        flags = [f"--listen=127.0.0.1:{cls.grpc}", f"--http=127.0.0.1:{cls.http}"]
        flags += ["--host_pool_bytes=256M", "--max_queued_bytes=256M"]
        flags += ["--lame_duck_seconds=0"]
        if cls.options.gpu:
            flags += ["--backend=cuda", "--device_pool_bytes=2G"]
        runtime = {"runc": Runc, "chroot": Chroot}[cls.options.runtime]
        cls.container = runtime(cls.work, cls.image, flags, cls.options.gpu)
        cls.process = cls.container.process
        cls.stack.callback(cls.process.wait)
        cls.stack.callback(cls.process.kill)
        for line in cls.process.stdout:
            if " ready: " in line:
                return
        raise AssertionError("the container did not get ready")

    def attendant(self, *words):
        """What the command prints, run outside the container."""
        root = self.image.rootfs
        own = [f"{root}/lib64/ld-linux-x86-64.so.2", "--library-path"]
        own += [f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/usr/bin/attendant"]
        command = [self.options.attendant] if self.options.attendant else own
        return run(*command, words[0], f"--server=127.0.0.1:{self.grpc}", *words[1:])

    def with_cuda(self):
        """Whether the image holds kernels for a GPU."""
        return self.options.cuda or self.options.gpu

    def status(self):
        """/proc/PID/status of the server, seen from outside."""
        pid = self.container.pid()
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return pid, dict(re.findall(r"^(\w+):\t(.*)$", text, re.M))

    def test_answers_a_real_job_from_outside(self):
        data = ROOT / "tests/data/minilm_layer3.safetensors"
        self.assertIn("PASS", self.attendant("check", data))

    @unittest.skipUnless(options.gpu, "without --gpu")
    def test_computes_on_the_gpu_that_is_mounted_in(self):
        sizes = "--random=2,300,300,8,2,128"
        said = self.attendant("check", sizes, "--dtype=bf16", "--causal", "--json")
        answer = json.loads(said)
        type(self).served_by = answer["served_by"]
        self.assertEqual(self.served_by["backend"], "cuda")
        self.assertRegex(self.served_by["kernel"], "^sm")
        device = json.loads(self.attendant("info", "--json"))["devices"][0]
        self.served_by["device"] = device["name"]
        print(self.served_by, answer["check"], file=sys.stderr)
        metrics = get(f"http://127.0.0.1:{self.http}/metrics")
        self.assertRegex(metrics, r"\nattendant_gpu_power_watts\S* [1-9]", "no NVML")

    def test_is_scraped_from_outside(self):
        metrics = get(f"http://127.0.0.1:{self.http}/metrics")
        self.assertIn("\nattendant_ready 1", metrics)
        if shutil.which("promtool") or not self.options.gpu:
            run("promtool", "check", "metrics", input=metrics)
        self.assertIn("<!doctype", get(f"http://127.0.0.1:{self.http}/statusz"))

    def test_has_no_privileges(self):
        _, status = self.status()
        self.assertEqual(status["Uid"].split(), ["1000"] * 4)
        for kind in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[kind], 16), 0, kind)
        self.assertEqual(status["NoNewPrivs"], "1")

    def test_root_is_read_only_but_for_the_cache(self):
        pid, _ = self.status()
        mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text()
        options = {
            line.split()[4]: line.split()[5].split(",") for line in mounts.splitlines()
        }
        self.assertIn("ro", options["/"])
        self.assertIn("rw", options["/cache"])
        self.assertIn("CUDA_CACHE_PATH=/cache", self.image.config["Env"])

    def test_needs_no_shell_and_holds_none(self):
        names = {path.name for path in pathlib.Path(self.image.rootfs).rglob("*")}
        self.assertEqual(
            names & {"sh", "bash", "dash", "busybox", "apt", "dpkg"}, set()
        )
        libraries = [name for name in names if name.startswith("libcudart")]
        self.assertEqual(libraries, [], "cudart is to be linked statically")

    def test_holds_what_a_driver_that_is_mounted_in_asks_for(self):
        libc = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
        held = {path.name for path in pathlib.Path(self.image.rootfs).rglob("*.so*")}
        self.assertEqual(libc - held, set())

    def test_health_probe_works_inside(self):
        probe = self.image.config["Healthcheck"]["Test"]
        self.assertEqual(probe[0], "CMD")
        command = [part.replace("50051", str(self.grpc)) for part in probe[1:]]
        self.assertEqual(self.container.inside(command), 0)
        command = [part.replace("50051", str(free_port())) for part in probe[1:]]
        self.assertNotEqual(self.container.inside(command), 0, "nobody serves there")

    def test_is_small(self):
        self.assertLess(self.image.bytes, MOST_BYTES[self.with_cuda()])

    def test_zz_drains_when_told_to_stop(self):
        self.container.stop()
        self.assertEqual(self.process.wait(60), 0)
        if self.options.results:
            self.record()

    def record(self):
        """Adds this image's size, and what it computed on, to the results."""
        path = pathlib.Path(self.options.results)
        kept = json.loads(path.read_text()) if path.exists() else {}
        kind = "with CUDA kernels" if self.with_cuda() else "without CUDA kernels"
        row = {
            "bytes": self.image.bytes,
            "bound": MOST_BYTES[self.with_cuda()],
            "date": datetime.date.today().isoformat(),
            "commit": self.options.commit
            or run("git", "-C", ROOT, "rev-parse", "--short", "HEAD"),
            "command": "tests/deploy/container_test.py"
            + " --cuda" * self.options.cuda
            + " --root build" * bool(self.options.root)
            + f" --gpu --runtime={self.options.runtime}" * self.options.gpu,
        }
        if self.options.root:
            kind += ", root of a build"
        else:
            row["build_seconds"] = self.build_seconds
            row["compiler_cache"] = bool(self.options.cache)
        if self.options.gpu:
            kind += ", run on a GPU"
            row["served_by"] = self.served_by
        kept[kind] = row
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def lacking(options):
    """Why nothing of this can be done here; empty if it can."""
    tools = [] if options.root else ["buildah", "mmdebstrap", "promtool"]
    tools += ["runc"] if options.runtime == "runc" else []
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        return f"no {missing}"
    if os.geteuid() != 0:
        return "not root"
    if options.gpu and not (gpu_devices() and driver_libraries()):
        return "no GPU, or no driver of one"
    return ""


if __name__ == "__main__":
    if why := lacking(ContainerTest.options):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
