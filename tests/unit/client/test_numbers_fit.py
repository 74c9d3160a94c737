"""The largest number that a parameter takes reaches the broker: no call fails because a request cannot hold it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost.arguments import MAX_INT16, MAX_INT32, MAX_INT64
from fencepost.errors import KafkaError
from tests.unit.client.test_wrong_use import CLASSES, NEEDED, public_calls, right

PATIENCE_S = 0.3  # a poll waits as long as it was told to; a number that does not fit shows at once

NOT_CALLED = {"from_config", "close"}

# By annotation, the largest values that it takes.
LARGEST: dict[str, Any] = {
    "int": MAX_INT64,
    "int | None": MAX_INT64,
    "Milliseconds": MAX_INT64,
    "Milliseconds | None": MAX_INT64,
    "OrMinusOne": MAX_INT64,
    "str | int": MAX_INT64,
    "Int8": 127,
    "Int16": MAX_INT16,
    "Int16 | None": MAX_INT16,
    "Int16OrMinusOne": MAX_INT16,
    "Int32": MAX_INT32,
    "Int32 | None": MAX_INT32,
    "Int32OrMinusOne": MAX_INT32,
    "float": 1e300,
    "float | None": 1e300,
    "Iterable[Int8]": [127],
    "Iterable[Int32] | None": [MAX_INT32],
    "tuple[str, int]": ("text", MAX_INT32),
    "Iterable[tuple[str, int]]": [("text", MAX_INT32)],
    "Iterable[tuple[str, int]] | None": [("text", MAX_INT32)],
    "Sequence[tuple[str, int]]": [("text", MAX_INT32)],
    "str | Mapping[str, Int32]": {"text": MAX_INT32},
    "Iterable[NewTopic | str]": [],
    "Mapping[str, FeatureUpdate | Int16]": {"text": MAX_INT16},
    "Mapping[K, int]": {("text", 0): MAX_INT64},
    "Mapping[K, OrMinusOne]": {("text", 0): MAX_INT64},
    "Mapping[K, offsets.TimestampOrEnd]": {("text", 0): MAX_INT64},
    "Mapping[K, OffsetAndMetadata | int]": {("text", 0): fencepost.OffsetAndMetadata(MAX_INT64, "", MAX_INT32)},
    "Mapping[K, OffsetAndMetadata | int] | None": {("text", 0): MAX_INT64},
    "Mapping[K, Sequence[Int32] | None]": {("text", MAX_INT32): [MAX_INT32]},
    "Mapping[tuple[str, Int32, Int32], str]": {("text", MAX_INT32, 1): "/somewhere"},
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with fencepost.Broker() as broker:
        yield broker.bootstrap_servers


async def have_topic(servers: str) -> None:
    """Some of the calls delete it."""
    async with fencepost.AsyncAdmin(servers) as admin:
        await admin.create_topic("text", 1, exist_ok=True)


def largest_uses(client_type: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each public call with each numeric parameter at its largest; the other parameters as a right call has them."""
    for name in public_calls(client_type):
        if name in NOT_CALLED:
            continue
        parameters = [
            parameter
            for parameter in inspect.signature(getattr(client_type, name)).parameters.values()
            if parameter.name != "self"
        ]
        texts = {parameter.name: str(parameter.annotation).replace("Async", "") for parameter in parameters}
        for parameter in parameters:
            if texts[parameter.name] in LARGEST:
                others = {
                    other.name: right(texts[other.name])
                    for other in parameters
                    if other is not parameter and other.default is inspect.Parameter.empty
                }
                yield name, {**others, parameter.name: LARGEST[texts[parameter.name]]}


async def outcome(client: Any, name: str, arguments: dict[str, Any]) -> str | None:
    """The fault in how the call ended; None if there is none."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = getattr(client, name)(**arguments)
            if inspect.isawaitable(found):
                await found
            if name.startswith("seek"):
                await client.poll(10)
    except KafkaError as error:
        fitted = not isinstance(error.__cause__, (ValueError, OverflowError)) or isinstance(error.__cause__, KafkaError)
        return None if fitted else f"{name}({arguments}): {error!r} from {error.__cause__!r}"
    except TimeoutError:
        return None
    except Exception as error:  # noqa: BLE001 (shown)
        return f"{name}({arguments}): {error!r}"
    return None


@pytest.mark.parametrize("client_type", CLASSES["asyncio"], ids=lambda kind: kind.__name__)
def test_the_largest_numbers_can_be_sent(servers: str, client_type: Any) -> None:
    settings: dict[str, Any] = {"topic_metadata_propagation_max_ms": 10, "default_api_timeout_ms": 2_000}
    settings |= NEEDED.get(client_type.__name__.removeprefix("Async"), {})
    if client_type is fencepost.AsyncConsumer:
        settings["group_id"] = "g"

    async def main() -> list[str | None]:
        reported = []
        for name, arguments in largest_uses(client_type):
            await have_topic(servers)
            client = client_type(servers, **settings)
            if client_type is fencepost.AsyncConsumer and name not in ("subscribe", "assign"):
                await client.assign([("text", 0)])
            reported.append(await outcome(client, name, arguments))
            with contextlib.suppress(KafkaError):
                await client.close(timeout_ms=0)
        return reported

    reported = asyncio.run(main())
    assert len(reported) >= 3
    assert [problem for problem in reported if problem] == []


def test_a_number_that_does_not_fit_is_seen(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> str | None:
        await have_topic(servers)
        async with fencepost.AsyncAdmin(servers) as admin:
            monkeypatch.setattr(admin._core.cluster, "server_timeout_ms", lambda _: 2**31)
            return await outcome(admin, "list_offsets", {"wanted": {("text", 0): -1}})

    reported = asyncio.run(main())
    assert reported is not None
    assert "cannot be encoded" in reported
