"""The client with releases of Apache Kafka from 2.4 on: what it can do there, against docs/kafka-versions.md.

A row of the table is a function here, which calls the client as an application does and looks at what comes of it. It
works ("yes", or what the function returns), or the client refuses with UnsupportedVersionError, naming the release that
it needs ("no"). Whatever else it raises fails the test.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import fencepost
from fencepost import OffsetSpec
from fencepost.client.admin import (
    Acl,
    AclFilter,
    AclOperation,
    ResourceType,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from fencepost.errors import (
    AbortableError,
    FencedOrTimedOutError,
    KafkaError,
    ProducerFencedError,
    TransactionTimedOutError,
    UnsupportedVersionError,
)
from fencepost.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.spark.errors import GuaranteeUnavailableError, SupersededError
from fencepost.spark.sink import plan
from fencepost.spark.sink.plan_steps import AbortOutcome
from fencepost.spark.sink.runner import ClusterClient, SinkLink
from fencepost.spark.sink.steps import SinkConfig
from tests.spark.plan_by_hand import Bench
from tests.support.apache_kafka import REFERENCE, VERSION, ApacheKafka
from tests.support.older_kafka import OlderKafka, version
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RELEASES: Final = ("2.4.1", "2.8.2", "3.3.2", "3.6.2", "3.9.1", "4.0.1", "4.1.1", "4.3.1", REFERENCE)
TABLE: Final = Path(__file__).parents[2] / "docs" / "kafka-versions.md"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES_A_RELEASE: Final = re.compile(r"since \d|no Apache Kafka up to|transaction\.version 2")
YES, NO = "yes", "no"
TP = fencepost.TopicPartition


class Cluster:
    """A running broker, and names that nobody else takes."""

    def __init__(self, servers: str, admin: fencepost.Admin) -> None:
        self.servers = servers
        self.admin = admin

    def name(self, what: str) -> str:
        return f"{what}-{uuid.uuid4().hex[:8]}"

    def topic(self, partitions: int = 1) -> str:
        name = self.name("t")
        self.admin.create_topic(name, partitions, 1)
        return name

    def filled(self, count: int = 10) -> str:
        """A topic with this many records in its one partition, a second apart."""
        topic = self.topic()
        with fencepost.Producer(self.servers, linger_ms=0) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000_000_000_000 + 1000 * number)
        return topic

    def committed(self, topic: str) -> list[bytes | None]:
        """The values of the topic's only partition that committed readers see, once nothing is open there."""
        partition = TP(topic, 0)
        end = self.admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset
        with fencepost.Consumer(self.servers) as consumer:
            fetched = list(consumer.fetch_range(topic, 0, 0, end, timeout_ms=30_000))
        return [value for piece in fetched for value in piece.columns.values()]

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> fencepost.Producer:
        return fencepost.Producer(
            self.servers, transactional_id=transactional_id, linger_ms=0, transaction_timeout_ms=timeout_ms
        )


def values(records: list[fencepost.Record]) -> list[bytes | None]:
    return [record.value for record in records]


def eventually(happens: Callable[[], bool]) -> None:
    """Wait until it happens: a broker shows a change of the controller a little later."""
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def poll_until(consumer: fencepost.Consumer, count: int) -> list[fencepost.Record]:
    found: list[fencepost.Record] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records, {consumer.state()}"
        found += consumer.poll(500)
    return found


# --- the rows ---


def produce(cluster: Cluster) -> None:
    """`Producer`: `send` with every codec, `acks` and idempotence, headers, `send_arrow`"""
    topic = cluster.topic()
    sent = 0
    for codec in CODECS:
        with fencepost.Producer(cluster.servers, compression_type=codec) as producer:
            delivery = producer.send(topic, b"x" * 500, key=b"k", partition=0, headers=[("a", b"b")])
            assert delivery.result(30).offset == sent
            sent += 1
    for acks in ("0", "1"):
        with fencepost.Producer(cluster.servers, acks=acks, enable_idempotence=False) as producer:
            producer.send(topic, b"x", partition=0)
            sent += 1
    with fencepost.Producer(cluster.servers) as producer:
        table = pa.table({"value": [b"1", b"2"], "key": [b"k", None]})
        assert len(producer.send_arrow(topic, table).result(30)) > 0
        assert producer.partitions_for(topic) == [0]
        producer.flush()
    assert len(cluster.committed(topic)) == sent + 2


