"""The part that all clients have: metadata, errors that last, and their end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from fencepost.client.blocking.base import BlockingClient
from fencepost.client.net.open_clients import LEAVING_MS
from fencepost.compat.confluent_kafka.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.errors import KafkaError, calling, error_of
from fencepost.compat.confluent_kafka.metadata import ClusterMetadata, metadata_of
from fencepost.compat.confluent_kafka.settings import Given, milliseconds
from fencepost.errors import DisconnectedError, UsageError
from fencepost.errors import KafkaError as OurError

_LOOK_S: Final = 0.1  # between two looks for errors that last


def refusal(name: str, instead: str) -> UsageError:
    """Return the error of a call that Fencepost does not have in this form."""
    return UsageError(f"fencepost.compat.confluent_kafka: {name} is not possible here; {instead}")


class LastingErrors:
    """Calls `error_cb` once for each error that lasts."""

    def __init__(self, client: Any, error_cb: Callable[[KafkaError], Any] | None) -> None:
        """`client`: a blocking client with a cluster."""
        self._client = client
        self._error_cb = error_cb
        self._told = ""
        self._next_s = 0.0

    def tell(self) -> None:
        """Call `error_cb` in this thread if there is an error that it was not called for. Raises what it raises."""
        if self._error_cb is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LOOK_S
        client = self._client

        async def latest() -> tuple[OurError | None, bool]:
            cluster = client._core.cluster
            return cluster.lasting_errors.latest(), cluster.links.idlest() is None

        error, alone = client._io.call(latest)
        text = "" if error is None else str(error)
        if error is not None and text != self._told:
            self._told = text
            self._error_cb(error_of(error))
            if alone and isinstance(error, DisconnectedError):
                self._error_cb(KafkaError(NUMBERS["_ALL_BROKERS_DOWN"], f"no broker is connected; last error: {text}"))

    def close(self) -> None:
        """Call it no more."""
        self._error_cb = None


class MetadataClient(ABC):
    """A client that can be asked for metadata, and ends with a `with` block or when it is collected."""

    _closed_text: ClassVar[str]
    _client: Any
    _given: Given

    @abstractmethod
    def _end(self) -> object:
        """Release all resources at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def __del__(self) -> None:
        """Leave the client to itself, without a warning: in confluent-kafka close() is not needed."""
        own: BlockingClient[Any] | None = self.__dict__.get("_client")
        if own is not None and own._is_left():
            own._io.leave(own._core, LEAVING_MS)

    def _ended(self) -> bool:
        client = self.__dict__.get("_client")
        return client is None or client.closed

    def _open(self) -> Any:
        """Return Fencepost's client. Raises RuntimeError if it is closed."""
        if self._ended():
            raise RuntimeError(self._closed_text)
        return self._client

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers, and one or all topics with their partitions. Topics are not created.

        Args:
            topic: The topic; None: all.
            timeout: Maximum wait in seconds; -1: no limit.

        Raises:
            KafkaException: The brokers did not answer.
        """
        if self._ended():
            raise RuntimeError("Handle has been closed")
        client = self._client
        with calling("Handle has been closed"):
            found: ClusterMetadata = client._io.call(
                lambda: metadata_of(client._core.cluster, topic, milliseconds(timeout))
            )
        return found

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster, within `timeout` seconds (-1: no limit). Raises KafkaException."""
        return self.list_topics("", timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refuse: open a client with the new credentials."""
        self._open()
        raise refusal(f"{type(self).__name__}.set_sasl_credentials", "open a client with the new credentials")
