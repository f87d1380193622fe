"""deploy/haproxy/haproxy.cfg with a real HAProxy before two real servers.

haproxy_test.py ATTENDANT_SERVER ATTENDANT. Needs haproxy and openssl; skips aloud
without. No network beyond loopback.
"""

import contextlib
import pathlib
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import haproxy_setup

SKIP = 77
ANSWERED = re.compile(
    r'^attendant_requests_finished_total\{method="Attend",code="OK"\} (\d+)$', re.M)


class HaproxyTest(unittest.TestCase):
    """The shipped configuration."""

    server, attendant = sys.argv[1:3]

    @classmethod
    def setUpClass(cls):
        work = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.tls = haproxy_setup.make_certificate(work)
        cls.servers = [
            cls.enterClassContext(
                haproxy_setup.server(cls.server, "--lame_duck_seconds=1"))
            for _ in range(2)
        ]
        cls.proxy = cls.enterClassContext(
            haproxy_setup.proxy(work, cls.tls, cls.servers))

    def bench(self, *flags):
        """The command that loads the proxy by TLS."""
        return [self.attendant, "bench", f"--server={self.proxy.tls}", "--tls",
                f"--ca={self.tls.certificate}", "--server-name=localhost",
                "--dtype=fp32", *flags]

    def ask(self, *flags):
        """Its output; it must not fail."""
        done = subprocess.run(self.bench(*flags), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_1_every_door_passes_and_answers_are_right(self):
        self.ask("--door=unary,stream,striped", "--shapes=s64h2d64,s1024h8d64",
                 "--requests=3", "--verify")

    def test_2_both_servers_are_used(self):
        self.ask("--shapes=s16h1d16", "--requests=40", "--concurrency=4")
        haproxy_setup.await_up(self.proxy, 2)
        for server in self.servers:
            with urllib.request.urlopen(f"http://{server.http}/metrics") as reply:
                answered = ANSWERED.search(reply.read().decode())
            self.assertGreater(int(answered[1]), 0)

    def test_3_other_paths_are_not_passed_on(self):
        context = ssl.create_default_context(cafile=self.tls.certificate)
        context.set_alpn_protocols(["h2"])
        host, port = self.proxy.tls.split(":")
        with socket.create_connection((host, int(port))) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as tls:
                self.assertEqual(tls.selected_alpn_protocol(), "h2")
                self.assertGreaterEqual(tls.version(), "TLSv1.2")

    def test_4_one_peer_has_so_many_connections_and_no_more(self):
        host, port = self.proxy.plain.split(":")
        with contextlib.ExitStack() as stack:
            peers = [
                stack.enter_context(socket.create_connection((host, int(port))))
                for _ in range(70)
            ]
            # Who is let in has nothing to read: HAProxy waits for it to speak.
            refused = select.select(peers, [], [], 60)[0]
            self.assertGreater(len(refused), 0)
            for peer in refused:
                with contextlib.suppress(ConnectionError):
                    self.assertEqual(peer.recv(1), b"")
        # They are gone, and others are served again.
        deadline = time.monotonic() + 60
        while True:
            done = subprocess.run(
                self.bench("--shapes=s16h1d16", "--requests=2"),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0 or time.monotonic() > deadline:
                break
        self.assertEqual(done.returncode, 0)

    def test_5_a_server_that_drains_loses_nothing(self):
        with subprocess.Popen(
                self.bench("--shapes=s16h1d16", "--rate=100", "--seconds=4",
                           "--max-attempts=5"),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as load:
            time.sleep(1)
            self.servers[0].process.send_signal(signal.SIGTERM)
            output = load.stdout.read()
        self.assertEqual(load.returncode, 0, output)
        self.assertEqual(self.servers[0].process.wait(30), 0)
        haproxy_setup.await_up(self.proxy, 1)


if __name__ == "__main__":
    if not haproxy_setup.version():
        print("haproxy_test: there is no haproxy here: skipped")
        sys.exit(SKIP)
    unittest.main(argv=sys.argv[:1])