def read(cluster: Cluster) -> None:
    """`Consumer`: `assign`, `poll`, `poll_arrow`, every `seek`, `offsets_for`, `fetch_range`"""
    topic = cluster.filled()
    partition = TP(topic, 0)
    with fencepost.Consumer(cluster.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert values(poll_until(consumer, 10)) == [b"%d" % number for number in range(10)]
        assert consumer.position(partition) == 10
        assert consumer.lag(partition) == 0
        consumer.seek(partition, 8)
        assert values(poll_until(consumer, 2)) == [b"8", b"9"]
        consumer.seek_to_timestamp(1_000_000_005_000)
        assert values(poll_until(consumer, 5))[0] == b"5"
        consumer.seek_to_beginning()
        assert consumer.poll_arrow(5000).num_rows > 0
        consumer.seek_to_end()
        assert consumer.position(partition) == 10
        assert consumer.offsets_for({partition: 1_000_000_003_000})[partition].offset == 3
        assert consumer.partitions_for(topic) == [0]
    assert len(cluster.committed(topic)) == 10


def classic_groups(cluster: Cluster) -> None:
    """Classic groups: every assignor, static members, patterns, `commit`, `committed`, a second member"""
    for number, assignor in enumerate(("range", "roundrobin", "sticky", "cooperative-sticky")):
        topic, group = cluster.filled(), cluster.name("g")

        def member(instance_id: str | None = None) -> fencepost.Consumer:
            return fencepost.Consumer(
                cluster.servers,
                group_id=group,  # noqa: B023 (called in this round)
                partition_assignment_strategy=[assignor],  # noqa: B023
                auto_offset_reset="earliest",
                group_instance_id=instance_id,
            )

        with member("a" if number else None) as first, member() as second:
            if number:
                first.subscribe([topic])
            else:
                first.subscribe(pattern=f"{topic}.*")
            assert len(poll_until(first, 10)) == 10
            first.commit()
            second.subscribe([topic])
            for consumer in (first, second, first, second):
                consumer.poll(100)
            eventually(lambda: not first.poll(50) and not second.poll(50) and bool(second.group_metadata().member_id))
            assert second.committed([(topic, 0)])[TP(topic, 0)].offset == 10


def consumer_groups(cluster: Cluster) -> None:
    """`group_protocol="consumer"` (KIP-848)"""
    topic = cluster.filled()
    with fencepost.Consumer(
        cluster.servers, group_id=cluster.name("g"), group_protocol="consumer", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        assert len(poll_until(consumer, 10)) == 10
        consumer.commit()


def transactions(cluster: Cluster) -> None:
    """Transactions: commits, aborts of sent and unsent records, a second producer that fences the first"""
    topic, name = cluster.topic(), cluster.name("x")
    with cluster.producer(name) as producer:
        producer.init_transactions()
        for number in range(9):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0)
            if number % 3 == 1:
                producer.flush()
            if number % 3 == 0:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        with cluster.producer(name) as second:
            second.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"zombie", partition=0)
            with pytest.raises(ProducerFencedError):
                producer.commit_transaction()
            with second.transaction():
                second.send(topic, b"second", partition=0)
    assert cluster.committed(topic) == [b"0", b"3", b"6", b"second"]


def offsets_by_name(cluster: Cluster) -> None:
    """`send_offsets_to_transaction(positions, "group")`: a producer for each input partition"""
    group, topic = cluster.name("g"), cluster.topic()
    with cluster.producer(cluster.name("x")) as producer:
        producer.init_transactions()
        for position in (5, 7):
            with producer.transaction():
                producer.send(topic, b"x", partition=0)
                producer.send_offsets_to_transaction({TP(topic, 0): position}, group)
            # Old group coordinators end a transaction some time after they have answered its marker. Offsets that the
            # same producer sends before then belong to it.
            eventually(lambda position=position: committed_position(cluster, group, topic) == position)  # type: ignore[misc]
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TP(topic, 0): 9}, group)
        producer.abort_transaction()
    assert cluster.committed(topic) == [b"x", b"x"]
    assert committed_position(cluster, group, topic) == 7


