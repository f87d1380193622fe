"""The image of deploy/container: built by buildah, or a root that was made before."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
CONTAINER = ROOT / "deploy/container"


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


def bytes_below(folder):
    """What its files hold."""
    files = (p for p in pathlib.Path(folder).rglob("*") if p.is_file())
    return sum(p.stat().st_size for p in files if not p.is_symlink())


class BuiltImage:
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


class GivenRoot:
    """The root that deploy/container/collect.sh makes of a build, or an archive of it.

    User, environment, entry point and health probe are read from Containerfile.
    """

    def __init__(self, work, given):
        self.rootfs = str(work / "root")
        pathlib.Path(self.rootfs).mkdir()
        if pathlib.Path(given).is_dir():
            run(CONTAINER / "collect.sh", given, self.rootfs)
        else:
            run("tar", "-xf", given, "-C", self.rootfs)
        text = (CONTAINER / "Containerfile").read_text().split("FROM scratch")[1]
        text = text.replace("\\\n", " ")
        said = dict(line.split(None, 1) for line in text.splitlines() if line.strip())
        self.config = {
            "User": said["USER"],
            "Env": said["ENV"].split(),
            "Entrypoint": json.loads(said["ENTRYPOINT"]),
            "Healthcheck": {
                "Test": ["CMD", *json.loads(said["HEALTHCHECK"].split("CMD")[1])]
            },
        }
        self.bytes = bytes_below(self.rootfs)
