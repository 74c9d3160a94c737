"""Settings, the exception tree, the retry table, prepared transactions."""

from __future__ import annotations

import inspect
import os
import ssl
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import aiokafka.coordinator.assignors.roundrobin
import kafka
import pytest

import fencepost
from fencepost import errors
from fencepost.client.net import retry
from fencepost.client.net.retry import Action
from fencepost.client.net.tls import context_for
from fencepost.client.prepared import PreparedTransaction
from fencepost.config import AdminConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from fencepost.errors import ConfigurationError
from fencepost.protocol.codes import ErrorCode, retriable
from tests.support import client_settings_page
from tests.support.certificates import Authority

SERVERS = {"bootstrap_servers": "a:1"}


def test_kafkas_dotted_names_and_texts() -> None:
    config = ProducerConfig.from_dotted(
        {
            "bootstrap.servers": "a:1",
            "linger.ms": "20",
            "acks": "all",
            "enable.idempotence": "true",
            "transactional.id": "x",
            "transaction.two.phase.commit.enable": "true",
        }
    )
    assert (config.linger_ms, config.acks, config.enable_idempotence) == (20.0, -1, True)
    assert (config.transactional_id, config.two_phase_commit) == ("x", True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"linger": 1}, "did you mean 'linger_ms'"),
        ({"lingerms": 1}, "did you mean 'linger_ms'"),
        ({"zzzz": 1}, "unknown setting 'zzzz'"),
        ({"linger_ms": "soon"}, "linger_ms='soon'"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"compression_type": "rar"}, "none, gzip, snappy, lz4, zstd"),
        ({"enable_idempotence": "yes"}, "enable_idempotence"),
        ({"acks": 2}, "acks"),
        ({"acks": 1}, "enable_idempotence=False"),
        ({"transactional_id": "x", "enable_idempotence": False}, "acks=all"),
        ({"transactional_id": ""}, "empty"),
        ({"two_phase_commit": True}, "transactional_id"),
        # As Java 4.1.1 and 4.3.1, also for the value that is the default.
        ({"two_phase_commit": True, "transactional_id": "x", "transaction_timeout_ms": 5_000}, "no timeout"),
        ({"two_phase_commit": True, "transactional_id": "x", "transaction_timeout_ms": 60_000}, "no timeout"),
        ({"max_in_flight_requests_per_connection": 6}, "1 to 5"),
        ({"client_id": 7}, "must be text"),
        ({"retries": 1.5}, "retries=1.5: must be a whole number"),
        ({"max_block_ms": float("inf")}, "must be a whole number"),
        ({"retries": True}, "must be a whole number"),
        ({"retries": "many"}, "must be a whole number"),
        ({"retries": "1_0"}, "must be a whole number"),
        ({"linger_ms": []}, "must be a number"),
        ({"acks": "some"}, "acks='some': one of -1, 0, 1"),
        ({"partitioner": 7}, "must be text or a function"),
        ({"ssl_context": "x"}, "must be an ssl.SSLContext"),
        ({"sasl_oauth_token_provider": "x"}, "must be a function"),
        ({"interceptors": 7}, "must be a list"),
        ({"enable_idempotence": 1}, "must be True or False"),
        ({"transaction_timeout_ms": 2**31}, "transaction_timeout_ms=2147483648: must be at most 2147483647"),
        ({"max_block_ms": 2**63}, "must be at most 9223372036854775807"),
        ({"client_id": "\ud800"}, "client_id cannot be written in UTF-8"),
        ({"transactional_id": "\udcff"}, "transactional_id cannot be written in UTF-8"),
        ({"client_id": "\u00fc" * 16_384}, "client_id has 32768 bytes"),
    ],
)
def test_bad_settings_say_which_and_why(settings: dict[str, object], words: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=words):
        ProducerConfig.make({**SERVERS, **settings})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("linger.ms", "queue.buffering.max.ms"),
        ("queue.buffering.max.ms", "linger.ms"),
        ("request.timeout.ms", "request_timeout_ms"),
        ("request_timeout_ms", "request.timeout.ms"),
    ],
)
def test_two_names_of_one_setting_are_reported(first: str, second: str, caplog: pytest.LogCaptureFixture) -> None:
    name = "linger_ms" if "linger.ms" in (first, second) else "request_timeout_ms"
    ProducerConfig.from_dotted({"bootstrap.servers": "h:1", first: "1000", second: 1000, "acks": "all"})
    assert getattr(ProducerConfig.from_dotted({"bootstrap.servers": "h:1", first: "1", second: "2"}), name) == 2
    words = f"{first} and {second} are the same setting, with different values; that of {second} is used"
    assert caplog.messages.count(words) == 1


