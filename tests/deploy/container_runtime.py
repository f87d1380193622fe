"""What runs an image's root without privileges, with a GPU or without.

`Runc` is a real container runtime. `Chroot` makes of system calls alone what a
container is to the server (a read-only root, an unprivileged user without any
capability, only the devices that it is given), for machines without control groups.
Both need root. The network is the machine's own, so that they are called from outside.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess

from container_image import run

# What the NVIDIA container toolkit mounts in for "compute,utility", and where to.
DRIVER = re.compile(
    r"lib(cuda|nvidia-(ml|ptxjitcompiler|nvvm\w*|gpucomp|cfg))\.so\.[\d.]+"
)
DRIVER_TARGET = "/usr/local/nvidia/lib64"
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
NOTHING = [ctypes.c_ulong(0)] * 3  # the last arguments of prctl(2)


def gpu_devices():
    """The device nodes of all GPUs; none without a driver."""
    nodes = sorted(pathlib.Path("/dev").glob("nvidia*"))
    return [n for n in nodes if stat.S_ISCHR(n.stat().st_mode)]


def driver_libraries():
    """The driver's libraries, one path for each name that a program may ask for."""
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":") + [DRIVER_TARGET]
    cache = run("ldconfig", "-p") if shutil.which("ldconfig") else ""
    places += [
        os.path.dirname(p) for p in re.findall(r"=> (\S*/libcuda\.so\.1)", cache)
    ]
    for place in places:
        folder = pathlib.Path(place or ".")
        if (folder / "libcuda.so.1").exists():
            return [p for p in sorted(folder.iterdir()) if DRIVER.fullmatch(p.name)]
    return []


def binds(cache, gpu):
    """(source, place in the root) of everything that is mounted in."""
    pairs = [(str(cache), "/cache")]
    if gpu:
        pairs += [
            (str(p.resolve()), f"{DRIVER_TARGET}/{p.name}") for p in driver_libraries()
        ]
        pairs += [(str(node), str(node)) for node in gpu_devices()]
    return pairs


class Runc:
    """runc, the runtime below Docker, containerd and Kubernetes."""

    def __init__(self, work, image, arguments, gpu):
        self.runc = ["runc", f"--root={work}/runc"]
        self.name = f"attendant-test-{os.getpid()}"
        bundle = work / "bundle"
        bundle.mkdir()
        run("runc", "spec", cwd=bundle)
        spec = json.loads((bundle / "config.json").read_text())
        user, group = image.config["User"].split(":")
        spec["process"].update(
            terminal=False,
            user={"uid": int(user), "gid": int(group)},
            args=image.config["Entrypoint"] + arguments,
            env=image.config["Env"],
            cwd="/",
            noNewPrivileges=True,
            capabilities={
                kind: [] for kind in ("bounding", "effective", "permitted", "ambient")
            },
        )
        spec["root"] = {"path": image.rootfs, "readonly": True}
        for source, target in binds(work / "cache", gpu):
            # Devices are neither files that may be written nor kept from working.
            plain = [] if target.startswith("/dev/") else ["nodev"]
            mode = "ro" if target.startswith(DRIVER_TARGET) else "rw"
            spec["mounts"].append(
                {
                    "destination": target,
                    "type": "bind",
                    "source": source,
                    "options": ["bind", mode, "nosuid", *plain],
                }
            )
        if gpu:
            allowed = spec["linux"]["resources"]["devices"]
            for node in gpu_devices():
                number = node.stat().st_rdev
                allowed.append(
                    {
                        "allow": True,
                        "type": "c",
                        "major": os.major(number),
                        "minor": os.minor(number),
                        "access": "rw",
                    }
                )
        spec["linux"]["namespaces"] = [
            space
            for space in spec["linux"]["namespaces"]
            if space["type"] != "network"  # so that it is called from outside
        ]
        (bundle / "config.json").write_text(json.dumps(spec))
        self.process = subprocess.Popen(
            [*self.runc, "run", f"--bundle={bundle}", self.name],
            stdout=subprocess.PIPE,
            text=True,
        )

    def pid(self):
        """The server's process id, as this machine sees it."""
        return json.loads(run(*self.runc, "state", self.name))["pid"]

    def inside(self, command):
        """The exit code of a command of the image, run in the container."""
        done = subprocess.run(
            [*self.runc, "exec", self.name, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode

    def stop(self):
        """Asks it to end."""
        run(*self.runc, "kill", self.name, "TERM")


class Chroot:
    """A mount namespace, a read-only root in it, and no privileges."""

    NEWNS, BIND, REC = 0x20000, 0x1000, 0x4000  # from sched.h and sys/mount.h
    PRIVATE, REMOUNT, READ_ONLY = 0x40000, 0x20, 0x1
    DROP_BOUND, NO_NEW_PRIVILEGES = 24, 38  # from sys/prctl.h

    def __init__(self, work, image, arguments, gpu):
        self.image = image
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.user, self.group = map(int, image.config["User"].split(":"))
        self.env = dict(pair.split("=", 1) for pair in image.config["Env"])
        devices = [(f"/dev/{name}", f"/dev/{name}") for name in PLAIN_DEVICES]
        self.binds = [("/proc", "/proc"), *devices, *binds(work / "cache", gpu)]
        for source, target in self.binds:
            place = pathlib.Path(image.rootfs + target)
            if os.path.isdir(source):
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
        self.process = subprocess.Popen(
            image.config["Entrypoint"] + arguments,
            stdout=subprocess.PIPE,
            text=True,
            env=self.env,
            preexec_fn=self.enter_new,
        )

    def call(self, name, *arguments):
        """A function of libc that must succeed."""
        if getattr(self.libc, name)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}{arguments}: {os.strerror(number)}")

    def mount(self, source, target, flags):
        """mount(2), for what needs no file system's name."""
        self.call(
            "mount", source.encode(), target.encode(), None, ctypes.c_ulong(flags), None
        )

    def enter_new(self):
        """Makes this process the container's first, before its program starts."""
        root = self.image.rootfs
        self.call("unshare", self.NEWNS)
        self.mount("none", "/", self.REC | self.PRIVATE)
        self.mount(root, root, self.BIND)
        for source, target in self.binds:
            self.mount(source, root + target, self.BIND)
        self.mount("none", root, self.REMOUNT | self.BIND | self.READ_ONLY)
        self.enter(root)

    def enter(self, root):
        """Changes the root and gives every privilege up, for good."""
        os.chroot(root)
        os.chdir("/")
        for capability in range(64):
            # The last ones are unknown to an older kernel.
            self.libc.prctl(self.DROP_BOUND, ctypes.c_ulong(capability), *NOTHING)
        os.setgroups([])
        os.setgid(self.group)
        os.setuid(self.user)
        self.call("prctl", self.NO_NEW_PRIVILEGES, ctypes.c_ulong(1), *NOTHING)

    def pid(self):
        """The server's process id."""
        return self.process.pid

    def inside(self, command):
        """The exit code of a command of the image, run beside the server."""
        return subprocess.call(
            command,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: self.enter(f"/proc/{self.pid()}/root"),
        )

    def stop(self):
        """Asks it to end."""
        self.process.terminate()
