"""The context manager of `Producer.transaction()`, for a block in the calling thread.

It is a class, because a signal handler may raise at any step, also in `__enter__` and `__exit__`. Inside contextlib's
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
from fencepost.client.producer.transaction_block import ENTERED_TWICE, TransactionBlock
from fencepost.errors import KafkaError, UsageError

if TYPE_CHECKING:
    from fencepost.client.consumer.core import ConsumerCore

P = TypeVar("P")


class BlockingTransaction(ContextDecorator, AbstractContextManager[P], Generic[P]):
    """Begins a transaction, then commits or aborts it.

    No code can catch an exception of a signal handler in the first step of `__exit__`. The transaction then stays open
    until this object is collected, together with the traceback of that exception. Its `__del__` starts the abort.
    """

    def __init__(
        self,
        producer: P,
        check: Callable[[], None],
        core: ProducerCore,
        io: IoThread,
        consumer: ConsumerCore | None,
    ) -> None:
        """Create the context manager. `check` raises in threads in which a call of the producer cannot wait."""
        self._producer = producer
        self._check = check
        self._core = core
        self._io = io
        self._consumer = consumer
        self._hold: Hold | None = None
        self._block: TransactionBlock | None = None  # the block, until it has ended

    def __enter__(self) -> P:
        self._check()
        if self._block is not None:
            raise UsageError(ENTERED_TWICE)
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
        unreported = self._core.unreported
        try:
            # In a forked child that leaves the block because of an error there is nothing to do: the parent owns the
            # transaction.
            if self._block is not None and (error is None or self._io.is_this_process()):
                self._io.run_through(self._block.__aexit__(kind, error, traceback))
        except BaseException as failure:
            unreported.interrupted = not isinstance(failure, KafkaError)
            self._undo(failure)
            if unreported.interrupted and unreported.committed:
                failure.add_note("the transaction() block was interrupted behind its commit: it is committed")
            self._release()
            raise
        # No function is called from here on, so no signal handler raises.
        self._block = None
        if self._hold is not None:
            self._hold.ended = True
        unreported.committed = False

    def _undo(self, error: BaseException) -> None:
        """Abort the transaction that `error` left open."""
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
