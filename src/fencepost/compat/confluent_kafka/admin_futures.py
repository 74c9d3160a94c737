"""The base of AdminClient: its futures, which have the result of an item or raise its KafkaException."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Final, TypeVar

from fencepost.client.blocking.admin import Admin
from fencepost.compat.confluent_kafka.base.errors import KafkaException, calling, error_of
from fencepost.compat.confluent_kafka.base.settings import given, milliseconds
from fencepost.compat.confluent_kafka.clients import Events, MetadataClient
from fencepost.config import AdminConfig
from fencepost.errors import ItemsFailedError
from fencepost.errors import KafkaError as OurError

__all__ = ["Futures", "FuturesClient", "filled", "limit_of"]

K = TypeVar("K", bound=Hashable)

_CLOSED: Final = "AdminClient has been closed"
_THREADS: Final = 4
_LOOK_S: Final = 0.1  # poll() looks for errors and statistics at this interval

Futures = dict[K, "Future[Any]"]


class FuturesClient(MetadataClient):
    """A client whose calls run in threads and return futures."""

    _closed_text: ClassVar[str] = _CLOSED

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        """Create a client from a dict of settings with librdkafka's names."""
        self._given = given(AdminConfig, (conf,), kwargs)
        self._events = Events(self._given, "producer")  # as librdkafka calls it
        with calling(_CLOSED):
            self._client = Admin(**self._given.config)
        self._client._warns_unclosed = False
        self._events.begin(self._client)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fencepost-admin")

    def __len__(self) -> int:
        return 0

    def _end(self) -> None:
        if not self._ended():
            self._threads.shutdown()
            self._client.close()

    def __del__(self) -> None:
        if "_threads" in self.__dict__:
            self._threads.shutdown(wait=False)
        super().__del__()

    def poll(self, timeout: float = -1) -> int:
        """Call error_cb and stats_cb during `timeout` seconds. Returns 0, because futures need no poll."""
        self._open()
        until_s = time.monotonic() + max(timeout, 0)
        self._events.tell()
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_S))
            self._events.tell()
        return 0

    # --- futures ---

    def _each(
        self,
        items: Mapping[K, Any],
        call: Callable[[], Mapping[Any, Any] | None],
        read: Callable[[Any], Any] = lambda _: None,
    ) -> Futures[K]:
        """Return a future for each item.

        Args:
            items: The key of each item in the results of `call`, by its key in the answer.
            call: The call, which returns results by key, or raises ItemsFailedError.
            read: Converts a result of the call to the result of confluent-kafka.
        """
        futures: Futures[K] = {item: Future() for item in items}
        for future in futures.values():
            future.set_running_or_notify_cancel()

        def run() -> None:
            errors: Mapping[Any, OurError] = {}
            found: Mapping[Any, Any] = {}
            try:
                found = call() or {}
            except ItemsFailedError as error:
                found, errors = error.results, error.errors
            except Exception as error:  # noqa: BLE001 (each future raises it)
                for future in futures.values():
                    future.set_exception(_exception(error))
                return
            for item, key in items.items():
                _settle(futures[item], errors.get(key), lambda key=key: read(found.get(key)))  # type: ignore[misc]

        self._threads.submit(run)
        return futures

    def _future(self, call: Callable[[], Any]) -> Future[Any]:
        """Return a future for the result of a call."""
        self._open()
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._threads.submit(_settle, future, None, call)
        return future


def _settle(future: Future[Any], error: OurError | None, read: Callable[[], Any]) -> None:
    """Set the future's exception to `error` if there is one, else set its result or exception from `read`."""
    try:
        if error is not None:
            raise error
        result = read()
    except Exception as raised:  # noqa: BLE001 (the future raises it)
        future.set_exception(_exception(raised))
    else:
        future.set_result(result)


def _exception(error: Exception) -> Exception:
    """Return the KafkaException for an exception of Fencepost, and other exceptions unchanged."""
    if not isinstance(error, OurError):
        return error
    converted = KafkaException(error_of(error))
    converted.__cause__ = error
    return converted


def limit_of(request_timeout: float | None) -> int | None:
    """Return `request_timeout` in ms; None if it is not given. Raises TypeError, and ValueError if it is negative."""
    limit_ms = milliseconds(request_timeout)
    if request_timeout is not None and limit_ms is None:
        raise ValueError(f"request_timeout={request_timeout}: must not be negative")
    return limit_ms


def filled(name: str, items: object, kind: type[K]) -> list[K]:
    """Return a list with items of a type. Raises TypeError, and ValueError for an empty list or an item None."""
    if isinstance(items, list) and None in items:
        raise ValueError(f"{name}: an item is None")
    if not isinstance(items, list) or not all(isinstance(each, kind) for each in items):
        raise TypeError(f"{name}: expected a list of {kind.__name__}")
    if not items:
        raise ValueError(f"{name}: expected a non-empty list of {kind.__name__}")
    return items
