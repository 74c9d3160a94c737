"""A delivery that was begun before fork() is the parent's: the child that waits for it is told so at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

import fencepost
from fencepost.errors import ForkedError

Wait = Callable[[fencepost.Producer], object]

WAITS: dict[str, Wait] = {
    "result": lambda producer: producer.send("t", b"v").result,
    "exception": lambda producer: producer.send("t", b"v").exception,
    "arrow": lambda producer: producer.send_arrow("t", pytest.importorskip("pyarrow").table({"value": [b"v"]})).result,
}


def status_of_child(call: Callable[[], object]) -> int:
    """0: the call raised ForkedError in a forked child; 1: it did anything else."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends the child if the call waits
        try:
            call()
        except ForkedError:
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", WAITS)
def test_a_forked_child_cannot_wait_for_a_delivery(name: str) -> None:
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        wait = WAITS[name](producer)
        assert callable(wait)
        assert status_of_child(wait) == 0
        producer.flush()
        assert wait() is not None or name == "exception"
