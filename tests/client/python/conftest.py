"""Servers that the Python client's tests talk to."""

import importlib.util
import os
import re
import subprocess

import pytest

import attendant
from fake_server import FakeServer

# What needs torch runs in the long tier, by with_torch/run.sh.
HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore = [] if HAS_TORCH else ["with_torch"]
READY = re.compile(r" ready: grpc=([^ ,]+)")


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """A running attendant-server (ATTENDANT_SERVER names the binary)."""
    regions = tmp_path_factory.mktemp("regions") / "socket"
    binary = os.environ.get("ATTENDANT_SERVER", "")
    if not os.path.exists(binary):
        pytest.skip(f"no attendant-server at ATTENDANT_SERVER={binary!r}")
    with subprocess.Popen(
        [
            binary,
            "--listen=127.0.0.1:0",
            "--http=",
            "--backend=auto",
            "--host_pool_bytes=256M",
            "--max_queued_bytes=256M",
            "--lame_duck_seconds=0",
            f"--region_socket={regions}",
            "--regions=buffers,cuda_ipc",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        seen = []
        for line in process.stdout:
            seen.append(line)
            found = READY.search(line)
            if found:
                break
        else:
            pytest.fail("the server ended: " + "".join(seen))
        yield found[1]
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="session")
def float32(target):
    """Options for float32 tensors: a GPU computes them if compute_dtype allows it."""
    with attendant.Client(target, core="grpcio") as client:
        devices = client.get_server_info(timeout=60).devices
    on_gpu = any(device.compute_capability > 0 for device in devices)
    return {"compute_dtype": "fp16"} if on_gpu else {}


@pytest.fixture
def fake():
    """Starts fake servers: fake(answer, ...) -> FakeServer."""
    servers = []

    def start(answer, *arguments):
        servers.append(FakeServer(answer, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=["native", "grpcio"])
def core(request):
    """Both ways to the server; the native one where its library was built."""
    if request.param == "native":
        library = os.environ.get("ATTENDANT_CLIENT_LIBRARY", "")
        if not os.path.exists(library):
            pytest.skip(f"no library at ATTENDANT_CLIENT_LIBRARY={library!r}")
    return request.param