def committed_position(cluster: Cluster, group: str, topic: str) -> int | None:
    found = cluster.admin.group_offsets(group).get(TP(topic, 0))
    return None if found is None else found.offset


def offsets_of_members(cluster: Cluster) -> None:
    """`transaction(consumer)`: a producer for each thread (KIP-447)"""
    source, topic = cluster.filled(), cluster.topic()
    with (
        fencepost.Consumer(cluster.servers, group_id=cluster.name("g"), auto_offset_reset="earliest") as consumer,
        cluster.producer(cluster.name("x")) as producer,
    ):
        consumer.subscribe([source])
        producer.init_transactions()
        records = poll_until(consumer, 10)
        with producer.transaction(consumer):
            for record in records:
                producer.send(topic, record.value, partition=0)
        assert consumer.committed([(source, 0)])[TP(source, 0)].offset == 10
    assert len(cluster.committed(topic)) == 10


def timed_out(cluster: Cluster) -> None:
    """A timeout is distinguished from a takeover, and the same producer continues (KIP-588, KIP-890)"""
    topic = cluster.topic()
    with cluster.producer(cluster.name("x"), 500) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"lost", partition=0)
        producer.flush()
        partition, committed = TP(topic, 0), fencepost.Isolation.READ_COMMITTED
        end = {partition: OffsetSpec.LATEST}
        eventually(lambda: cluster.admin.list_offsets(end, isolation=committed)[partition].offset == 2)
        try:
            producer.commit_transaction()
        except FencedOrTimedOutError as error:
            raise UnsupportedVersionError(f"{error}; transaction.version 2") from error
        except AbortableError as error:
            assert isinstance(error.__cause__, TransactionTimedOutError)  # noqa: PT017
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
    assert cluster.committed(topic) == [b"kept"]


def two_phase(cluster: Cluster) -> None:
    """`two_phase_commit`, `prepare_transaction`, `complete_transaction` (KIP-939)"""
    topic, name = cluster.topic(), cluster.name("x")
    with fencepost.Producer(cluster.servers, transactional_id=name, two_phase_commit=True, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"prepared", partition=0)
        assert producer.complete_transaction(producer.prepare_transaction())
    assert cluster.committed(topic) == [b"prepared"]


def keep_prepared(cluster: Cluster) -> None:
    """`init_transactions(keep_prepared=True)` (KIP-939)"""
    name = cluster.name("x")
    with fencepost.Producer(cluster.servers, transactional_id=name, two_phase_commit=True) as producer:
        producer.init_transactions(keep_prepared=True)


def topics(cluster: Cluster) -> None:
    """`Admin`: topics, settings, records, offsets, log directories, the cluster"""
    admin = cluster.admin
    topic = cluster.filled()
    partition = TP(topic, 0)
    assert topic in admin.list_topics()
    admin.create_partitions(topic, 2)
    assert len(admin.describe_topics([topic])[topic].partitions) == 2
    assert admin.partitions_of([topic]) == [partition, TP(topic, 1)]
    admin.alter_configs(topic, {"retention.ms": "86400000"})
    eventually(lambda: not admin.config_entries(topic)["retention.ms"].is_default)
    assert admin.describe_configs(topic)["retention.ms"] == "86400000"
    assert admin.list_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 0
    assert admin.list_offsets({partition: 1_000_000_004_000})[partition].offset == 4
    assert admin.delete_records({partition: 5}) == {partition: 5}
    brokers = admin.describe_cluster().brokers
    assert len(brokers) == 1
    assert any(partition in folder.replicas for folder in admin.describe_log_dirs())
    assert admin.api_versions()
    admin.features()
    admin.delete_topic(topic)


