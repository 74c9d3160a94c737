"""The thread of all blocking clients outlives what applications' functions raise there."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost.client.net import io_thread
from fencepost.client.net.io_thread import IoThread


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


class Leaves:
    """An interceptor that tries to end the program."""

    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        raise SystemExit(3)

    def close(self) -> None:
        raise SystemExit(3)


def leave(*_: object) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_callback_that_ends_the_program_ends_nothing_else(
    broker: fencepost.Broker, ending: type[BaseException]
) -> None:
    def callback(error: object, metadata: object) -> None:
        raise ending

    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        assert producer.send("t", b"1", on_delivery=callback).result(30).offset >= 0
        assert producer.send("t", b"2").result(30).offset >= 0


def test_an_interceptor_that_ends_the_program_ends_nothing_else(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, interceptors=[Leaves()]) as producer:
        assert producer.send("t", b"1").result(30).offset >= 0
        assert producer.send("t", b"2").result(30).offset >= 0


def test_a_partitioner_that_ends_the_program_fails_its_record(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, partitioner=leave) as producer:
        failed = producer.send("t", b"1").exception(30)
        assert isinstance(failed, fencepost.errors.ProduceFailedError)
        assert "SystemExit" in str(failed)
        assert producer.send("t", b"2", partition=0).result(30).offset >= 0


def test_whatever_else_runs_there_cannot_end_it(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer._io.call_soon(leave)
        assert producer.send("t", b"1").result(30).offset >= 0


@pytest.mark.parametrize("make", [fencepost.Producer, fencepost.Consumer, fencepost.Admin])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_is_not_copied(broker: fencepost.Broker, make: Any, copied: Any) -> None:
    """A copy would close the original when it is collected."""
    with make(broker.bootstrap_servers) as client, pytest.raises(TypeError, match="cannot be copied or pickled"):
        copied(client)


class Slow:
    """A core whose brokers do not answer when it leaves."""

    cluster = None

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ends: list[str] = []

    async def leave(self, timeout_ms: int) -> None:
        self.ends.append(f"begun with {timeout_ms} ms")
        self.begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise

    def close_warning(self) -> str:
        return ""

    def metrics(self) -> dict[str, float]:
        return {}


def test_the_end_of_the_program_does_not_close_anew_what_is_being_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second close would only report that the first has not finished."""
    monkeypatch.setattr(io_thread, "GRACE_S", 0.1)
    thread, core = IoThread(), Slow()
    thread.keep(core)
    thread.leave(core, 30_000)
    assert core.begun.wait(60)
    thread.end(50)
    assert core.ends == ["begun with 30000 ms", "cancelled"]
    thread.stop()


def test_a_call_that_the_end_of_the_program_cuts_off_says_so() -> None:
    """A call without a client, as those of a Spark sink. The first hook runs last."""
    program = """
import asyncio, atexit, os, threading
threads = []
atexit.register(lambda: [thread.join(60) for thread in threads])
from fencepost.client.net.io_thread import io_thread
def wait(call):
    try:
        call(asyncio.sleep(600))
    except BaseException as error:
        found = type(error).__name__, error.outcome_unknown, str(error).startswith("the program ended")
        os.write(1, (" ".join(map(str, found)) + "\\n").encode())  # print writes the end of a line by itself
io = io_thread()
threads += [threading.Thread(target=wait, args=[call], daemon=True) for call in (io.run, io.run_through)]
for thread in threads:
    thread.start()
while len(asyncio.all_tasks(io.loop)) < 2:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["ClosedError True True"] * 2, "")
