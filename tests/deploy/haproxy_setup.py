"""deploy/haproxy/haproxy.cfg on free ports before real servers."""

import contextlib
import pathlib
import re
import socket
import subprocess
import time
import types
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy/haproxy/haproxy.cfg"
READY = re.compile(r" ready: grpc=([^ ,]+) http=([^ ]+) ")
FIRST_SERVER = re.compile(r"^  server gpu1 127\.0\.0\.1:50051 (.*)port 9090 (.*)$", re.M)


def version():
    """HAProxy's own words; empty = there is none here."""
    try:
        done = subprocess.run(["haproxy", "-v"], stdout=subprocess.PIPE, text=True,
                              check=True)
    except FileNotFoundError:
        return ""
    return done.stdout.splitlines()[0]


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificate(folder):
    """Self-signed, for localhost: certificate, key, and both in one file."""
    certificate, key, both = (folder / n for n in ("cert.pem", "key.pem", "both.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", certificate],
        stderr=subprocess.DEVNULL, check=True)
    both.write_text(certificate.read_text() + key.read_text())
    return types.SimpleNamespace(certificate=certificate, key=key, both=both)


@contextlib.contextmanager
def server(binary, *flags):
    """A ready server with its addresses and its process."""
    command = [binary, "--backend=cpu", "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
               "--host_pool_bytes=512M", "--log_level=error", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            grpc, http = READY.search(process.stdout.readline()).groups()
            yield types.SimpleNamespace(grpc=grpc, http=http, process=process)
        finally:
            process.kill()


def configuration(tls, servers, ports):
    """The shipped file, its addresses and certificate replaced and no more."""
    text = CONFIG.read_text()
    line = FIRST_SERVER.search(text)
    lines = "\n".join(
        f"  server gpu{n} {s.grpc} {line[1]}port {s.http.rsplit(':')[-1]} {line[2]}"
        for n, s in enumerate(servers))
    text = FIRST_SERVER.sub(lines, text)
    text = text.replace("/etc/haproxy/attendant.pem", str(tls.both))
    text = text.replace("bind :50443",
                        f"bind 127.0.0.1:{ports.plain} proto h2\n"
                        f"  bind 127.0.0.1:{ports.tls}")
    return text.replace("127.0.0.1:8404", f"127.0.0.1:{ports.stats}")


def servers_up(stats):
    """How many servers the proxy holds for ready."""
    with urllib.request.urlopen(f"http://127.0.0.1:{stats}/;csv", timeout=5) as reply:
        rows = [line.split(",") for line in reply.read().decode().splitlines()]
    return sum(r[0] == "servers" and r[1].startswith("gpu") and r[17] == "UP"
               for r in rows)


def await_up(haproxy, count):
    """Until it holds so many servers for ready, as it finds out by and by."""
    deadline = time.monotonic() + 60
    up = -1
    while up != count:
        assert time.monotonic() < deadline, f"{up} servers are up"
        assert haproxy.process.poll() is None, "haproxy ended"
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            up = servers_up(haproxy.stats)


@contextlib.contextmanager
def proxy(folder, tls, servers):
    """HAProxy, once it holds every server for ready: its addresses."""
    ports = types.SimpleNamespace(
        tls=free_port(), plain=free_port(), stats=free_port())
    path = pathlib.Path(folder) / "haproxy.cfg"
    path.write_text(configuration(tls, servers, ports))
    with subprocess.Popen(["haproxy", "-db", "-f", path],
                          stderr=subprocess.DEVNULL) as process:
        try:
            addresses = types.SimpleNamespace(
                tls=f"127.0.0.1:{ports.tls}", plain=f"127.0.0.1:{ports.plain}",
                stats=ports.stats, process=process)
            await_up(addresses, len(servers))
            yield addresses
        finally:
            process.kill()
