"""A broker in a comparison: its connection, its own ids behind the names of the run, and its answers without them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from fencepost.protocol import codec, produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.messages.describe_client_quotas import EntryData
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.records.decoding import decode_batches
from tests.support.differential.drawing import BAD_NAMES, INTERNAL, ProducerId
from tests.support.raw_client import Closed, RawClient

PATIENCE_S = 2.0
"""Time in seconds that two answers may differ while earlier changes become visible."""
ANSWER_S = 10.0
"""Until a broker counts as silent: a machine with other work is slow, and Kafka says nothing only now and then."""
NOBODY = ProducerId(-1, -1)
CLOSED, SILENT = "closes the connection", "does not answer"
# Fields that say what no two brokers have in common, and what a text says.
NOT_COMPARED = frozenset(
    """
    acknowledge_error_message api_keys client_host client_id cluster_id config_errors config_source controller_id
    coordinator_epoch current_leader_epoch directory_id documentation error_message finalized_features
    finalized_features_epoch heartbeat_interval_ms host is_default last_timestamp leader_epoch log_append_time_ms
    log_dir offset_lag partition_size port rack session_id size status_detail supported_features synonyms
    throttle_ms throttle_time_ms timestamp total_bytes transaction_start_time_ms usable_bytes
    """.split()
)
SHARED = frozenset({*INTERNAL, *BAD_NAMES, "missing"})  # of the names that every run uses
NAMES = ("transactional_id", "group_id", "name", "topic", "topic_name", "resource_name", "user", "entity_name")
LISTED = ("ListedGroup", "TransactionState")
NODES = frozenset(
    {
        "leader_id",
        "node_id",
        "broker_id",
        "replica_nodes",
        "isr_nodes",
        "coordinator_id",
        "leader",
        "replica_id",
        "replicas",
    }
)


class Hangs(Exception):
    """A transaction that was ended does not end: nothing that follows can be compared."""


class Side:
    """One broker. `name` is for reports; the names of what the run makes begin with `run`."""

    def __init__(self, name: str, run: str, bootstrap_servers: str) -> None:
        self.name = name
        self._run = run
        self._servers = bootstrap_servers
        self._client = RawClient(bootstrap_servers, timeout_s=ANSWER_S)
        self._topic_ids: dict[str, UUID] = {}
        self._producers: dict[str, ProducerId] = {}
        self._members: dict[str, tuple[str, int]] = {}
        self._names: dict[Any, str] = {}

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    def connect_again(self) -> None:
        """When the broker was restarted: once its coordinators answer."""
        self.close()
        self._client = RawClient(self._servers, timeout_s=ANSWER_S)
        self._client.find_coordinators()

    # --- its own ids ---

    def topic_id(self, topic: str) -> UUID:
        return self._topic_ids.get(topic, UUID(int=1))

    def producer(self, name: str) -> ProducerId:
        return self._producers.get(name, NOBODY)

    def member(self, name: str) -> tuple[str, int]:
        return self._members.get(name, ("", -1))

    def is_producer(self, name: str, given: ProducerId) -> None:
        self._producers[name] = given
        self._names.setdefault(("producer", given.producer_id), f"producer {len(self._names)}")

    def is_member(self, name: str, member_id: str, epoch: int) -> None:
        self._members[name] = (member_id, epoch)
        if member_id:
            self._names[("member", member_id)] = f"the member {name}"

    def look_up_topics(self, topics: list[str]) -> None:
        """Learn the ids of the topics that exist."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        for topic in self._client.call(request, 12).topics:
            if topic.error_code == ErrorCode.NONE and topic.name is not None:
                self._topic_ids[topic.name] = topic.topic_id
                self._names[("topic", topic.topic_id)] = f"the id of {topic.name}"

    def _is_of_others(self, element: Any) -> bool:
        """Groups, transactions and topics that others made: a broker is compared by many runs, and has other users."""
        if type(element).__name__ in LISTED:
            return not name_of(element).startswith(self._run)
        if isinstance(element, EntryData):  # a quota is of those it names together
            return bool(element.entity) and all(self._is_of_others(part) for part in element.entity)
        name = name_of(element)
        return bool(name) and name not in SHARED and not name.startswith(self._run)

    # --- questions ---

    def ask(self, api_key: int, version: int, body: bytes) -> Any:
        """The typed answer, or CLOSED or SILENT; a connection that ended so is replaced."""
        return self.ask_with(api_key, version, body, lambda data, _: codec.decode_response(api_key, version, data))

    def ask_with(self, api_key: int, version: int, body: bytes, decode: Callable[[memoryview, int], Any]) -> Any:
        """`ask` for an answer that is read by hand."""
        try:
            return decode(self._client.exchange(api_key, version, body), version)
        except MalformedMessage as error:
            return f"answers what cannot be read: {error}"
        except (Closed, ConnectionError):
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENT
        self._client.__exit__(None, None, None)
        self._client = RawClient(self._servers, timeout_s=ANSWER_S)
        return outcome

    def raw(self) -> RawClient:
        """The connection, for what is not an answer to compare."""
        return self._client

    def wait_until_ended(self, transactional_id: str) -> None:
        """Until an ended transaction's markers are written: Kafka lets what comes in between join it. Raises Hangs."""
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            if not self._client.describe_transaction(transactional_id).transaction_state.startswith("Prepare"):
                return
            pause()
        raise Hangs(f"{self.name} does not write the markers of {transactional_id}")

    def masked(self, answer: Any, field: str = "") -> Any:
        """The answer as plain values, with names instead of ids, and every list sorted."""
        if dataclasses.is_dataclass(answer):
            fields = {
                part.name: self.masked(getattr(answer, part.name), part.name)
                for part in dataclasses.fields(answer)
                if part.name not in NOT_COMPARED
            }
            if fields.get("error_code"):  # an id that was not found is not an id
                fields.update(dict.fromkeys(fields.keys() & {"producer_id"}, -1))
            return fields
        if isinstance(answer, produce_wire.RecordError):
            return answer.batch_index
        if isinstance(answer, list | tuple):
            shown = [self.masked(element, field) for element in answer if not self._is_of_others(element)]
            return sorted(shown, key=lambda element: (_called(element), repr(element)))
        if isinstance(answer, UUID):
            return self._names.get(("topic", answer), "a topic id" if answer.int else "no topic id")
        if field in NODES and isinstance(answer, int):
            return "this node" if answer >= 0 else answer
        if "producer_id" in field and isinstance(answer, int) and answer >= 0:
            return self._names.get(("producer", answer), "a producer id")
        if field in {"member_id", "leader"} and isinstance(answer, str) and answer:
            return self._names.get(("member", answer), "a member id")
        if isinstance(answer, memoryview | bytearray | bytes):
            return visible(answer) if field == "records" else bytes(answer)
        return answer


def visible(records: bytes | bytearray | memoryview) -> list[tuple[int, bytes | None]]:
    """Offsets and values of batches, which may be cut elsewhere and have other times."""
    columns = decode_batches(records, start_offset=0, aborted=[])
    return [(int(columns.offsets[index]), columns.value(index)) for index in range(len(columns))]


def name_of(element: Any) -> str:
    """Return the name of a listed element, or an empty string."""
    for field in NAMES:
        if isinstance(name := getattr(element, field, None), str):
            return name
    return ""


def _called(masked: Any) -> str:
    """Return the name of a masked part of an answer, so that two lists sort alike even if parts differ."""
    return next((masked[name] for name in NAMES if masked.get(name)), "") if isinstance(masked, dict) else ""


def codes_in(answer: Any) -> set[int]:
    """Every error code that an answer holds."""
    if isinstance(answer, dict):
        found = {value for name, value in answer.items() if name.endswith("error_code") and isinstance(value, int)}
        return found.union(*(codes_in(value) for value in answer.values()))
    if isinstance(answer, list):
        return set().union(*(codes_in(value) for value in answer))
    return set()


def pause() -> None:
    """Between two looks at a broker that has not settled."""
    time.sleep(0.02)
