"""The task of a blocking call is freed in the I/O thread.

asyncio's weak set of tasks runs a callback where a task is freed. In the thread that calls, which is often the main
thread, the exception of a signal handler would be lost in that callback.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from fencepost.client.net.io_thread import io_thread
from tests.support.waiting import until

Make = Callable[[], Coroutine[Any, Any, object]]
Call = Callable[[Make], object]


def by_call(make: Make) -> object:
    return io_thread().call(make)


def by_run_through(make: Make) -> object:
    return io_thread().run_through(make())


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    """It frees cycles in any thread."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("call", [by_call, by_run_through])
@pytest.mark.parametrize("ending", ["result", "error", "cancelled"])
def test_a_task_is_freed_in_the_loop(call: Call, ending: str) -> None:
    freed_in: list[int] = []
    references: list[weakref.ref[Any]] = []
    loop_thread: list[int] = []

    async def run() -> object:
        # No local variable, which a traceback would keep.
        references.append(weakref.ref(asyncio.current_task(), lambda _: freed_in.append(threading.get_ident())))
        loop_thread.append(threading.get_ident())
        if ending == "error":
            raise ValueError(ending)
        if ending == "cancelled":
            raise asyncio.CancelledError
        return ending

    with suppress(ValueError, concurrent.futures.CancelledError):
        call(run)
    until(lambda: bool(freed_in))
    assert freed_in == loop_thread
    assert loop_thread != [threading.get_ident()]


@pytest.mark.parametrize("call", [by_call, by_run_through])
def test_an_error_is_raised_as_it_is(call: Call) -> None:
    error = ValueError("of the coroutine")

    async def run() -> object:
        raise error

    with pytest.raises(ValueError, match="of the coroutine") as raised:
        call(run)
    assert raised.value is error
