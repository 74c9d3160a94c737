"""Kafka's own command line tools against our broker: what an administrator types, judged by what is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.errors import KafkaError
from tests.support.kafka_tools import Ran, run_kafka_tool
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GROUPS = "consumer.group.ConsumerGroupCommand"
CONSUMER = "consumer.ConsoleConsumer"
CONFIGS = "ConfigCommand"


class KafkaTools:
    """An administrator at a running broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.servers = broker.bootstrap_servers

    def run(self, tool: str, *arguments: str) -> Ran:
        """A tool that needs no broker, or another one."""
        return run_kafka_tool(tool, *arguments)

    def tell(self, tool: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a tool, which may fail, and return its outcome."""
        return run_kafka_tool(tool, "--bootstrap-server", self.servers, *arguments, stdin=stdin)

    def ask(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Return the output of a tool, which has to succeed."""
        ran = self.tell(tool, *arguments, stdin=stdin)
        assert ran.status == 0, ran.output
        assert "Exception" not in ran.output, ran.output
        return ran.output

    def rows(self, tool: str, *arguments: str) -> list[list[str]]:
        """A table's rows, split at blanks."""
        return [line.split() for line in self.ask(tool, *arguments).splitlines() if line.strip()]

    def consumed(self, topic: str, isolation: str, count: int) -> list[str]:
        """Return the output of the console consumer: the first records of a topic of one partition."""
        arguments = ("--topic", topic, "--from-beginning", "--isolation-level", isolation, "--max-messages", str(count))
        return re.findall(r"^value-\S+$", self.ask(CONSUMER, *arguments), re.MULTILINE)

    def create(self, topic: str, partitions: int = 1) -> str:
        with fencepost.Admin(self.servers) as admin:
            admin.create_topic(topic, partitions)
        return topic

    def fill(self, topic: str, *values: str) -> None:
        with fencepost.Producer(self.servers) as producer:
            for value in values:
                producer.send(topic, value.encode(), partition=0).result()


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield KafkaTools(broker)


def test_topics(tools: KafkaTools) -> None:
    created = tools.ask("TopicCommand", *"--create --topic things --partitions 3 --config retention.ms=1000".split())
    assert "Created topic things." in created
    assert "things" in tools.ask("TopicCommand", "--list").split()
    head, *partitions = tools.ask("TopicCommand", "--describe", "--topic", "things").splitlines()
    assert "PartitionCount: 3" in head
    assert "retention.ms=1000" in head
    assert [re.search(r"Partition: (\d)\tLeader: 1\b", line)[1] for line in partitions] == ["0", "1", "2"]  # type: ignore[index]
    tools.ask("TopicCommand", "--alter", "--topic", "things", "--partitions", "5")
    assert "PartitionCount: 5" in tools.ask("TopicCommand", "--describe", "--topic", "things")
    again = tools.tell("TopicCommand", "--create", "--topic", "things")
    assert (again.status, "already exists" in again.output) == (1, True)
    tools.ask("TopicCommand", "--delete", "--topic", "things")
    assert "things" not in tools.ask("TopicCommand", "--list").split()


def test_configs(tools: KafkaTools) -> None:
    topic = tools.create("configured")
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tools.ask(CONFIGS, "--alter", *of_topic, "--add-config", "segment.bytes=2000000,cleanup.policy=compact")
    reported = tools.ask(CONFIGS, "--describe", *of_topic)
    assert "segment.bytes=2000000" in reported
    assert "cleanup.policy=compact" in reported
    tools.ask(CONFIGS, "--alter", *of_topic, "--delete-config", "segment.bytes")
    assert "segment.bytes" not in tools.ask(CONFIGS, "--describe", *of_topic)
    refused = tools.tell(CONFIGS, "--alter", *of_topic, "--add-config", "segment.bytes=none")
    assert refused.status == 1
    of_broker = tools.ask(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "transaction.two.phase.commit.enable=true" in of_broker


def test_client_metrics(tools: KafkaTools) -> None:
    tool, named = "ClientMetricsCommand", ("--name", "latencies")
    tools.ask(tool, "--alter", *named, "--metrics", "org.apache.kafka.producer.", "--interval", "5000")
    assert tools.ask(tool, "--list").split() == ["latencies"]
    reported = tools.ask(CONFIGS, "--describe", "--entity-type", "client-metrics", "--entity-name", "latencies")
    assert "metrics=org.apache.kafka.producer." in reported
    assert "interval.ms=5000" in tools.ask(tool, "--describe", *named)
    assert tools.tell(tool, "--alter", *named, "--interval", "1").status == 1
    tools.ask(tool, "--delete", *named)
    assert tools.ask(tool, "--list").split() == []


def test_console_producer_and_consumer(tools: KafkaTools) -> None:
    topic = tools.create("console", 3)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.ask("ConsoleProducer", "--topic", topic, *keyed, stdin="a:1\nb:2\nc:3\n")
    read = ("--topic", topic, "--from-beginning", "--max-messages", "3", "--formatter-property", "print.key=true")
    reported = tools.ask(CONSUMER, *read, "--group", "readers")
    assert sorted(re.findall(r"^([abc])\t([123])$", reported, re.MULTILINE)) == [("a", "1"), ("b", "2"), ("c", "3")]


def test_the_consumer_sees_committed_records_only(tools: KafkaTools) -> None:
    topic = tools.create("orders")
    with fencepost.Producer(tools.servers, transactional_id="writer") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, f"value-{number}".encode())
            if number % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    tools.fill(topic, "value-4")
    assert tools.consumed(topic, "read_committed", 3) == ["value-0", "value-2", "value-4"]
    assert tools.consumed(topic, "read_uncommitted", 5) == [f"value-{number}" for number in range(5)]


def test_consumer_groups(tools: KafkaTools) -> None:
    topic = tools.create("grouped")
    tools.fill(topic, "1", "2", "3")
    tools.ask(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "2", "--group", "g")
    assert "g" in tools.ask(GROUPS, "--list").split()
    described = tools.rows(GROUPS, "--describe", "--group", "g")[-1]
    assert described[:6] == ["g", topic, "0", "2", "3", "1"]  # offset, end, lag
    assert tools.rows(GROUPS, "--describe", "--group", "g", "--state")[-1][-2:] == ["Empty", "0"]
    tools.ask(GROUPS, "--reset-offsets", "--group", "g", "--topic", topic, "--to-earliest", "--execute")
    assert tools.rows(GROUPS, "--describe", "--group", "g")[-1][3] == "0"
    assert "Successful" in tools.ask(GROUPS, "--delete-offsets", "--group", "g", "--topic", topic)
    assert "successful" in tools.ask(GROUPS, "--delete", "--group", "g")
    assert "g" not in tools.ask(GROUPS, "--list").split()


def test_offsets(tools: KafkaTools) -> None:
    topic = tools.create("counted", 2)
    tools.fill(topic, "1", "2", "3")
    for when, expected in (("latest", ["3", "0"]), ("earliest", ["0", "0"]), ("-1", ["3", "0"]), ("-2", ["0", "0"])):
        reported = tools.ask("GetOffsetShell", "--topic", topic, "--time", when)
        assert re.findall(rf"^{topic}:\d:(\d+)$", reported, re.MULTILINE) == expected


def test_deleted_records(tools: KafkaTools, tmp_path: Path) -> None:
    topic = tools.create("shortened")
    tools.fill(topic, "1", "2", "3")
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}))
    assert f"partition: {topic}-0\tlow_watermark: 2" in tools.ask(
        "DeleteRecordsCommand", "--offset-json-file", str(wanted)
    )
    assert f"{topic}:0:2" in tools.ask("GetOffsetShell", "--topic", topic, "--time", "earliest")


