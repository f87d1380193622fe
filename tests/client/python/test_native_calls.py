"""Calls of the native core from several threads, tasks and processes."""

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading
from concurrent import futures

import numpy as np
import pytest

import attendant
from attendant import native_core, native_library
from attendant.native_core import NativeCore
from attendant.native_result import NativeResult
from fake_server import echo_q

LIBRARY = os.environ.get("ATTENDANT_CLIENT_LIBRARY", "")
pytestmark = pytest.mark.skipif(
    not os.path.exists(LIBRARY), reason="no library at ATTENDANT_CLIENT_LIBRARY"
)
Q = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)


@pytest.fixture
def eager_threads():
    """Threads that take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_many_threads_calls_of_one_shape_read_their_own_tensors(fake):
    with attendant.Client(fake(echo_q).target, core="native") as client:

        def repeat(number):
            q = np.full_like(Q, number)
            return all(
                (client.attend(q, q, q, timeout=30).out == number).all()
                for _ in range(200)
            )

        with futures.ThreadPoolExecutor(8) as threads:
            assert all(threads.map(repeat, range(8)))


@pytest.mark.usefixtures("eager_threads")
def test_one_prepared_call_bears_several_threads(fake):
    # Whose answers they read is then chance; nothing is freed twice.
    with attendant.Client(fake(echo_q).target, core="native") as client:
        call = client.prepare(Q, Q, Q, lse=np.zeros((1, 3, 4), np.float32))
        with futures.ThreadPoolExecutor(8) as threads:
            results = list(threads.map(lambda _: call.attend(timeout=30), range(400)))
    assert all((result.out == Q).all() for result in results)
    assert {result.lse for result in results} == {None}  # it was not asked for
    assert {result.attempts for result in results} == {1}


def test_details_outlive_later_calls_and_the_client(fake):
    def answer(request, context):
        response = echo_q(request, context)
        response.request_id = request.request_id or "unnamed"
        return response

    with attendant.Client(fake(answer).target, core="native") as client:
        results = []
        for number in range(100):
            results.append(client.attend(Q, Q, Q, timeout=30, request_id=str(number)))
            assert client.attend(Q, Q, Q, timeout=30).request_id == "unnamed"
    assert [result.request_id for result in results] == [str(n) for n in range(100)]
    copy = pickle.loads(pickle.dumps(results[7]))
    assert copy.request_id == "7"
    assert (copy.out == Q).all()


def test_records_of_answers_are_freed_once_and_soon():
    step = threading.Barrier(2)

    class Together(list):
        """Both threads see what both have appended."""

        def append(self, value):
            super().append(value)
            step.wait(30)

    library = object.__new__(native_library.Library)
    library.dropped = Together()
    freed = []
    library.result_free = freed.append

    def drop(first):
        for record in range(first, first + 16):
            NativeResult(Q, None, library, record)

    with futures.ThreadPoolExecutor(2) as threads:
        list(threads.map(drop, (0, 16)))
    assert sorted(freed) == list(range(32))


def test_answers_in_new_arrays_share_no_memory(fake):
    with attendant.Client(fake(echo_q).target, core="native") as client:
        kept = [client.attend(Q + n, Q, Q, timeout=30).out for n in range(40)]
        for n, out in enumerate(kept):
            client.attend(Q - 1, Q, Q, timeout=30)
            np.testing.assert_array_equal(out, Q + n)


@pytest.fixture
def gate(fake):
    """A server that answers only once it is released, and what it saw."""
    arrived, release = threading.Event(), threading.Event()

    def answer(request, context):
        arrived.set()
        release.wait(30)
        return echo_q(request, context)

    yield fake(answer).target, arrived
    release.set()


def test_a_future_is_aborted(gate):
    target, arrived = gate
    with attendant.Client(target, core="native") as client:
        future = client.submit(Q, Q, Q, timeout=30)
        assert arrived.wait(30)
        future.abort()
        with pytest.raises(attendant.AttendantError, match="CANCELLED"):
            future.result(30)


def test_a_cancelled_task_ends_its_call(gate):
    target, arrived = gate

    async def run():
        async with attendant.AsyncClient(target, core="native") as client:
            task = asyncio.create_task(client.attend(Q, Q, Q, timeout=30))
            await asyncio.to_thread(arrived.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_a_cancelled_task_goes_on_when_nobody_writes_to_its_memory(fake, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    ended = []

    def attend(*arguments):
        begun.set()
        may_end.wait(30)
        ended.append(arguments)

    monkeypatch.setattr(NativeCore, "attend", attend)

    async def run():
        async with attendant.AsyncClient(fake(echo_q).target, core="native") as client:
            task = asyncio.create_task(client.attend(Q, Q, Q, timeout=30))
            await asyncio.to_thread(begun.wait, 30)
            for _ in range(3):  # cancelling it again changes nothing
                task.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not task.done()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended

    asyncio.run(run())


def test_close_ends_calls_under_way(gate):
    target, arrived = gate
    client = attendant.Client(target, core="native")
    failures = []

    def call():
        try:
            client.attend(Q, Q, Q, timeout=30)
        except attendant.AttendantError as error:
            failures.append(error.code)

    thread = threading.Thread(target=call)
    thread.start()
    assert arrived.wait(30)
    client.close()
    thread.join()
    assert failures == [attendant.StatusCode.CANCELLED]
    with pytest.raises(attendant.AttendantError, match="closed"):
        client.attend(Q, Q, Q, timeout=30)


def test_calls_that_wait_for_a_thread_end_with_their_client(gate):
    target, arrived = gate

    async def run():
        client = attendant.AsyncClient(target, core="native", threads=1)
        tasks = [
            asyncio.create_task(client.attend(Q, Q, Q, timeout=30)) for _ in range(3)
        ]
        await asyncio.to_thread(arrived.wait, 30)
        await client.close()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, attendant.AttendantError)
            assert error.code == attendant.StatusCode.CANCELLED

    asyncio.run(run())


def test_a_closed_client_refuses_every_kind_of_call(fake, core):
    target = fake(echo_q).target
    client = attendant.Client(target, core=core)
    client.close()
    for call in (
        lambda: client.attend(Q, Q, Q, timeout=30),
        lambda: client.submit(Q, Q, Q, timeout=30).result(30),
        lambda: client.prepare(Q, Q, Q).attend(timeout=30),
        lambda: client.get_server_info(timeout=30),
    ):
        with pytest.raises(attendant.AttendantError, match="CANCELLED.*closed"):
            call()

    async def run():
        other = attendant.AsyncClient(target, core=core)
        await other.close()
        for call in (
            other.attend(Q, Q, Q, timeout=30),
            other.get_server_info(timeout=30),
        ):
            with pytest.raises(attendant.AttendantError, match="CANCELLED.*closed"):
                await call

    asyncio.run(run())


@pytest.fixture
def freed(monkeypatch):
    """The clients that the library was told to free."""
    library, _ = native_library.load()
    handles = []
    real = library.client_free

    def client_free(handle):
        handles.append(handle.value)
        real(handle)

    monkeypatch.setattr(library, "client_free", client_free)
    return handles


def test_a_client_that_nobody_has_is_freed_once(fake, freed):
    target = fake(echo_q).target
    client = attendant.Client(target, core="native")
    client.attend(Q, Q, Q, timeout=30)
    client.submit(Q, Q, Q, timeout=30).result(30)
    call = client.prepare(Q, Q, Q)
    handle = client._native.handle.value
    del client
    gc.collect()
    assert not freed  # the prepared call has it
    assert (call.attend(timeout=30).out == Q).all()
    del call
    gc.collect()
    assert freed == [handle]
    with attendant.Client(target, core="native") as client:
        handle = client._native.handle.value
    del client
    gc.collect()
    assert freed[1:] == [handle]


def test_a_child_does_not_free_its_parents_client(fake, freed, monkeypatch):
    client = attendant.Client(fake(echo_q).target, core="native")
    monkeypatch.setattr(native_core, "_forks", 1)
    del client
    gc.collect()
    assert not freed


def test_arrays_of_a_prepared_call_outlive_call_and_client(target, float32):
    def rows():
        client = attendant.Client(target, core="native", door="shm")
        call = client.prepare(Q, Q, Q, **float32)
        result = call.attend(timeout=60)
        return result.out[0, 1:], call.q[0, 1:]

    out, q = rows()
    gc.collect()
    with attendant.Client(target, core="native") as client:
        np.testing.assert_array_equal(
            out, client.attend(Q, Q, Q, timeout=60, **float32).out[0, 1:]
        )
    np.testing.assert_array_equal(q, Q[0, 1:])


def test_other_python_threads_run_during_a_call(gate):
    target, arrived = gate
    with attendant.Client(target, core="native") as client:
        thread = threading.Thread(
            target=lambda: pytest.raises(
                attendant.AttendantError, client.attend, Q, Q, Q, timeout=30
            )
        )
        thread.start()
        assert arrived.wait(30), "this thread holds the interpreter"
        client.close()
        thread.join()


FORK = """
import multiprocessing, socket, threading, attendant, numpy

