"""Both clients against a fake server: errors, retries, deadlines."""

import asyncio
import pickle
import shutil
import subprocess
import threading

import grpc
import numpy as np
import pytest

import attendant
from attendant.v1 import attention_pb2 as pb
from fake_server import echo_q, fail_first, refuse_with_detail

Q = np.arange(8, dtype=np.float32).reshape(1, 4, 1, 2)


class Blocking:
    """attend() of the blocking client."""

    @staticmethod
    def attend(target, timeout=30, q=Q, client_options=None, **options):
        with attendant.Client(target, **(client_options or {})) as client:
            return client.attend(q, q, q, timeout=timeout, **options)


class Asyncio:
    """attend() of the asyncio client."""

    @staticmethod
    def attend(target, timeout=30, q=Q, client_options=None, **options):
        async def run():
            async with attendant.AsyncClient(
                target, **(client_options or {})
            ) as client:
                return await client.attend(q, q, q, timeout=timeout, **options)

        return asyncio.run(run())


class Future:
    """The future of the blocking client."""

    @staticmethod
    def attend(target, timeout=30, q=Q, client_options=None, **options):
        with attendant.Client(target, **(client_options or {})) as client:
            return client.submit(q, q, q, timeout=timeout, **options).result()


@pytest.fixture(params=[Blocking, Asyncio, Future])
def attend(request, core):
    """The same tests for every client, on both cores."""

    def call(target, client_options=None, **options):
        client_options = {"core": core} | (client_options or {})
        return request.param.attend(target, client_options=client_options, **options)

    return call


def test_gets_an_answer(attend, fake):
    result = attend(fake(echo_q).target, request_id="first")
    np.testing.assert_array_equal(result.out, Q)
    assert result.out.flags.writeable
    assert result.lse is None
    assert result.request_id == "first"
    assert result.served_by.kernel == "fake"
    assert result.served_by.backend == "cpu"
    assert result.stages.kernel_ns == 7
    assert result.attempts == 1


def test_carries_tensors_of_many_megabytes(attend, fake):
    q = np.ones((1, 1 << 20, 1, 4), np.float32)  # 16 MiB
    assert attend(fake(echo_q).target, q=q).out.sum() == q.size


def test_decodes_the_servers_detail(attend, fake):
    server = fake(refuse_with_detail)
    with pytest.raises(attendant.AttendantError) as caught:
        attend(server.target)
    error = caught.value
    assert error.code is attendant.StatusCode.INVALID_ARGUMENT
    assert (error.field, error.value, error.bound) == ("q.shape[3]", "257", "1..256")
    assert error.message == "too large"
    assert server.calls == 1
    assert pickle.loads(pickle.dumps(error)).field == "q.shape[3]"


def test_repeats_after_the_pushback(attend, fake):
    server = fake(fail_first(2, grpc.StatusCode.RESOURCE_EXHAUSTED, "20"))
    assert attend(server.target).attempts == 3


def test_never_repeats_against_a_negative_pushback(attend, fake):
    server = fake(fail_first(1, grpc.StatusCode.UNAVAILABLE, "-1"))
    with pytest.raises(attendant.AttendantError, match="UNAVAILABLE"):
        attend(server.target)
    assert server.calls == 1


def test_does_not_wait_for_a_pushback_beyond_the_deadline(attend, fake):
    server = fake(fail_first(9, grpc.StatusCode.RESOURCE_EXHAUSTED, "60000"))
    with pytest.raises(attendant.AttendantError, match="RESOURCE_EXHAUSTED"):
        attend(server.target)
    assert server.calls == 1


def test_gives_up_after_the_last_attempt(attend, fake):
    server = fake(fail_first(9, grpc.StatusCode.UNAVAILABLE))
    retry = attendant.RetryPolicy(max_attempts=3, initial_backoff=0.001)
    with pytest.raises(attendant.AttendantError, match="UNAVAILABLE"):
        attend(server.target, client_options={"retry": retry})
    assert server.calls == 3