def test_none_is_the_default() -> None:
    defaults = ProducerConfig.make(SERVERS)
    names = [setting.name for setting in fields(ProducerConfig) if setting.name not in SERVERS]
    assert ProducerConfig.make({**SERVERS, **dict.fromkeys(names)}) == defaults


def test_values_of_other_clients() -> None:
    def config_of(**settings: object) -> ProducerConfig:
        return ProducerConfig.make({**SERVERS, **settings})

    assert config_of(retries=float("inf")).retries == 2**31 - 1
    assert config_of(queue_buffering_max_kbytes="1048576").buffer_memory == 2**30
    assert config_of(message_timeout_ms=0).delivery_timeout_ms == 2**31 - 1
    assert config_of(compression_codec="gzip", compression_level=-1).compression_level is None
    assert config_of(compression_codec="zstd", compression_level=-1).compression_level == -1
    assert config_of(compression_codec="lz4", compression_lz4_level=3, compression_gzip_level=9).compression_level == 3
    assert (
        config_of(
            default_topic_config={"request.required.acks": "all", "message.timeout.ms": 9_000}
        ).delivery_timeout_ms
        == 9_000
    )
    tls = {"security_protocol": "ssl"}
    assert config_of(**tls, ssl_check_hostname=False).ssl_endpoint_identification_algorithm == ""
    assert config_of(**tls, ssl_check_hostname=True).ssl_endpoint_identification_algorithm == "https"
    assert config_of(**tls, ssl_endpoint_identification_algorithm="none").ssl_endpoint_identification_algorithm == ""
    with pytest.raises(ConfigurationError, match="queue_buffering_max_kbytes='much'"):
        config_of(queue_buffering_max_kbytes="much")
    with pytest.raises(ConfigurationError, match="default_topic_config='x': must be a dict"):
        config_of(default_topic_config="x")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("range,roundrobin", ("range", "roundrobin")),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", ("cooperative-sticky",)),
        ([aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor], ("roundrobin",)),
        (aiokafka.AIOKafkaConsumer.__init__.__kwdefaults__["partition_assignment_strategy"], ("roundrobin",)),
        (kafka.KafkaConsumer.DEFAULT_CONFIG["partition_assignment_strategy"], ("range", "roundrobin")),
    ],
)
def test_assignors_of_other_clients(theirs: object, ours: tuple[str, ...]) -> None:
    config = ConsumerConfig.make({**SERVERS, "partition_assignment_strategy": theirs})
    assert config.partition_assignment_strategy == ours


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("smallest", "earliest"), ("beginning", "earliest"), ("Largest", "latest"), ("end", "latest"), ("error", "none")],
)
def test_start_offsets_of_librdkafka(theirs: str, ours: str) -> None:
    assert ConsumerConfig.make({**SERVERS, "auto_offset_reset": theirs}).auto_offset_reset == ours


