"""TLS, mutual TLS, tokens and the policy file, against the real server."""

import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import time
from contextlib import contextmanager

import numpy as np
import pytest

import attendant

Q = np.ones((1, 2, 1, 8), np.float32)


def openssl(*arguments):
    """Runs openssl quietly."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory, name="test authority"):
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.certificate = str(directory / "ca.pem")
        self.key = str(directory / "ca.key")
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate),
        )

    def issue(self, name, stem):
        """(certificate, key) files for `name`; an old pair is replaced."""
        key, request = (str(self.directory / f"{stem}.{end}") for end in ("key", "csr"))
        certificate, names = (
            str(self.directory / f"{stem}{e}") for e in (".pem", ".ext")
        )
        with open(names, "w", encoding="ascii") as file:
            file.write(f"subjectAltName=DNS:{name},IP:127.0.0.1\n")
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate),
            *("-CAkey", self.key, "-days", "1", "-extfile", names),
            *("-out", certificate),
        )
        return certificate, key


def read(path):
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


@contextmanager
def serving(*flags):
    """(address, process) of a server with these flags; its log is .log."""
    binary = os.environ.get("ATTENDANT_SERVER", "")
    if not os.path.exists(binary):
        pytest.skip(f"no attendant-server at ATTENDANT_SERVER={binary!r}")
    with subprocess.Popen(
        [
            *(binary, "--listen=127.0.0.1:0", "--http=", "--host_pool_bytes=64M"),
            *("--lame_duck_seconds=0", *flags),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stdout.readline()
        found = re.search(r" ready: grpc=([^ ]+)", line)
        if not found:
            pytest.fail(f"no server: {line} {process.stderr.read()}")
        try:
            yield found[1], process
        finally:
            process.terminate()
            process.log = process.stderr.read()
            assert process.wait(30) == 0


def ask(target, **options):
    """One small call."""
    with attendant.Client(target, **options) as client:
        return client.attend(Q, Q, Q, timeout=20)


def code_of(target, **options):
    """The code that a refused call ends with."""
    with pytest.raises(attendant.AttendantError) as caught:
        ask(target, **options)
    return caught.value.code


def test_tls_serves_those_who_trust_it_and_nobody_else(tmp_path):
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("localhost", "server")
    flags = (f"--tls_cert={certificate}", f"--tls_key={key}")
    with serving(*flags) as (target, _):
        roots = read(authority.certificate)
        assert ask(target, tls=True, root_certificates=roots).out.shape == Q.shape
        stranger = read(Authority(tmp_path / "other", "other").certificate)
        with (
            pytest.raises(attendant.AttendantError),
            attendant.Client(target, tls=True, root_certificates=stranger) as client,
        ):
            client.attend(Q, Q, Q, timeout=2)


def test_new_certificates_are_used_without_a_restart(tmp_path):
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("localhost", "server")
    first = read(certificate)
    flags = (f"--tls_cert={certificate}", f"--tls_key={key}", "--tls_refresh_seconds=1")
    roots = read(authority.certificate)

    def shown(target):
        found = subprocess.run(
            ["openssl", "s_client", "-connect", target],
            input=b"",
            capture_output=True,
            check=False,
        ).stdout
        return re.search(rb"-----BEGIN.*?END CERTIFICATE-----\n", found, re.S)[0]

    with serving(*flags) as (target, _):
        with attendant.Client(target, tls=True, root_certificates=roots) as old:
            old.attend(Q, Q, Q, timeout=20)
            assert shown(target) in first
            authority.issue("localhost", "server")
            until = time.monotonic() + 30
            while shown(target) in first:
                assert time.monotonic() < until
                old.attend(Q, Q, Q, timeout=20)  # an old connection goes on
            assert shown(target) in read(certificate)
            old.attend(Q, Q, Q, timeout=20)
        ask(target, tls=True, root_certificates=roots)


def test_mutual_tls_gives_identities(tmp_path):
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("localhost", "server")
    policy = tmp_path / "policy.json"
    policy.write_text(
        json.dumps(
            {
                "identities": [
                    {"name": "a", "certificate_name": "a.test", "methods": ["Attend"]}
                ]
            }
        )
    )
    flags = (
        f"--tls_cert={certificate}",
        f"--tls_key={key}",
        f"--tls_client_ca={authority.certificate}",
        f"--policy={policy}",
    )
    with serving(*flags) as (target, process):

        def options(name):
            cert, private = authority.issue(name, name)
            return {
                "tls": True,
                "root_certificates": read(authority.certificate),
                "client_certificate": read(cert),
                "client_key": read(private),
            }

        assert ask(target, **options("a.test")).out.shape == Q.shape
        assert (
            code_of(target, **options("b.test")) == attendant.StatusCode.UNAUTHENTICATED
        )
        with (
            attendant.Client(target, **options("a.test")) as client,
            pytest.raises(attendant.AttendantError) as caught,
        ):
            client.get_server_info(timeout=20)
        assert caught.value.code == attendant.StatusCode.PERMISSION_DENIED
        assert caught.value.field == "method"
    audit = [json.loads(li) for li in process.log.splitlines() if '"audit"' in li]
    assert [line["code"] for line in audit] == [16, 7]
    assert all(line["peer"].startswith("ipv4:127.0.0.1") for line in audit)


def test_tokens_and_a_policy_that_is_read_again(tmp_path):
    policy = tmp_path / "policy.json"

    def allow(*tokens):
        policy.write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": f"caller-{i}",
                            "token_sha256": hashlib.sha256(t.encode()).hexdigest(),
                            "methods": ["*"],
                        }
                        for i, t in enumerate(tokens)
                    ]
                }
            )
        )

    allow("one")
    with serving(f"--policy={policy}") as (target, process):

        def call(token):
            return ask(target, token=token, allow_token_without_tls=True)

        def refused(token):
            return code_of(target, token=token, allow_token_without_tls=True)

        call("one")
        assert refused("two") == attendant.StatusCode.UNAUTHENTICATED
        assert code_of(target) == attendant.StatusCode.UNAUTHENTICATED
        allow("two")
        process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 20
        while True:
            try:
                call("two")
                break
            except attendant.AttendantError:
                assert time.monotonic() < until
        assert refused("one") == attendant.StatusCode.UNAUTHENTICATED
        policy.write_text("{broken")
        process.send_signal(signal.SIGHUP)
        call("two")
    assert "two" not in re.sub(r"policy.*", "", process.log)


def test_flags_that_do_not_fit_are_refused(tmp_path):
    binary = os.environ.get("ATTENDANT_SERVER", "")
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("localhost", "server")
    for flags, words in (
        ((f"--tls_cert={certificate}",), "--tls_cert and --tls_key"),
        ((f"--tls_cert={certificate}", f"--tls_key={authority.key}"), "--tls_key is"),
        (("--tls_client_ca=x",), "--tls_client_ca is 'x', must be empty"),
        (("--policy=/nowhere",), "--policy is /nowhere, must be a readable file"),
        (("--unix_socket_mode=999",), "must be an octal file mode"),
    ):
        ended = subprocess.run(
            [
                binary,
                "--listen=127.0.0.1:0",
                "--http=",
                "--host_pool_bytes=64M",
                *flags,
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode in (1, 2)
        assert words in ended.stderr
    del key


def test_a_unix_socket_has_the_mode_it_is_given(tmp_path):
    path = tmp_path / "socket"
    flags = (f"--listen=unix:{path}", "--unix_socket_mode=0660")
    with serving(*flags) as (target, _):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        assert ask(target).out.shape == Q.shape
