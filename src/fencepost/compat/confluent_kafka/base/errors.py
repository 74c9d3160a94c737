"""KafkaError and KafkaException with the interface of confluent-kafka, and the conversion of our exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Any, Final

from fencepost import errors
from fencepost.compat.confluent_kafka.base.error_codes import NAMES, NUMBERS

__all__ = ["KafkaError", "KafkaException", "calling", "error_of", "local_error", "transactional_error"]


_Text: Final = str  # `KafkaError.str` hides the name inside the class


class _Codes(type):
    """A metaclass that has the error codes as attributes of the class."""

    def __getattr__(cls, name: str) -> int:
        try:
            return NUMBERS[name]
        except KeyError:
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}") from None

    def __dir__(cls) -> list[str]:
        return [*super().__dir__(), *NUMBERS]


class KafkaError(metaclass=_Codes):
    """An error. It compares equal to its code. The codes are attributes of the class."""

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        """Create an error.

        Args:
            error: The code.
            reason: The text; default: the name of the code.
            fatal: The client cannot continue.
            retriable: The call may be repeated.
            txn_requires_abort: The transaction must be aborted.

        Raises:
            TypeError: A value has a wrong type.
        """
        if not isinstance(error, int):
            raise TypeError(f"error must be int, not {type(error).__name__}")
        if not isinstance(reason, (_Text, NoneType)):
            raise TypeError(f"reason must be str, not {type(reason).__name__}")
        self._code = int(error)
        self._reason = reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._txn_requires_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """Return the code."""
        return self._code

    def name(self) -> str:
        """Return the name of the code."""
        return NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """Return the text."""
        if self._reason is not None:
            return self._reason
        return NAMES.get(self._code, f"Err-{self._code}?")

    def fatal(self) -> bool:
        """Return true if the client cannot continue."""
        return self._fatal

    def retriable(self) -> bool:
        """Return true if the transactional call may be repeated."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return true if the transaction must be aborted."""
        return self._txn_requires_abort

    def __repr__(self) -> Any:
        mark = "FATAL," if self._fatal else ""
        return f'KafkaError{{{mark}code={self.name()},val={self._code},str="{self.str()}"}}'

    __str__ = __repr__

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self._code)

    def __eq__(self, other: object) -> bool:
        code = _code_in(other)
        return NotImplemented if code is None else self._code == code

    def __lt__(self, other: object) -> bool:
        code = _code_in(other)
        return NotImplemented if code is None else self._code < code

    def __le__(self, other: object) -> bool:
        code = _code_in(other)
        return NotImplemented if code is None else self._code <= code

    def __gt__(self, other: object) -> bool:
        code = _code_in(other)
        return NotImplemented if code is None else self._code > code

    def __ge__(self, other: object) -> bool:
        code = _code_in(other)
        return NotImplemented if code is None else self._code >= code


def _code_in(other: object) -> int | None:
    if isinstance(other, KafkaError):
        return other.code()
    return other if isinstance(other, int) else None


class KafkaException(Exception):
    """An exception. `args[0]` is its KafkaError, and `__cause__` the exception of Fencepost."""


# Codes by class; the first matching class counts. An error's own wire code precedes `_BY_CLASS`, but not
# `_BEFORE_CODES`.
_BEFORE_CODES: Final[tuple[tuple[type[errors.KafkaError], str], ...]] = (
    (errors.ProducerFencedError, "_FENCED"),
    (errors.FencedOrTimedOutError, "_FENCED"),
    (errors.AuthenticationError, "_AUTHENTICATION"),
)
_BY_CLASS: Final[tuple[tuple[type[errors.KafkaError], str], ...]] = (
    (errors.ClosedError, "_DESTROY"),
    (errors.UsageError, "_STATE"),
    (errors.UnknownTopicOrPartitionError, "UNKNOWN_TOPIC_OR_PART"),
    (errors.BufferFullError, "_QUEUE_FULL"),
    (errors.KafkaTimeoutError, "_TIMED_OUT"),
    (errors.AllBrokersDownError, "_ALL_BROKERS_DOWN"),
    (errors.DisconnectedError, "_TRANSPORT"),
    (errors.RecordRejectedError, "MSG_SIZE_TOO_LARGE"),
    (errors.ConfigurationError, "_INVALID_ARG"),
    (errors.UnsupportedVersionError, "_UNSUPPORTED_FEATURE"),
    (errors.CorruptRecordError, "_BAD_MSG"),
    (errors.ProtocolError, "_BAD_MSG"),
    (errors.GroupFencedError, "_ASSIGNMENT_LOST"),
    (errors.AbortableError, "_STATE"),
    (errors.FatalError, "_FATAL"),
    (errors.ApplicationRecoverableError, "_FATAL"),
)


def code_of(error: BaseException | None) -> int:
    """Return the code for an exception of Fencepost: that of its class, its own code, or that of its cause."""
    while isinstance(error, errors.KafkaError):
        if isinstance(error, errors.RecordPurgedError):
            return NUMBERS["_PURGE_INFLIGHT" if error.outcome_unknown else "_PURGE_QUEUE"]
        for kind, name in _BEFORE_CODES:
            if isinstance(error, kind):
                return NUMBERS[name]
        if error.code is not None:
            return int(error.code)
        wrapper = isinstance(error, (errors.ProduceFailedError, errors.TransactionCommitFailedError))
        if not wrapper or not isinstance(error.__cause__, errors.KafkaError):
            return next((NUMBERS[name] for kind, name in _BY_CLASS if isinstance(error, kind)), NUMBERS["_FAIL"])
        error = error.__cause__
    return NUMBERS["_FAIL"]


def error_of(error: errors.KafkaError, *, code: int | None = None) -> KafkaError:
    """Return the KafkaError for an exception of Fencepost, outside of transactional calls.

    After a timeout, it has the code of the last answer, if there was one.
    """
    if code is None:
        last = error.__cause__ if isinstance(error, errors.KafkaTimeoutError) else None
        code = last.code if isinstance(last, errors.KafkaError) else None
    return KafkaError(code_of(error) if code is None else code, str(error))


def local_error(name: str, text: str, **flags: bool) -> KafkaException:
    """Return the exception for a local code."""
    return KafkaException(KafkaError(NUMBERS[name], text, **flags))


def transactional_error(error: errors.KafkaError) -> KafkaError:
    """Return the KafkaError for an exception in a transactional call, with the flags for the next action."""
    code, text = code_of(error), str(error)
    if isinstance(error, errors.UsageError):
        return KafkaError(NUMBERS["_NOT_CONFIGURED"] if "no transactional_id" in text else code, text)
    if error.outcome_unknown or isinstance(error, errors.KafkaTimeoutError):
        return KafkaError(NUMBERS["_TIMED_OUT"], text, retriable=True)
    if isinstance(error, errors.AbortableError):
        return KafkaError(code, text, txn_requires_abort=True)
    if isinstance(error, errors.RetriableError):
        return KafkaError(code, text, retriable=True)
    return KafkaError(code, text, fatal=True)


@contextmanager
def calling(closed: str) -> Iterator[None]:
    """Convert exceptions of Fencepost to KafkaException, and ClosedError to RuntimeError with the text `closed`.

    A UsageError is not converted, because it names a call that confluent-kafka allows and Fencepost does not.
    """
    try:
        yield
    except errors.ClosedError as error:
        raise RuntimeError(closed) from error
    except errors.UsageError:
        raise
    except errors.KafkaError as error:
        raise KafkaException(error_of(error)) from error