def test_a_setting_of_another_role_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    ConsumerConfig.from_dotted({"bootstrap.servers": "a:1", "linger.ms": 5})
    AdminConfig.from_dotted({"bootstrap.servers": "a:1", "group.id": "g"})
    assert "setting linger.ms has no effect here; it is one of producers" in caplog.text
    assert "setting group.id has no effect here; it is one of consumers and share consumers" in caplog.text
    with pytest.raises(ConfigurationError, match="unknown setting 'auto_offset_reset'"):
        ShareConsumerConfig.make({**SERVERS, "group_id": "g", "auto_offset_reset": "earliest"})


def test_refusals_do_not_show_secrets() -> None:
    name = "sasl_oauthbearer_assertion_private_key_pem"
    with pytest.raises(ConfigurationError, match=f"{name}=...: not possible here") as caught:
        AdminConfig.make({**SERVERS, name: "geheim"})
    assert "geheim" not in str(caught.value)


def test_values_take_the_types_of_their_settings() -> None:
    partitioner, context = (lambda *_: 0), ssl.create_default_context()
    config = ProducerConfig.make(
        {
            **SERVERS,
            "acks": "-1",
            "linger_ms": 3,
            "retries": 5.0,
            "batch_size": "7",
            "allow_auto_create_topics": "FALSE",
            "partitioner": partitioner,
            "security_protocol": "SSL",
            "ssl_context": context,
            "interceptors": [],
        }
    )
    assert (config.acks, config.linger_ms, config.retries, config.batch_size) == (-1, 3.0, 5, 7)
    assert list(map(type, (config.acks, config.linger_ms, config.retries))) == [int, float, int]
    assert (config.allow_auto_create_topics, config.interceptors) == (False, ())
    assert (config.partitioner, config.ssl_context) == (partitioner, context)
    assert ConsumerConfig.from_dotted(
        {"bootstrap.servers": "x", "partition.assignment.strategy": "range, roundrobin"}
    ).partition_assignment_strategy == ("range", "roundrobin")


def test_every_type_of_a_setting_can_be_judged() -> None:
    judged = 0
    for config in (AdminConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig):
        for name, hint in typing.get_type_hints(config).items():
            if typing.get_origin(hint) is typing.ClassVar:
                continue
            with pytest.raises(errors.ConfigurationError, match=name):
                config.make({**SERVERS, name: object()})
            judged += 1
    assert judged > 90


def test_consumer_settings() -> None:
    config = ConsumerConfig.make(SERVERS)
    assert (config.isolation_level, config.enable_auto_commit) == ("read_committed", False)
    with pytest.raises(errors.ConfigurationError, match="group_id"):
        ConsumerConfig.make({**SERVERS, "enable_auto_commit": True})
    with pytest.raises(errors.ConfigurationError, match="heartbeat_interval_ms"):
        ConsumerConfig.make({**SERVERS, "heartbeat_interval_ms": 50_000})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"group_id": "\ud800"}, "group_id cannot be written in UTF-8"),
        ({"group_id": "g", "group_instance_id": "i" * 32_768}, "group_instance_id has 32768 bytes"),
        ({"group_id": "g", "session_timeout_ms": 2**31}, "session_timeout_ms=2147483648: must be at most"),
        ({"fetch_min_bytes": 2**31}, "fetch_min_bytes=2147483648: must be at most"),
        ({"group_id": "g", "heartbeat_interval_ms": 0}, "heartbeat_interval_ms=0: must be at least 1"),
        ({"group_id": "g", "max_poll_interval_ms": 0}, "max_poll_interval_ms=0: must be at least 1"),
    ],
)
def test_bad_settings_of_a_consumer(settings: dict[str, object], words: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=words):
        ConsumerConfig.make({**SERVERS, **settings})


@pytest.mark.parametrize(
    "name",
    ["max_request_size", "transaction_timeout_ms", "max_response_bytes", "socket_connection_setup_timeout_ms"],
)
def test_a_producer_that_could_never_write_is_refused(name: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"{name}=0: must be at least 1"):
        ProducerConfig.make({**SERVERS, name: 0})