def test_transactions(tools: KafkaTools) -> None:
    """list, describe, describe-producers, find-hanging, abort, forceTerminateTransaction."""
    topic, command = tools.create("transacted"), "TransactionsCommand"
    with fencepost.Admin(tools.servers) as admin:
        given = admin.init_producer_id("prepared", timeout_ms=60_000, two_phase=True)
    with pytest.raises(KafkaError):  # it ends what has been fenced by then
        use_and_terminate(tools, topic, command)
    # The administrator's init has taken the id over.
    assert ["open", "Empty"] in [[row[0], row[-1]] for row in tools.rows(command, "list")]
    described = tools.rows(command, "describe", "--transactional-id", "prepared")[-1]
    assert described[:6] == ["1", "prepared", str(given.producer_id), "0", "Empty", str(2**31 - 1)]


def use_and_terminate(tools: KafkaTools, topic: str, command: str) -> None:
    with fencepost.Producer(tools.servers, transactional_id="open", two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"value-1").result()
        owner = str(producer.producer_id)
        assert ["open", "1", owner, "Ongoing"] in tools.rows(command, "list")
        assert ["open", "1", owner, "Ongoing"] in tools.rows(command, "list", "--transactional-id-pattern", "op.n")
        # An id with nothing begun passes every duration, as in Kafka.
        assert [row[0] for row in tools.rows(command, "list", "--duration-filter", "3600000")[1:]] == ["prepared"]
        # init_transactions() claims twice here: the second claim gives the timeout that prepare lifts, and epoch 1.
        described = tools.rows(command, "describe", "--transactional-id", "open")[-1]
        assert (described[:6], described[-1]) == (["1", "open", owner, "1", "Ongoing", "900000"], f"{topic}-0")
        seen = tools.rows(command, "describe-producers", "--topic", topic, "--partition", "0")[-1]
        assert (seen[0], seen[-1]) == (owner, "0")
        assert tools.rows(command, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")[1:] == []
        wrong = tools.tell(command, "abort", "--topic", topic, "--partition", "0", "--start-offset", "77")
        assert (wrong.status, "Could not find any open transactions" in wrong.output) == (1, True)
        tools.ask(command, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert f"{topic}:0:2" in tools.ask("GetOffsetShell", "--topic", topic, "--time", "latest")
        tools.fill(topic, "value-2")
        assert tools.consumed(topic, "read_committed", 1) == ["value-2"]
        tools.ask(command, "forceTerminateTransaction", "--transactionalId", "open")


def test_log_dirs_features_versions_and_cluster(tools: KafkaTools) -> None:
    topic = tools.create("measured", 2)
    tools.fill(topic, "1")
    described = json.loads(tools.ask("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    (folder,) = described["brokers"][0]["logDirs"]
    assert {partition["partition"]: partition["size"] > 0 for partition in folder["partitions"]} == {
        f"{topic}-0": True,
        f"{topic}-1": False,
    }
    features = tools.ask("FeatureCommand", "describe")
    assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 2\s", features)
    tools.ask("FeatureCommand", "upgrade", "--release-version", "4.4")
    loggers = tools.ask(CONFIGS, "--entity-type", "broker-loggers", "--entity-name", "1", "--describe")
    assert re.search(r"^  root=[A-Z]+ ", loggers, re.MULTILINE)
    versions = tools.ask("BrokerApiVersionsCommand")
    assert re.search(r"InitProducerId\(22\): 0 to 6 \[usable: \d\]", versions), versions
    with Broker({"transaction.version": 1}) as older:
        reported = tools.run("FeatureCommand", "--bootstrap-server", older.bootstrap_servers, "describe")
        assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 1\s", reported.output)
    reported = tools.run("ClusterTool", "cluster-id", "--bootstrap-server", tools.servers)
    assert re.search(r"Cluster ID: \S{22}", reported.output)


def test_verifiable_and_performance_clients(tools: KafkaTools) -> None:
    topic = tools.create("verified")
    # The producer's last lines are written by its shutdown hook, which does not run here: what was read counts.
    tools.ask("VerifiableProducer", "--topic", topic, "--max-messages", "50")
    reported = tools.ask(
        "VerifiableConsumer", "--topic", topic, "--group-id", "v", "--max-messages", "50", "--reset-policy", "earliest"
    )
    events = [json.loads(line) for line in reported.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 50
    assert {event["success"] for event in events if event["name"] == "offsets_committed"} == {True}
    written = tools.ask(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "20"),
    )
    assert "3000 records sent" in written
    read = tools.rows("ConsumerPerformance", "--topic", topic, "--num-records", "3000", "--timeout", "20000")
    assert int(read[-1][6].rstrip(",")) >= 3000
    assert "Avg latency" in tools.ask(
        "EndToEndLatency", "--topic", topic, "--num-records", "20", "--producer-acks", "all", "--record-size", "20"
    )


def test_the_quorum_of_one(tools: KafkaTools) -> None:
    reported = dict(
        line.split(":", 1) for line in tools.ask("MetadataQuorumCommand", "describe", "--status").splitlines()
    )
    assert reported["LeaderId"].strip() == "1"
    assert reported["MaxFollowerLag"].strip() == "0"
    assert '"id": 1' in reported["CurrentVoters"]


def test_reassignments(tools: KafkaTools, tmp_path: Path) -> None:
    topic = tools.create("reassigned", 2)
    tool, plan = "reassign.ReassignPartitionsCommand", tmp_path / "plan.json"
    assert "No partition reassignments found" in tools.ask(tool, "--list")
    partitions = [{"topic": topic, "partition": index, "replicas": [1]} for index in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    given = ("--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignments" in tools.ask(tool, *given, "--execute")
    assert f"{topic}-1 is completed" in tools.ask(tool, *given, "--verify")
    plan.write_text(json.dumps({"version": 1, "partitions": [{**partitions[0], "replicas": [2]}]}))
    refused = tools.tell(tool, *given, "--execute")
    assert refused.status == 1
    assert "2" in refused.output


def test_users_of_scram(tools: KafkaTools) -> None:
    user = ("--entity-type", "users", "--entity-name", "carol")
    with fencepost.Admin(tools.servers) as admin:
        tools.ask(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
        (carol,) = admin.describe_user_scram_credentials(["carol"])
        assert (carol.mechanism.sasl_name, carol.iterations) == ("SCRAM-SHA-256", 8192)
        tools.ask(CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
        assert admin.describe_user_scram_credentials(["carol"]) == []


def test_quotas_of_clients(tools: KafkaTools) -> None:
    client = ("--entity-type", "clients", "--entity-name", "perf-producer-client")  # ProducerPerformance's name
    tools.ask(CONFIGS, "--alter", *client, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    reported = tools.ask(CONFIGS, "--describe", *client)
    assert "producer_byte_rate=1024.0" in reported
    assert "consumer_byte_rate=2048.0" in reported
    topic = tools.create("throttled")  # what is more than ten seconds of its rate has to wait
    written = tools.ask(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "12", "--record-size", "1024", "--throughput", "-1", "--print-metrics"),
        *("--command-property", "batch.size=0"),
    )
    (waited,) = re.findall(r"produce-throttle-time-max\S* +: ([0-9.]+)", written)
    assert 100 < float(waited) < 20_000
    tools.ask(CONFIGS, "--alter", *client, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in tools.ask(CONFIGS, "--describe", *client)


def test_the_logs_on_disk(tools: KafkaTools) -> None:
    """kafka-dump-log, records one by one, and both decoders of the internal topics."""
    topic = tools.create("dumped")
    with fencepost.Producer(tools.servers, transactional_id="dumper") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"value-1", key=b"k")
            offsets = {fencepost.TopicPartition(topic, 0): fencepost.OffsetAndMetadata(1)}
            producer.send_offsets_to_transaction(offsets, fencepost.GroupMetadata("dumpers"))
    with fencepost.Admin(tools.servers) as admin:  # a commit is answered before its markers are written
        until(lambda: admin.describe_transactions(["dumper"])[0].state == "CompleteCommit")
    folder = Path(tools.broker.data_dir)
    data = dump(tools, [folder / f"{topic}-0"], "--deep-iteration", "--print-data-log")
    assert "payload: value-1" in data
    assert "endTxnMarker: COMMIT" in data
    transactions = dump(tools, sorted(folder.glob("__transaction_state-*")), "--transaction-log-decoder")
    assert re.findall(r'"transactionalId":"dumper"', transactions)
    statuses = set(re.findall(r'"transactionStatus":"(\w+)"', transactions))
    assert statuses >= {"Empty", "Ongoing", "PrepareCommit", "CompleteCommit"}
    committed = dump(tools, sorted(folder.glob("__consumer_offsets-*")), "--offsets-decoder")
    assert f'"group":"dumpers","topic":"{topic}","partition":0' in committed


def dump(tools: KafkaTools, folders: list[Path], *options: str) -> str:
    """All segments with their indexes."""
    files = [str(file) for folder in folders for file in sorted(folder.glob("0*.log"))]
    assert files
    ran = tools.run("DumpLogSegments", "--files", ",".join(files), *options)
    assert ran.status == 0, ran.output
    assert not re.search(r"mismatch|[Ii]nvalid|Exception", ran.output.replace("isvalid: true", "")), ran.output
    return ran.output