def groups(cluster: Cluster) -> None:
    """`Admin`: groups and their offsets"""
    admin, topic, group = cluster.admin, cluster.filled(), cluster.name("g")
    with fencepost.Consumer(
        cluster.servers, group_id=group, auto_offset_reset="earliest", group_instance_id="static"
    ) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, 10)
        consumer.commit()
        described = admin.describe_group(group)
        assert [member.assigned for member in described.members] == [(TP(topic, 0),)]
    eventually(lambda: group in {listed.group_id for listed in admin.list_groups()})
    assert admin.group_offsets(group)[TP(topic, 0)].offset == 10
    admin.remove_group_members(group, ["static"])
    admin.alter_group_offsets(group, {(topic, 0): 3})
    assert admin.reset_group_offsets(group, "earliest") == {TP(topic, 0): 0}
    admin.delete_group_offsets(group, [(topic, 0)])
    assert admin.group_offsets(group) == {}
    admin.alter_group_offsets(group, {(topic, 0): 3})
    admin.delete_group(group)


def list_groups_by(cluster: Cluster) -> None:
    """`list_groups(states=...)` (KIP-518)"""
    cluster.admin.list_groups(states=["Stable"])


def list_groups_by_type(cluster: Cluster) -> None:
    """`list_groups(types=...)` (KIP-848)"""
    cluster.admin.list_groups(types=["classic"])


def acls(cluster: Cluster) -> None:
    """`Admin`: rights"""
    rule = Acl(ResourceType.TOPIC, cluster.name("t"), "User:alice", AclOperation.READ)
    cluster.admin.create_acls([rule])
    wanted = AclFilter(ResourceType.TOPIC, rule.resource_name)
    eventually(lambda: cluster.admin.describe_acls(wanted) == [rule])
    assert cluster.admin.delete_acls([wanted]) == [rule]


def reassignments(cluster: Cluster) -> None:
    """`alter_partition_reassignments`, `list_partition_reassignments` (KIP-455)"""
    topic = cluster.topic()
    cluster.admin.alter_partition_reassignments({(topic, 0): [1]})
    assert cluster.admin.list_partition_reassignments([(topic, 0)]) == {}


def documentation(cluster: Cluster) -> None:
    """`config_entries(documentation=True)` (KIP-569)"""
    entries = cluster.admin.config_entries(cluster.topic(), ["retention.ms"], documentation=True)
    assert entries["retention.ms"].documentation


