"""The context manager of `Producer.transaction()`, for a block in the calling thread.

A class, because a signal handler may raise at any step, also in `__enter__` and `__exit__`: inside of contextlib's
functions such an exception would leave the transaction open and the consumer held.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from fencepost.client.net.io_thread import IoThread
from fencepost.client.net.turn import TRANSACTION, Hold
from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.transaction_block import TransactionBlock
from fencepost.errors import KafkaError

if TYPE_CHECKING:
    from fencepost.client.consumer.core import ConsumerCore

P = TypeVar("P")


class BlockingTransaction(ContextDecorator, AbstractContextManager[P], Generic[P]):
    """Begin, then commit or abort.

    An exception in the first step of `__exit__`, which no code can catch, leaves the transaction open until this object
    is collected, with the traceback of that exception. Then it is aborted.
    """

    def __init__(
        self,
        producer: P,
        check: Callable[[], None],
        core: ProducerCore,
        io: IoThread,
        consumer: ConsumerCore | None,
    ) -> None:
        """`check` raises where a call of the producer cannot wait."""
        self._producer = producer
        self._check = check
        self._core = core
        self._io = io
        self._consumer = consumer
        self._hold: Hold | None = None
        self._block: TransactionBlock | None = None  # that has not come to its end

    def __enter__(self) -> P:
        self._check()
        try:
            if self._consumer is not None:
                self._hold = self._consumer.turn.take(TRANSACTION)
            self._block = block = TransactionBlock(self._core, self._consumer)
            self._io.run_through(block.__aenter__())
            return self._producer
        except BaseException as error:
            self._undo(error)
            self._release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        untold = self._core.untold
        try:
            # A forked child that leaves the block because of an error has nothing to put right: it is its parent's.
            if self._block is not None and (error is None or self._io.is_this_process()):
                self._io.run_through(self._block.__aexit__(kind, error, traceback))
        except BaseException as failure:
            untold.interrupted = not isinstance(failure, KafkaError)
            self._undo(failure)
            if untold.interrupted and untold.committed:
                failure.add_note("the transaction() block was interrupted behind its commit: it is committed")
            self._release()
            raise
        # No function is called from here on, so no signal handler raises.
        self._block = None
        if self._hold is not None:
            self._hold.ended = True
        untold.committed = False

    def _undo(self, error: BaseException) -> None:
        """Abort what `error` left open."""
        if self._block is not None and self._block.is_open and self._io.is_this_process():
            self._io.run_through(self._block.__aexit__(type(error), error, error.__traceback__))

    def _release(self) -> None:
        self._block = None
        if self._hold is not None:
            self._hold.ended = True

    def __del__(self) -> None:
        block = self._block
        if block is not None and block.is_open and self._io.is_this_process():
            self._io.call_soon(block.abandon)
