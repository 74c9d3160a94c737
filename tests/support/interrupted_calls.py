"""Every public method of every client, called while something comes in between; and a ledger of what was handed out.

The methods are found by introspection, their arguments by the names of their parameters: a method that is new, with a
parameter that is not in `ARGUMENTS`, fails the tests until it is added.
"""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

import fencepost
from fencepost.client.admin.transactions import ProducerDescription
from fencepost.client.records import to_records
from fencepost.client.types import TimestampType
from fencepost.errors import KafkaError
from tests.support.strikes import Strikes

TOPIC = "interrupted"
PARTITION = fencepost.TopicPartition(TOPIC, 0)
GROUP = "interrupted"
STUCK_S = 120.0

FACES = {
    "Producer": (fencepost.Producer, fencepost.AsyncProducer),
    "Consumer": (fencepost.Consumer, fencepost.AsyncConsumer),
    "ShareConsumer": (fencepost.ShareConsumer, fencepost.AsyncShareConsumer),
    "Admin": (fencepost.Admin, fencepost.AsyncAdmin),
}
NOT_CALLS = {"from_config", "close"}
"""Made from it, or driven by tests of its own."""
FROM_ANYWHERE = set(
    """
    assignment close closed core fetch_range group_metadata lag metrics paused positions set_sasl_credentials state
    subscription wakeup
    acquisition_lock_timeout_ms
    """.split()
)
"""Methods of consumers that look only, or end a poll: any thread or task may call them."""

ARGUMENTS: dict[str, Any] = {
    "acls": [],
    "before": {PARTITION: 0},
    "broker_id": 77,
    "callback": None,
    "changes": {},
    "alter_user_scram_credentials.changes": [],
    "commit": False,
    "data": pa.table({"value": [b"a"]}),
    "end": 1,
    "filters": [],
    "group": GROUP,
    "group_id": "another group",
    "group_ids": ["another group"],
    "hmac": b"no token",
    "instance_ids": ["nobody"],
    "listener": None,
    "name": "another topic",
    "names": ["another topic"],
    "offset": 0,
    "offsets": {PARTITION: 1},
    "partition": PARTITION,
    "password": "a secret",
    "paths": {},
    "fetch_range.partition": 0,
    "partitions": [PARTITION],
    "positions": {PARTITION: 0},
    "prepared": "1:1",
    "complete.prepared": fencepost.PreparedTransaction(1, 1),
    "producer": ProducerDescription(1, 0, -1, -1, -1, -1),
    "producer_epoch": 0,
    "producer_id": 1,
    "record": fencepost.SharedRecord(TOPIC, 0, 0, 0, None, b"", [], TimestampType.CREATE_TIME, 1),
    "replicas": {PARTITION: None},
    "resources": [],
    "start": 0,
    "timestamp_ms": 0,
    "to": "earliest",
    "topic": TOPIC,
    "topics": [TOPIC],
    "total": 2,
    "transactional_id": "another id",
    "transactional_ids": ["another id"],
    "updates": {},
    "username": "a user",
    "value": b"a",
    "wanted": {PARTITION: -1},
}


def methods_of(client: type) -> list[str]:
    """All public ones but those of NOT_CALLS, and properties."""
    return [name for name in dir(client) if not name.startswith("_") and name not in NOT_CALLS]


def invoke(client: Any, name: str) -> Any:
    """The method's result, a coroutine for asyncio; a property's value. Raises KeyError for a parameter without one."""
    member = getattr(client, name)
    if not callable(member):
        return member
    keywords = {}
    for parameter in inspect.signature(member).parameters.values():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            known = f"{name}.{parameter.name}"
            keywords[parameter.name] = ARGUMENTS[known] if known in ARGUMENTS else ARGUMENTS[parameter.name]
    if name.startswith("poll"):
        keywords |= {"timeout_ms": 20}
    return member(**keywords)


def drive(client: Any, name: str) -> object:
    """Call a blocking method to its end: iterators are read, contexts entered and left."""
    result = invoke(client, name)
    if hasattr(result, "__exit__") and name == "transaction":
        with result:
            pass
    return list(result) if inspect.isgenerator(result) else result


def outcome_of(client: Any, name: str) -> object:
    """The method's result, or the error of Fencepost that it raised; any other is raised."""
    try:
        return drive(client, name)
    except KafkaError as error:
        return error


async def drive_async(client: Any, name: str) -> object:
    """As `drive`, for asyncio."""
    result = invoke(client, name)
    if name == "transaction":
        async with result:
            return None
    if hasattr(result, "__aiter__"):
        return [piece async for piece in result]
    return await result if inspect.isawaitable(result) else result


def settings_of(client: str) -> dict[str, Any]:
    """Return the settings without which the client's methods do nothing."""
    if client == "Producer":
        return {"linger_ms": 0, "max_block_ms": 5_000}
    if client == "Admin":
        return {"default_api_timeout_ms": 5_000}
    return {"group_id": GROUP if client == "Consumer" else f"{GROUP}-share", "default_api_timeout_ms": 5_000}


class Ledger:
    """The records that the application was given of a partition whose records are the numbers 0, 1, 2 ..."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def take(self, records: Iterable[Any]) -> None:
        """Records, columns or a table, as the method gave them."""
        if isinstance(records, pa.Table):
            self.given += [int(value) for value in records["value"].to_pylist()]
            return
        for each in records:
            self.given += (
                [int(each.value)]
                if hasattr(each, "value")
                else [int(record.value or b"") for record in to_records(each)]
            )

    def check(self, position: int) -> None:
        """Each record once and in order, and the position is behind the last one."""
        if self.given != list(range(len(self.given))):
            raise AssertionError(f"not each record once: {self._oddities()}")
        if position != len(self.given):
            raise AssertionError(f"{len(self.given)} records were handed out, and the position is {position}")

    def _oddities(self) -> str:
        twice = sorted({number for number in self.given if self.given.count(number) > 1})
        lost = sorted(set(range(max(self.given) + 1)) - set(self.given))
        return f"twice {twice[:10]}, never {lost[:10]}"


@contextlib.contextmanager
def nothing_hangs(seconds: float = STUCK_S) -> Iterator[None]:
    """Raise AssertionError in the main thread, with the stacks of all on standard error, if the block takes longer."""

    def strike(*_: object) -> None:
        faulthandler.dump_traceback()
        raise AssertionError(f"a call has not ended within {seconds} s")

    before = signal.signal(signal.SIGUSR2, strike)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR2))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR2, before)


def raising(error: type[BaseException]) -> Callable[[], object]:
    """A signal handler that raises."""

    def handler() -> object:
        raise error("a signal handler raised it")

    return handler


def struck(call: Callable[[], Any], at: int, handler: Callable[[], object]) -> tuple[Strikes, Any]:
    """The call with the handler at one of its points; its result, or what it raised."""
    strikes = Strikes(at, handler)
    try:
        return strikes, strikes.during(call)
    except (KafkaError, TimeoutError, KeyboardInterrupt, SystemExit) as error:
        return strikes, error


def fill(bootstrap_servers: str, topic: str, records: int) -> None:
    """A new topic of one partition with the numbers from 0 on."""
    with fencepost.Admin(bootstrap_servers) as admin, fencepost.Producer(bootstrap_servers) as producer:
        admin.create_topic(topic, 1)
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=0)