def scram_users(cluster: Cluster) -> None:
    """Users of SCRAM (KIP-554)"""
    user, admin = cluster.name("u"), cluster.admin
    admin.alter_user_scram_credentials([ScramUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", 4096)])
    eventually(lambda: [found.user for found in admin.describe_user_scram_credentials([user])] == [user])
    admin.alter_user_scram_credentials([ScramDeletion(user, ScramMechanism.SCRAM_SHA_256)])


def quorum(cluster: Cluster) -> None:
    """`describe_metadata_quorum` (KIP-595)"""
    assert cluster.admin.describe_metadata_quorum().leader_id == 1


def latest_timestamp(cluster: Cluster) -> None:
    """`list_offsets` of `MAX_TIMESTAMP` (KIP-734)"""
    partition = TP(cluster.filled(), 0)
    assert cluster.admin.list_offsets({partition: OffsetSpec.MAX_TIMESTAMP})[partition].offset == 9


def fencing(cluster: Cluster) -> None:
    """`fence_producers`, `force_terminate_transaction`, `init_producer_id`, `end_transaction`, `complete`"""
    topic, admin, name = cluster.topic(), cluster.admin, cluster.name("x")
    with cluster.producer(name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"fenced", partition=0)
        producer.flush()
        assert admin.fence_producers([name])[name].producer_id >= 0
        with pytest.raises(KafkaError):
            producer.commit_transaction()
        admin.force_terminate_transaction(name)
        producer.close(0)
    assert cluster.committed(topic) == []


def partition_producers(cluster: Cluster) -> None:
    """`describe_producers` (KIP-664)"""
    topic = cluster.filled()
    assert len(cluster.admin.describe_producers([(topic, 0)])[TP(topic, 0)]) == 1


def listed_transactions(cluster: Cluster) -> None:
    """`list_transactions`, `describe_transactions` (KIP-664), and so `fencepost transactions`"""
    name = cluster.name("x")
    with cluster.producer(name) as producer:
        producer.init_transactions()
        assert name in {listed.transactional_id for listed in cluster.admin.list_transactions()}
        assert [each.error_code for each in cluster.admin.describe_transactions([name])] == [0]


def spark_sink(cluster: Cluster) -> str:
    """The Spark sink exactly once: its guarantee, where two-phase commit is switched on"""
    link = ClusterClient({"bootstrap.servers": cluster.servers})
    try:
        abilities = SinkLink(link, SinkConfig()).abilities(cluster.name("sink"), None)
    except GuaranteeUnavailableError as error:
        assert "Kafka 3.6 or newer" in str(error)  # noqa: PT017
        return NO
    finally:
        link.close()
    bench = Bench(cluster.servers, abilities)
    decided, aborted = [bench.task(bench.open(), 0)], [bench.task(bench.open(), 0)]
    assert bench.runner.run(plan.abort_batch(bench.sink, aborted)) is AbortOutcome.ABORTED
    with pytest.raises(SupersededError):
        bench.runner.run(plan.commit_batch(bench.sink, 0, decided))
    decided = [bench.task(bench.open(), 0)]
    assert bench.runner.run(plan.commit_batch(bench.sink, 0, decided))
    assert (bench.committed(), bench.open_ids()) == ([0], [])
    return abilities.guarantee.value


ROWS: Final = (
    produce,
    read,
    classic_groups,
    consumer_groups,
    transactions,
    offsets_by_name,
    offsets_of_members,
    timed_out,
    two_phase,
    keep_prepared,
    topics,
    groups,
    list_groups_by,
    list_groups_by_type,
    acls,
    reassignments,
    documentation,
    scram_users,
    quorum,
    latest_timestamp,
    fencing,
    partition_producers,
    listed_transactions,
    spark_sink,
)
BY_LEVEL: Final = (transactions, offsets_by_name, offsets_of_members, timed_out)
"""Walked on each level of transaction.version that the release has."""


def outcome(row: Callable[[Cluster], str | None], cluster: Cluster) -> str:
    try:
        return row(cluster) or YES
    except UnsupportedVersionError as error:
        assert NAMES_A_RELEASE.search(str(error)), f"which release it takes is not told: {error}"  # noqa: PT017
        return NO


def lower(cluster: Cluster, level: int) -> None:
    """Set transaction.version, and wait until the brokers show it."""
    with RawClient(cluster.servers) as raw:
        key = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
        answer = raw.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[key]), 1)
        assert answer.error_code == 0, answer.error_message

    def shown() -> bool:
        with fencepost.Admin(cluster.servers) as admin:
            return admin.features().get("transaction.version", 0) == level

    eventually(shown)


def reported() -> dict[str, dict[str, str]]:
    """The table of the docs: row -> release -> cell."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, body = cells[0], cells[2:]
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in body}


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(release: str) -> Iterator[Cluster]:
    kafka = ApacheKafka(authorizer=True) if release == VERSION else OlderKafka(release, authorizer=True)
    with kafka, fencepost.Admin(kafka.bootstrap_servers) as admin:
        yield Cluster(kafka.bootstrap_servers, admin)


def test_what_the_table_says(cluster: Cluster, release: str) -> None:
    found = {row: outcome(row, cluster) for row in ROWS}
    if version(release) >= (4, 0):
        for level in (1, 0):
            lower(cluster, level)
            for row in BY_LEVEL:
                if outcome(row, cluster) == NO:
                    found[row] = "level 2"
    seen = {(row.__doc__ or "").strip(): cell for row, cell in found.items()}
    column = ".".join(release.split(".")[:2])
    assert seen == {row: cells[column] for row, cells in reported().items()}


def test_the_table_has_a_column_for_each_release() -> None:
    assert {tuple(cells) for cells in reported().values()} == {tuple(".".join(r.split(".")[:2]) for r in RELEASES)}
