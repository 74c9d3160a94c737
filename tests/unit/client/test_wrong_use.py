"""Every parameter of every public call, given what is not meant: refused at once, by name, before anything is asked.

The rows say what each annotation takes of `GIVEN`; everything else has to be refused. A new parameter whose annotation
has no row fails here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import fencepost
from fencepost.broker.embedded_control import BrokerClock, BrokerDisk, BrokerFaults, Fault
from fencepost.client import aio, blocking
from fencepost.client.admin.elections import ElectionType
from fencepost.client.admin.transactions import ProducerDescription
from fencepost.client.types import TimestampType
from fencepost.errors import ConfigurationError, RecordRejectedError
from fencepost.testing import read_all

NOWHERE = "127.0.0.1:1"

GIVEN: dict[str, Any] = {
    "none": None,
    "whole": 5,
    "wide": 2**31,  # more than 32 bits hold
    "too wide": 2**63,  # more than 64 bits hold
    "negative": -9,
    "fraction": 1.5,
    "nan": float("nan"),
    "truth": True,
    "text": "text",
    "empty": "",
    "no UTF-8": "\ud800",
    "long text": "x" * 2**15,  # more than a string of the protocol holds
    "bytes": b"bytes",
    "pair": ("t", 0),
    "list of a pair": [("t", 0)],
    "list of texts": ["a"],
    "list of empty texts": [""],
    "list of long texts": ["x" * 2**15],
    "list of texts not in UTF-8": ["\ud800"],
    "list of pairs not in UTF-8": [("\ud800", 0)],
    "list of numbers": [5],
    "list of negative numbers": [-9],
    "list of wrong pairs": [("t", "0")],
    "list of turned pairs": [(0, "t")],
    "list of pairs of nothing": [("", 0)],
    "list of pairs below": [("t", -1)],
    "list of wide pairs": [("t", 2**31)],
    "list of wide numbers": [2**31],
    "texts": {"a": "b"},
    "texts to empty texts": {"a": ""},
    "texts to long texts": {"a": "x" * 2**15},
    "texts not in UTF-8": {"\ud800": "b"},
    "texts to numbers": {"a": 5},
    "texts to wide numbers": {"a": 2**31},
    "pairs to numbers": {("t", 0): 5},
    "pairs to negative numbers": {("t", 0): -9},
    "pairs to wide numbers": {("t", 0): 2**31},
    "pairs to too wide numbers": {("t", 0): 2**63},
    "wide pairs to numbers": {("t", 2**31): 5},
    "pairs to wide epochs": {("t", 0): fencepost.OffsetAndMetadata(5, "", 2**31)},
    "pairs to texts": {("t", 0): "5"},
    "pairs to tuples": {("t", 0): (5, "")},
    "pairs to long metadata": {("t", 0): fencepost.OffsetAndMetadata(5, "x" * 2**15)},
    "pairs to bad offsets": {("t", 0): fencepost.OffsetAndMetadata(-9)},
    "function": len,
    "thing": object(),
}

# annotation: what of the above it takes (of which the first stands in where another parameter is tried)
TEXTS = (
    "texts, texts to empty texts, texts to long texts, texts not in UTF-8"  # of which some are no texts of the protocol
)
PAIRS, POSITIONS = "list of a pair", "pairs to numbers, pairs to wide numbers"
TAKES: dict[str, str] = {
    "str": "text",
    "MaybeEmpty": "text, empty",
    "str | None": "text, none",
    "str | int": "text, whole, wide, truth",
    "str | os.PathLike[str] | None": "text, none, no UTF-8, long text",
    "str | Sequence[str]": "text, empty, list of texts",
    "int": "whole, wide",
    "int | None": "whole, wide, none",
    "int | str": "whole",
    "Int8": "whole",
    "Int16": "whole",
    "Int16 | None": "whole, none",
    "Int16OrMinusOne": "whole",
    "Int32": "whole",
    "Int32 | None": "whole, none",
    "Int32OrMinusOne": "whole",
    "float": "whole, wide, too wide, fraction",
    "float | None": "none, whole, wide, too wide, fraction",
    "Milliseconds": "whole, wide",
    "Milliseconds | None": "none, whole, wide",
    "bool": "truth",
    "bool | None": "none, truth",
    "bytes | None": "none, bytes",
    "object": ", ".join(GIVEN),
    "tuple[str, int]": "pair",
    "Iterable[str]": "list of texts",
    "Iterable[str] | re.Pattern[str]": "list of texts",
    "str | re.Pattern[str] | None": "none, text",
    "Iterable[str] | None": "list of texts, none",
    "Sequence[str]": "list of texts",
    "Sequence[str] | None": "list of texts, none",
    "Iterable[Int8]": "list of numbers",
    "Iterable[int]": "list of numbers, list of wide numbers",
    "Iterable[Int32] | None": "list of numbers, none",
    "Iterable[tuple[str, int]]": PAIRS,
    "Iterable[tuple[str, int]] | None": f"{PAIRS}, none",
    "Sequence[tuple[str, int]]": PAIRS,
    "Mapping[str, Any]": f"{TEXTS}, texts to numbers, texts to wide numbers",
    "Mapping[str, object] | None": f"none, {TEXTS}, texts to numbers, texts to wide numbers",
    "Mapping[str, str]": "texts",
    "Mapping[str, str] | None": "none, texts, texts to empty texts",
    "Mapping[str, MaybeEmpty | None]": "texts, texts to empty texts",
    "Mapping[K, OffsetAndMetadata | int]": POSITIONS,
    "Mapping[K, OffsetAndMetadata | int] | None": f"{POSITIONS}, none",
    "Mapping[K, offsets.TimestampOrEnd]": POSITIONS,
    "Mapping[K, OrMinusOne]": POSITIONS,
    "Mapping[K, Sequence[Int32] | None]": "",
    "GroupMetadata | str": "text",
    "PreparedTransaction": "",
    "PreparedTransaction | str": "text",
    "Isolation": "",
    "ErrorCode | Int16": "whole",
    "ProducerDescription": "",
    "Iterable[Acl]": "",
    "Iterable[AclFilter]": "",
    "Iterable[ScramUpsertion | ScramDeletion]": "",
    "AclFilter | None": "none",
    "Headers | None": "none",
    "OnDelivery | None": "none, function",
    "OnCommit | None": "none, function",
    "OnAcknowledged | None": "none, function",
    "SharedRecord": "",
    "AcknowledgeType": "",
    "RebalanceListener | None": "none",
    "clients.Consumer | None": "none",
    "Broker": "",
    "pa.RecordBatch | pa.Table": "",
    "bytes": "bytes",
    "OrMinusOne": "whole, wide",
    "str | Mapping[str, Int32]": "text, texts to numbers",
    "Iterable[NewTopic | str]": "list of texts",
    "Iterable[ConfigResource]": "",
    "Mapping[ConfigResource, Sequence[ConfigChange]]": "",
    "Mapping[str, FeatureUpdate | Int16]": "texts to numbers",
    "Mapping[K, int]": POSITIONS,
    "Mapping[tuple[str, Int32, Int32], str]": "",
    "Mapping[QuotaEntity, Mapping[str, float | None]]": "",
    "QuotaEntity | None": "none",
    "ElectionType": "",
}
# Settings are texts in properties files, and are read as such. None is the default of every setting.
SETTINGS_TAKE: dict[str, str] = TAKES | {
    "str": "text, empty",
    "str | None": "text, empty, none",
    "int": "whole, text",
    "int | None": "whole, none",
    "int | str": "whole",
    "float": "whole, fraction, too wide",  # refused as the fraction that it becomes
    "bool": "truth",
    "Sequence[str]": "list of texts, list of empty texts, text, empty",  # looked at when a group is joined
    "Sequence[str | Any]": "list of texts, list of empty texts, text, empty",  # as above
    "str | Sequence[str]": "text, empty, list of texts, list of empty texts",
    "Sequence[Any]": "empty",
    "ssl.SSLContext | None": "none",
    "Callable[[], Any] | None": "none, function",
    "Callable[..., Any] | None": "none, function",
    "str | Callable[[str, bytes | None, bytes | None, int], int | None]": "function",
}
# Each number and each text among the settings has a limit of its own.
NOT_OF_THE_PROTOCOL = "long text, no UTF-8, list of long texts, list of texts not in UTF-8"
SETTINGS_TAKE = {
    annotation: f"{taken}, none, wide, {NOT_OF_THE_PROTOCOL}" for annotation, taken in SETTINGS_TAKE.items()
}
# Where nothing of the above is right, what is.
RIGHT: dict[str, Any] = {
    "PreparedTransaction": fencepost.PreparedTransaction(1, 0),
    "ProducerDescription": ProducerDescription(1, 0, -1, -1, -1, -1),
    "pa.RecordBatch | pa.Table": pa.table({"value": ["v"]}),
    "Broker": fencepost.Broker(),
    "Iterable[Acl]": [],
    "Iterable[AclFilter]": [],
    "Mapping[K, Sequence[Int32] | None]": {},
    "Iterable[ScramUpsertion | ScramDeletion]": [],
    "Iterable[ConfigResource]": [],
    "Mapping[ConfigResource, Sequence[ConfigChange]]": {},
    "Mapping[tuple[str, Int32, Int32], str]": {},
    "Mapping[QuotaEntity, Mapping[str, float | None]]": {},
    "ElectionType": ElectionType.PREFERRED,
    "Isolation": fencepost.Isolation.READ_COMMITTED,
    "SharedRecord": fencepost.SharedRecord("t", 0, 0, 0, None, None, (), TimestampType.CREATE_TIME, 1),
    "AcknowledgeType": fencepost.AcknowledgeType.ACCEPT,
}

CLASSES: dict[str, list[type]] = {
    "blocking": [fencepost.Producer, fencepost.Consumer, fencepost.ShareConsumer, fencepost.Admin],
    "asyncio": [
        fencepost.AsyncProducer,
        fencepost.AsyncConsumer,
        fencepost.AsyncShareConsumer,
        fencepost.AsyncAdmin,
    ],
}

# What a client cannot be made without.
NEEDED: dict[str, dict[str, str]] = {"ShareConsumer": {"group_id": "g"}}


def new_client(client_type: type) -> Any:
    return client_type(NOWHERE, **NEEDED.get(client_type.__name__.removeprefix("Async"), {}))


class Wrong(NamedTuple):
    """A parameter of a call, what it is given, and the right arguments of the others."""

    call: str
    parameter: str
    kind: str
    others: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.others, self.parameter: GIVEN[self.kind]}


def public_calls(of: type) -> list[str]:
    """The names of what a class of ours lets others call."""
    ours = [base for base in of.__mro__ if base.__module__.startswith("fencepost")]
    found = {name for base in ours for name in vars(base) if not name.startswith("_")}
    return sorted(name for name in found if callable(getattr(of, name)))


def fewest(client_type: type) -> int:
    """Wrong uses that there are at least, so that the tests below are known to look."""
    return 50 if "Share" in client_type.__name__ else 250


def right(annotation: str) -> Any:
    if annotation in RIGHT:
        return RIGHT[annotation]
    return GIVEN[TAKES[annotation].split(", ")[0]]


def wrong_uses(name: str, function: Callable[..., Any], takes: dict[str, str] = TAKES) -> Iterator[Wrong]:
    """Each parameter with each thing that it does not take."""
    parameters = [
        parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "self"
    ]
    texts = {parameter.name: str(parameter.annotation).replace("Async", "") for parameter in parameters}
    for parameter in parameters:
        taken = takes[texts[parameter.name]].split(", ") + (["empty"] if parameter.default == "" else [])
        others = {
            other.name: right(texts[other.name])
            for other in parameters
            if other is not parameter and other.default is inspect.Parameter.empty
        }
        yield from (Wrong(name, parameter.name, kind, others) for kind in GIVEN if kind not in taken)


def shown(value: Any) -> Iterator[str]:
    """Yield the forms in which an error may show a value: itself, its type, or its wrong part."""
    yield repr(value)[:30]
    yield "=...: "  # of what is secret
    yield type(value).__name__
    if isinstance(value, (list, tuple, dict)):
        for part in value:
            yield from shown(part)
    if isinstance(value, dict):
        for part in value.values():
            yield from shown(part)


def judged(use: Wrong, error: Exception | None) -> str | None:
    """Return the complaint about the error of a wrong use, or None."""
    if not isinstance(error, (TypeError, ConfigurationError, RecordRejectedError)):
        return f"{use.call}({use.parameter}={GIVEN[use.kind]!r}): {error!r}"
    reported = str(error)
    if use.parameter.removesuffix("s") not in reported or not any(text in reported for text in shown(GIVEN[use.kind])):
        return f"{use.call}({use.parameter}={GIVEN[use.kind]!r}) is told obscurely: {error!r}"
    return None


def tried(call: Callable[..., Any], use: Wrong) -> str | None:
    try:
        call(**use.arguments)
    except Exception as error:  # noqa: BLE001 (judged)
        return judged(use, error)
    return judged(use, None)


@pytest.mark.parametrize("client_type", CLASSES["blocking"], ids=lambda kind: kind.__name__)
def test_the_blocking_clients_refuse_it(client_type: type) -> None:
    complaints, uses = [], 0
    with new_client(client_type) as client:
        for name in public_calls(client_type):
            for use in wrong_uses(name, getattr(client, name)):
                uses += 1
                complaints.append(tried(getattr(client, name), use))
        assert [complaint for complaint in complaints if complaint] == []
        assert not client._core.cluster.links  # nobody was asked
    assert uses > fewest(client_type)


@pytest.mark.parametrize("client_type", CLASSES["asyncio"], ids=lambda kind: kind.__name__)
def test_the_clients_for_asyncio_refuse_it(client_type: type) -> None:
    async def outcome(call: Callable[..., Any], use: Wrong) -> str | None:
        try:
            found = call(**use.arguments)
            if inspect.isawaitable(found):
                await found
        except Exception as error:  # noqa: BLE001 (judged)
            return judged(use, error)
        return judged(use, None)

    async def main() -> int:
        complaints, uses = [], 0
        async with new_client(client_type) as client:
            for name in public_calls(client_type):
                for use in wrong_uses(name, getattr(client, name)):
                    uses += 1
                    complaints.append(await outcome(getattr(client, name), use))
            assert [complaint for complaint in complaints if complaint] == []
            assert not client._core.cluster.links
        return uses

    assert asyncio.run(main()) > fewest(client_type)


@pytest.mark.parametrize(
    "client_type", [client_type for both in CLASSES.values() for client_type in both], ids=lambda kind: kind.__name__
)
def test_settings_of_the_wrong_kind_are_refused(client_type: type) -> None:
    config_type = client_type._config_type  # type: ignore[attr-defined]
    uses = list(wrong_uses("make", client_type, SETTINGS_TAKE))
    assert len(uses) > 500
    reported = [tried(lambda **settings: config_type.make(settings), use) for use in uses]
    assert [complaint for complaint in reported if complaint] == []


def test_the_embedded_broker_refuses_it() -> None:
    broker = fencepost.Broker()
    targets: list[Any] = [broker, broker.clock, broker.faults, broker.faults.disk, broker.faults.fail("Produce", 5)]
    assert [type(target) for target in targets[1:]] == [BrokerClock, BrokerFaults, BrokerDisk, Fault]
    complaints = [tried(fencepost.Broker, use) for use in wrong_uses("Broker", fencepost.Broker)]
    for target in targets:
        for name in public_calls(type(target)):
            complaints += [tried(getattr(target, name), use) for use in wrong_uses(name, getattr(target, name))]
    complaints += [tried(read_all, use) for use in wrong_uses("read_all", read_all)]
    assert len(complaints) > 500
    assert [complaint for complaint in complaints if complaint] == []


def test_deliveries_and_prepared_transactions_refuse_it() -> None:
    with fencepost.Producer(NOWHERE) as producer:
        delivery = producer.send("t", b"v")
        bulk = blocking.BulkDelivery([])
        calls: dict[str, Callable[..., Any]] = {
            "result": delivery.result,
            "exception": delivery.exception,
            "bulk": bulk.result,
            "prepared": fencepost.PreparedTransaction,
            "parse": fencepost.PreparedTransaction.parse,
        }
        uses = [use for name, call in calls.items() for use in wrong_uses(name, call)]
        assert len(uses) > 80
        assert [reported for use in uses if (reported := tried(calls[use.call], use))] == []
        assert public_calls(blocking.Delivery) == ["done", "exception", "result"]
        assert public_calls(blocking.BulkDelivery) == ["done", "result"]
        assert public_calls(aio.AsyncDelivery) == public_calls(aio.AsyncBulkDelivery) == ["done"]
        with pytest.raises(fencepost.errors.ProduceFailedError):
            producer.close(0)


def test_every_public_class_is_looked_at() -> None:
    values = {"AcknowledgeType", "GroupMetadata", "Isolation", "OffsetAndMetadata", "Record", "RecordMetadata"}
    values |= {"Assignment", "OffsetSpec", "SharedRecord", "Subscription", "TopicPartition"}
    reported = {"PartitionAssignor", "RebalanceListener"}  # calls of the application's, not ours
    looked_at = {client_type.__name__ for both in CLASSES.values() for client_type in both} | {
        "Broker",
        "PreparedTransaction",
    }
    public = {name for name in fencepost.__all__ if inspect.isclass(getattr(fencepost, name))}
    assert public == values | reported | looked_at


def test_a_parameter_without_a_row_is_seen() -> None:
    def new(topic: complex) -> None:
        """With an annotation that is new."""

    with pytest.raises(KeyError, match="complex"):
        list(wrong_uses("new", new))


def test_what_is_taken_in_silence_or_told_obscurely_is_seen() -> None:
    use = Wrong("call", "topic", "whole", {})
    assert tried(lambda topic: None, use) == "call(topic=5): None"
    assert tried(lambda topic: topic[0], use) is not None  # 'int' object is not subscriptable
    assert judged(use, TypeError("topic is 5 (int); pass text")) is None


@pytest.mark.parametrize("poll", ["poll", "poll_columns", "poll_arrow"])
def test_no_records_cannot_be_asked_for(poll: str) -> None:
    reported = "max_records is 0; it must be at least 1"
    with fencepost.Consumer("127.0.0.1:1") as consumer:
        consumer.assign([fencepost.TopicPartition("t", 0)])
        with pytest.raises(ConfigurationError, match=reported):
            getattr(consumer, poll)(0, max_records=0)

    async def body() -> None:
        async with fencepost.AsyncConsumer("127.0.0.1:1") as consumer:
            await consumer.assign([fencepost.TopicPartition("t", 0)])
            with pytest.raises(ConfigurationError, match=reported):
                await getattr(consumer, poll)(0, max_records=0)

    asyncio.run(body())


@pytest.mark.parametrize("poll", ["poll", "poll_columns", "poll_arrow"])
def test_seconds_are_not_taken_for_milliseconds(poll: str) -> None:
    """Other clients wait a second for `poll(1.0)`; a millisecond would be a loop that never rests."""
    with (
        fencepost.Consumer("127.0.0.1:1") as consumer,
        pytest.raises(TypeError, match=r"timeout_ms is 1\.0 \(float\); pass a whole number of milliseconds"),
    ):
        getattr(consumer, poll)(1.0)