def test_the_page_of_settings_is_as_the_rows() -> None:
    assert client_settings_page.PAGE.read_text() == client_settings_page.page()


@pytest.mark.parametrize("name", ["max_poll_records", "max_decompressed_bytes"])
def test_a_consumer_that_could_never_read_is_refused(name: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"{name}=0: must be at least 1"):
        ConsumerConfig.make({**SERVERS, name: 0})


def test_values_are_shown_unless_they_are_secret() -> None:
    with pytest.raises(errors.ConfigurationError, match="partitioner_ignore_keys='7': must be True or False"):
        ProducerConfig.make({**SERVERS, "partitioner_ignore_keys": "7"})
    for name in ("ssl_keystore_key", "ssl_key_pem", "ssl_keystore_certificate_chain", "sasl_plain_password"):
        with pytest.raises(errors.ConfigurationError, match=r"=[.]{3}: must be text"):
            AdminConfig.make({**SERVERS, name: 5_061})
    assert "5061" not in repr(AdminConfig.make({**SERVERS, "proxy_url": "http://u:5061@proxy.example:1"}))


def test_a_name_that_this_client_lacks_is_not_proposed() -> None:
    with pytest.raises(errors.ConfigurationError, match=r"unknown setting 'queue_buffering_max_kbytes'$"):
        ShareConsumerConfig.make({**SERVERS, "group_id": "g", "queue_buffering_max_kbytes": 1})


def test_the_largest_settings_are_taken() -> None:
    producer = ProducerConfig.make({**SERVERS, "max_block_ms": 2**63 - 1, "transaction_timeout_ms": 2**31 - 1})
    assert (producer.max_block_ms, producer.transaction_timeout_ms) == (2**63 - 1, 2**31 - 1)
    consumer = ConsumerConfig.make({**SERVERS, "group_id": "g" * 32_767, "fetch_max_bytes": 2**31 - 1})
    assert (consumer.group_id, consumer.fetch_max_bytes) == ("g" * 32_767, 2**31 - 1)


def test_the_tree_is_the_drawn_one() -> None:
    text = errors.__doc__ or ""
    classes = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.KafkaError)
    }
    assert len(classes) > 30
    drawn = {name for name in classes if name in text}
    undrawn = classes - drawn
    assert undrawn <= {f"{kind}AuthorizationError" for kind in ("Topic", "Group", "TransactionalId", "Cluster")}
    branches = (errors.RetriableError, errors.AbortableError, errors.ApplicationRecoverableError, errors.FatalError)
    for attribute in vars(errors).values():
        if isinstance(attribute, type) and issubclass(attribute, errors.KafkaError):
            assert sum(issubclass(attribute, branch) for branch in branches) <= 1, attribute


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (47, errors.InvalidProducerEpochError),
        (90, errors.ProducerFencedError),
        (120, errors.TransactionAbortableError),
        (29, errors.TopicAuthorizationError),
        (30, errors.GroupAuthorizationError),
        (31, errors.ClusterAuthorizationError),
        (53, errors.TransactionalIdAuthorizationError),
        (6, errors.RetriableBrokerError),
        (88, errors.UnstableOffsetsError),
        (-1, errors.BrokerError),
        (12345, errors.BrokerError),
    ],
)
def test_wire_codes_become_exceptions(code: int, expected: type[Exception]) -> None:
    error = errors.error_for(code, "what was asked", "the broker's words")
    assert type(error) is expected
    assert error.code == code
    assert "what was asked" in str(error)
    assert "the broker's words" in str(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.DisconnectedError("x", sent=True), True),
        (errors.DisconnectedError("x"), False),
        (errors.KafkaTimeoutError("x", outcome_unknown=True), True),
        (errors.KafkaTimeoutError("x"), False),
        (errors.TransactionCommitFailedError("x", outcome_unknown=True), True),
        (errors.TransactionCommitFailedError("x"), False),
        (errors.BrokerError("x"), False),
    ],
)
def test_errors_say_whether_what_was_asked_may_have_taken_effect(error: errors.KafkaError, expected: bool) -> None:
    assert error.may_have_taken_effect is expected