def test_requires_a_deadline_and_keeps_it(attend, fake):
    release = threading.Event()

    def hang(request, context):
        release.wait()
        return echo_q(request, context)

    server = fake(hang)
    with pytest.raises(attendant.AttendantError) as caught:
        attend(server.target, timeout=0)
    assert caught.value.field == "timeout"
    with pytest.raises(attendant.AttendantError, match="DEADLINE_EXCEEDED"):
        attend(server.target, timeout=0.05)
    release.set()
    with pytest.raises(TypeError):
        attendant.Client(server.target).attend(Q, Q, Q)


def test_reconnects_to_a_restarted_server(fake, core):
    server = fake(echo_q)
    with attendant.Client(server.target, core=core) as client:
        client.attend(Q, Q, Q, timeout=30)
        server.stop()
        fake(echo_q, server.port)
        client.attend(Q, Q, Q, timeout=30)


def test_sends_its_token(attend, fake):
    server = fake(echo_q)
    with pytest.raises(attendant.AttendantError) as caught:
        attend(server.target, client_options={"token": "secret"})
    assert caught.value.field == "token"
    attend(
        server.target,
        client_options={"token": "secret", "allow_token_without_tls": True},
    )
    assert server.metadata["authorization"] == "Bearer secret"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            "key.pem",
            "-out",
            "certificate.pem",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    names = ("certificate.pem", "key.pem")
    return tuple((folder / name).read_bytes() for name in names)


def test_proves_itself_and_the_server_by_tls(attend, fake, certificate):
    public, key = certificate
    credentials = grpc.ssl_server_credentials(
        [(key, public)], root_certificates=public, require_client_auth=True
    )
    target = fake(echo_q, 0, credentials).target
    good = {
        "tls": True,
        "root_certificates": public,
        "client_certificate": public,
        "client_key": key,
        "server_name": "localhost",
        "token": "over TLS a token may travel",
        "retry": attendant.RetryPolicy(max_attempts=1),
    }
    attend(target, client_options=good)
    for bad in (
        {"server_name": "elsewhere"},
        {"client_certificate": None, "client_key": None},
        {"root_certificates": None},
    ):
        with pytest.raises(attendant.AttendantError, match="UNAVAILABLE"):
            attend(target, client_options=good | bad)


@pytest.mark.parametrize(
    "options",
    [{"client_key": b"x"}, {"root_certificates": b"x"}, {"server_name": "x"}],
)
def test_refuses_options_that_contradict_each_other(options):
    with pytest.raises(attendant.AttendantError):
        attendant.Client("localhost:1", **options)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda reply: reply.output.shape.append(2),
        lambda reply: reply.output.ClearField("dtype"),
        lambda reply: reply.ClearField("output_data"),
    ],
)
def test_refuses_replies_that_break_the_contract(attend, fake, spoil):
    def answer(request, context):
        reply = echo_q(request, context)
        spoil(reply)
        return reply

    with pytest.raises(attendant.AttendantError, match="INTERNAL"):
        attend(fake(answer).target)


def test_refuses_every_truncated_reply():
    from attendant.reply import decode_response

    reply = echo_q(
        pb.AttendRequest(
            q=pb.TensorSpec(dtype=pb.DATA_TYPE_FP32, shape=[2]), q_data=bytes(8)
        ),
        None,
    ).SerializeToString()
    assert decode_response(reply, 1).out.shape == (2,)
    for size in range(len(reply)):
        with pytest.raises(attendant.AttendantError):
            decode_response(reply[:size], 1)


def test_servers_of_a_list_take_calls_in_turn(attend, fake):
    servers = [fake(echo_q), fake(echo_q)]
    both = ",".join(server.target for server in servers)
    for _ in range(100):
        assert np.array_equal(attend(both).out, Q)
        if all(server.calls for server in servers):
            break
    assert all(server.calls for server in servers)
    by_scheme = {"client_options": {"balance": True}}
    assert np.array_equal(attend("ipv4:" + both, **by_scheme).out, Q)


@pytest.mark.parametrize("target", ["gpu1:5,gpu2:5", "10.0.0.1:5,[::1]:5", "::1:5,"])
def test_a_list_of_names_is_refused(target, core):
    with pytest.raises(attendant.AttendantError) as caught:
        attendant.Client(target, core=core)
    assert caught.value.field == "target"