q = numpy.zeros((1, 4, 3, 2), numpy.float32)

def told(call):
    try:
        call()
        return "answered"
    except attendant.AttendantError as error:
        return error.code.name

def child(client, queue):
    queue.put(told(lambda: client.attend(q, q, q, timeout=5)))
    queue.put(told(lambda: client.submit(q, q, q, timeout=5).result(10)))
    queue.put(told(lambda: client.prepare(q, q, q)))
    queue.put(told(lambda: client.get_server_info(timeout=5)))
    client.close()
    queue.put("closed")
    queue.put(told(lambda: attendant.Client("localhost:1", core="native")))
    queue.put(attendant.Client("localhost:1", door="auto").core)

silent = socket.create_server(("127.0.0.1", 0))
client = attendant.Client(f"127.0.0.1:{silent.getsockname()[1]}", core="native")
waiting = threading.Thread(target=told, args=[
    lambda: client.attend(q, q, q, timeout=60)])
waiting.start()
while not client._native._running:
    pass
context = multiprocessing.get_context("fork")
queue = context.Queue()
forked = context.Process(target=child, args=(client, queue))
forked.start()
print(*[queue.get(timeout=30) for _ in range(7)])
forked.join()
client.close()
waiting.join()
"""


def test_a_fork_of_a_client_is_refused_while_its_parent_calls():
    # In a process without grpcio, whose own handlers may hold up a fork.
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    wanted = [*4 * ["FAILED_PRECONDITION"], "closed", "INVALID_ARGUMENT", "grpcio"]
    assert done.stdout.split() == wanted, done.stderr
    assert "was forked after native clients were made" in done.stderr


FORK_FIRST = """
import os, sys, attendant, numpy

def call():
    q = numpy.zeros((1, 4, 3, 2), numpy.float32)
    with attendant.Client(sys.argv[1], core="native") as client:
        client.attend(q, q, q, timeout=30)

child = os.fork()
call()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both")
"""


def test_parent_and_child_both_call_if_their_clients_were_made_after_the_fork(fake):
    done = subprocess.run(
        [sys.executable, "-c", FORK_FIRST, fake(echo_q).target],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "both\n", done.stderr