def test_every_retriable_code_is_retried_somewhere() -> None:
    tried = [code for code in ErrorCode if retriable(code)]
    assert len(tried) > 20
    for code in tried:
        assert retry.action(retry.METADATA, code) in (
            Action.RETRY,
            Action.REFRESH_LEADER,
            Action.REFRESH_COORDINATOR,
        ), code


def test_back_off_grows_to_its_most_and_is_spread() -> None:
    waits = [retry.backoff_ms(attempt, 0.5) for attempt in range(12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (20, 1000)
    assert retry.backoff_ms(3, 0.0) < retry.backoff_ms(3, 0.99)


def test_prepared_transactions_as_text() -> None:
    prepared = PreparedTransaction(2**40, 32_767)
    assert PreparedTransaction.parse(str(prepared)) == prepared
    for bad in ("", "1", "1:", ":1", "1:2:3", "-1:0", "1:-1", "1:99999", " 1:2", "1:2\n", "\u0661:2"):
        with pytest.raises(errors.ConfigurationError):
            PreparedTransaction.parse(bad)


def test_public_names_exist() -> None:
    assert len(fencepost.__all__) > 10
    for name in set(fencepost.__all__) - {"Broker"}:
        assert getattr(fencepost, name) is not None
    with pytest.raises(AttributeError):
        _ = fencepost.Nothing


def test_compression_levels_by_kafkas_names() -> None:
    """KIP-390: each codec has a setting of its own; that of the codec in use counts."""
    given = {"bootstrap.servers": "x", "compression.gzip.level": "9", "compression.zstd.level": "-3"}
    assert ProducerConfig.from_dotted({**given, "compression.type": "zstd"}).compression_level == -3
    assert ProducerConfig.from_dotted({**given, "compression.type": "gzip"}).compression_level == 9
    assert ProducerConfig.from_dotted({**given, "compression.type": "lz4"}).compression_level is None
    assert ProducerConfig.from_dotted(given).compression_level is None


@pytest.mark.parametrize(("codec", "level"), [("gzip", 10), ("gzip", 0), ("lz4", 18), ("zstd", 23), ("snappy", 1)])
def test_compression_levels_that_do_not_exist(codec: str, level: int) -> None:
    with pytest.raises(errors.ConfigurationError, match="compression_level"):
        ProducerConfig.make({"bootstrap_servers": "x", "compression_type": codec, "compression_level": level})


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({"bootstrap.servers": "h:9092"}, "from_config"),
        (["h:9092", 5], "host:port"),
        (b"h:9092", "host:port"),
        ([], "host:port"),
        (5, "host:port"),
        ("kafka://h:9092", "without anything in front"),
        ("PLAINTEXT://h:9092", "without anything in front"),
        ("h:99999", "'99999' is not a port"),
        ("h:-1", "'-1' is not a port"),
        ("h:0", "'0' is not a port"),
        ("h:\u00b2", "is not a port"),
        ("h:" + "9" * 5_000, "is not a port"),
    ],
)
@pytest.mark.parametrize("client", [fencepost.Producer, fencepost.Consumer, fencepost.Admin])
def test_wrong_addresses_are_refused_at_once(client: Any, servers: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        client(servers)


def test_settings_of_other_clients_that_cannot_matter_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = {
        "debug": "all",
        "log_level": 7,
        "socket.keepalive.enable": True,
        "broker.address.family": "v4",
        "throttle_cb": print,
    }
    config = ConsumerConfig.from_dotted({**foreign, "metadata.broker.list": "h:1", "socket.timeout.ms": "5000"})
    assert (config.bootstrap_servers, config.request_timeout_ms) == ("h:1", 5000)
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == len(foreign)
    for name in foreign:
        assert any(f"setting {name} has no effect" in message for message in reported)


@pytest.mark.parametrize(
    ("client", "config"),
    [
        (fencepost.Producer, ProducerConfig),
        (fencepost.AsyncProducer, ProducerConfig),
        (fencepost.Consumer, ConsumerConfig),
        (fencepost.AsyncConsumer, ConsumerConfig),
        (fencepost.ShareConsumer, ShareConsumerConfig),
        (fencepost.AsyncShareConsumer, ShareConsumerConfig),
        (fencepost.Admin, AdminConfig),
        (fencepost.AsyncAdmin, AdminConfig),
    ],
)
def test_help_shows_the_settings_and_nothing_of_the_core(client: type, config: type) -> None:
    shown = inspect.signature(client).parameters
    assert list(shown) == [field.name for field in fields(config)]
    assert shown["request_timeout_ms"].default == 30_000
    assert "bootstrap_servers" in str(client.__init__.__doc__)  # type: ignore[misc]
    inner = {"cluster", "sender", "accumulator", "append", "full", "check_sending", "abort_after", "forked", "leave"}
    assert not inner & set(dir(client))


def test_a_name_that_no_host_can_have_is_told() -> None:
    with (
        fencepost.Admin("a" * 70 + ".example:9092", default_api_timeout_ms=500) as admin,
        pytest.raises(errors.KafkaError, match="cannot be the name of a host"),
    ):
        admin.list_topics()


def test_an_error_that_is_kept_does_not_grow_with_each_raise() -> None:
    def frames(call: Callable[[], object], expected: type[Exception]) -> list[int]:
        found = []
        for _ in range(3):
            with pytest.raises(expected) as raised:
                call()
            found.append(len(raised.traceback))
        return found

    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as other:
            other.init_transactions()
        producer.begin_transaction()
        delivery = producer.send("t", b"v")
        with pytest.raises(errors.ProducerFencedError):
            producer.commit_transaction()
        calls: list[tuple[Callable[[], object], type[Exception]]] = [
            (producer.begin_transaction, errors.ProducerFencedError),
            (producer.commit_transaction, errors.ProducerFencedError),
            (lambda: producer.send("t", b"v"), errors.ProducerFencedError),
            (delivery.result, errors.ProduceFailedError),
        ]
        for call, expected in calls:
            assert len(set(frames(call, expected))) == 1


def test_errors_come_with_the_package() -> None:
    code = "import fencepost; print(fencepost.errors.KafkaError.__name__, 'errors' in dir(fencepost))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "KafkaError True\n"


def test_a_file_that_tls_cannot_use_is_named(tmp_path: Path) -> None:
    keystore = Authority(tmp_path).issue("ours", locked_with="one").keystore
    os.mkfifo(pipe := tmp_path / "pipe")
    for given, words in (
        ({"ssl.truststore.location": str(pipe)}, f"{pipe}: this is not a regular file"),
        ({"ssl.keystore.location": str(pipe)}, f"{pipe}: this is not a regular file"),
        ({"ssl.truststore.location": "/dev/zero"}, "/dev/zero: this is not a regular file"),
        ({"ssl.keystore.location": "/dev/zero"}, "/dev/zero: this is not a regular file"),
        ({"ssl.truststore.location": "/not/there.pem"}, "/not/there.pem: .*No such file"),
        ({"ssl.keystore.location": "/not/there.pem"}, "/not/there.pem: .*No such file"),
        (
            {"ssl.keystore.location": str(keystore), "ssl.key.password": "another"},
            f"{keystore}: it cannot be read as PEM, or its key needs another ssl.key.password",
        ),
    ):
        config = AdminConfig.from_dotted({"bootstrap.servers": "a:1", "security.protocol": "SSL", **given})
        with pytest.raises(ConfigurationError, match=words):
            context_for(config)
