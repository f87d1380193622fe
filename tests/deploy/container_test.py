"""Builds the container image, runs it without privileges, calls it from outside.

container_test.py ATTENDANT [--cuda] [--cache DIR] [--results FILE]: buildah
builds deploy/container on a base that mmdebstrap makes, runc runs it with a
read-only root, no capabilities and user 1000; ATTENDANT and Prometheus' promtool
talk to it. No daemon. Needs root; without the tools the exit code is 77, for
"skipped". --cache: a compiler cache, for developing. --results: a JSON file.
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
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]
CONTAINER = ROOT / "deploy/container"
TOOLS = ("buildah", "runc", "mmdebstrap", "promtool")
MOST_BYTES = {False: 60_000_000, True: 120_000_000}  # by CUDA


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attendant")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--cache")
    parser.add_argument("--results")
    return parser.parse_args()


def run(*command, **options):
    """The command's output; its end of the log if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}"
    return done.stdout.strip()


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    """The body of a page."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


def bytes_below(folder):
    """What its files hold."""
    files = (p for p in pathlib.Path(folder).rglob("*") if p.is_file())
    return sum(p.stat().st_size for p in files if not p.is_symlink())


class Image:
    """The image, built in a storage of its own."""

    def __init__(self, work, options):
        self.storage = [f"--root={work}/storage", f"--runroot={work}/run"]
        self.storage += ["--storage-driver=vfs"]
        base = work / "base.tar"
        cached = ["ccache"] if options.cache else []
        run(ROOT / "tests/clean_root.sh", "bookworm", base, *cached)
        made = self.buildah("from", "scratch").splitlines()[-1]
        self.buildah("add", made, base, "/")
        self.buildah("commit", made, "localhost/base")
        build = ["--isolation=chroot", "--network=host", "--format=docker"]
        build += ["--build-arg=BASE=localhost/base", "--tag=localhost/attendant"]
        build += [f"--file={CONTAINER}/Containerfile", "--pull=never"]
        if options.cuda:
            pip = [f"--env={k}={v}" for k, v in os.environ.items() if k[:4] == "PIP_"]
            build += ["--build-arg=CUDA=--cuda", *pip]
        if os.environ.get("PIP_CERT"):
            build += [f"--volume={os.environ['PIP_CERT']}:{os.environ['PIP_CERT']}:ro"]
        if options.cache:
            launcher = "-DCMAKE_{}_COMPILER_LAUNCHER=ccache"
            both = f"{launcher.format('CXX')} {launcher.format('CUDA')}"
            build += [f"--build-arg=CMAKE_ARGS={both}"]
            build += [f"--volume={options.cache}:/root/.cache/ccache"]
        self.buildah("bud", *build, ROOT)
        container = self.buildah("from", "--pull-never", "localhost/attendant")
        container = container.splitlines()[-1]
        self.rootfs = self.buildah("mount", container)
        inspected = json.loads(self.buildah("inspect", container))
        self.config = inspected["Docker"]["config"]
        self.bytes = bytes_below(self.rootfs)

    def buildah(self, verb, *rest):
        """What a buildah command prints."""
        return run("buildah", *self.storage, verb, *rest)


class ContainerTest(unittest.TestCase):
    """deploy/container."""

    options = arguments()

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.work = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        began = time.monotonic()
        cls.image = Image(cls.work, cls.options)
        cls.build_seconds = round(time.monotonic() - began)
        cls.grpc, cls.http = free_port(), free_port()
        cls.start()

    @classmethod
    def start(cls):
        """Runs the image's own entry point, user and environment."""
        bundle = cls.work / "bundle"
        (bundle / "cache").mkdir(parents=True)
        run("runc", "spec", cwd=bundle)
        spec = json.loads((bundle / "config.json").read_text())
        config = cls.image.config
        user, group = config["User"].split(":")
        spec["process"].update(
            terminal=False,
            user={"uid": int(user), "gid": int(group)},
            args=config["Entrypoint"]
            + [f"--listen=127.0.0.1:{cls.grpc}", f"--http=127.0.0.1:{cls.http}"]
            + ["--host_pool_bytes=256M", "--max_queued_bytes=256M"]
            + ["--lame_duck_seconds=0"],
            env=config["Env"],
            cwd="/",
            noNewPrivileges=True,
            capabilities={
                kind: [] for kind in ("bounding", "effective", "permitted", "ambient")
            },
        )
        spec["root"] = {"path": cls.image.rootfs, "readonly": True}
        shutil.chown(bundle / "cache", int(user), int(group))
        spec["mounts"].append(
            {
                "destination": "/cache",
                "type": "bind",
                "source": str(bundle / "cache"),
                "options": ["bind", "rw", "nosuid", "nodev"],
            }
        )
        spec["linux"]["namespaces"] = [
            space
            for space in spec["linux"]["namespaces"]
            if space["type"] != "network"  # so that it is called from outside
        ]
        (bundle / "config.json").write_text(json.dumps(spec))
        cls.name = f"attendant-test-{os.getpid()}"
        cls.process = subprocess.Popen(
            [*cls.runc(), "run", f"--bundle={bundle}", cls.name],
            stdout=subprocess.PIPE,
            text=True,
        )
        cls.stack.callback(cls.process.wait)
        cls.stack.callback(cls.process.kill)
        for line in cls.process.stdout:
            if " ready: " in line:
                return
        raise AssertionError("the container did not get ready")

    @classmethod
    def runc(cls):
        """The start of a runc command."""
        return ["runc", f"--root={cls.work}/runc"]

    def status(self):
        """/proc/PID/status of the server, seen from outside."""
        state = json.loads(run(*self.runc(), "state", self.name))
        text = pathlib.Path(f"/proc/{state['pid']}/status").read_text()
        return state["pid"], dict(re.findall(r"^(\w+):\t(.*)$", text, re.M))

    def test_answers_a_real_job_from_outside(self):
        data = ROOT / "tests/data/minilm_layer3.safetensors"
        server = f"--server=127.0.0.1:{self.grpc}"
        self.assertIn("PASS", run(self.options.attendant, "check", server, data))

    def test_is_scraped_from_outside(self):
        metrics = get(f"http://127.0.0.1:{self.http}/metrics")
        self.assertIn("\nattendant_ready 1", metrics)
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

    def test_health_probe_works_inside(self):
        probe = self.image.config["Healthcheck"]["Test"]
        self.assertEqual(probe[0], "CMD")
        command = [part.replace("50051", str(self.grpc)) for part in probe[1:]]
        run(*self.runc(), "exec", self.name, *command)
        command = [part.replace("50051", str(free_port())) for part in probe[1:]]
        done = subprocess.run(
            [*self.runc(), "exec", self.name, *command],
            stderr=subprocess.DEVNULL,
            check=False,
        )
        self.assertNotEqual(done.returncode, 0, "nobody serves there")

    def test_is_small(self):
        self.assertLess(self.image.bytes, MOST_BYTES[self.options.cuda])

    def test_zz_drains_when_told_to_stop(self):
        run(*self.runc(), "kill", self.name, "TERM")
        self.assertEqual(self.process.wait(60), 0)
        if self.options.results:
            self.record()

    def record(self):
        """Adds this image's size to the results."""
        path = pathlib.Path(self.options.results)
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept["with CUDA kernels" if self.options.cuda else "without CUDA kernels"] = {
            "bytes": self.image.bytes,
            "bound": MOST_BYTES[self.options.cuda],
            "build_seconds": self.build_seconds,
            "compiler_cache": bool(self.options.cache),
            "date": datetime.date.today().isoformat(),
            "commit": run("git", "-C", ROOT, "rev-parse", "--short", "HEAD"),
            "command": "tests/deploy/container_test.py"
            + (" --cuda" if self.options.cuda else ""),
        }
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    lacking = [tool for tool in TOOLS if not shutil.which(tool)]
    if lacking or os.geteuid() != 0:
        print(f"skipped: {lacking or 'not root'}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
