"""`fencepost.compat.confluent_kafka` beside the installed confluent-kafka: names, parameters, codes and defaults."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import fencepost
import fencepost.client.admin
import fencepost.schemas
from fencepost.compat import confluent_kafka as ours
from fencepost.compat.confluent_kafka.base.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.base.settings import DEFAULTS, given
from fencepost.config import CommonConfig, ConsumerConfig, ProducerConfig
from fencepost.errors import UsageError
from tests.support import confluent_page as page
from tests.support.peer_settings import librdkafka

NAMES = list(page.names())
REFUSED = [name for name in NAMES if page.refusal_of(name)]


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [("enable.idempotance", "enable.idempotence"), ("ack", "acks"), ("ssl.ca.locatoin", "ssl.ca.location")],
)
def test_a_misspelt_setting_is_told_with_the_name_that_librdkafka_has(given_name: str, meant: str) -> None:
    with pytest.raises(ours.KafkaException, match=re.escape(f"'{given_name}'; did you mean '{meant}'")):
        ours.Producer({"bootstrap.servers": "127.0.0.1:1", given_name: "1"})


def test_every_name_works_or_says_why_not() -> None:
    assert [name for name in NAMES if page.found_in(ours, name) is None and name not in page.ABSENT] == []
    assert [name for name in page.ABSENT if page.found_in(ours, name) is not None] == []
    assert [name for name in (*page.ABSENT, *page.DIFFERENCES) if name not in NAMES] == []
    assert all(page.ABSENT.values())
    assert all(page.DIFFERENCES.values())
    assert len(NAMES) > 150


def test_the_page_has_every_name() -> None:
    assert page.section() == page.written(), "python -m tests.support.confluent_page"


@pytest.mark.parametrize("name", REFUSED)
def test_refused_names_say_what_to_use(name: str) -> None:
    refused = page.found_in(ours, name)
    arguments = [] if inspect.isclass(refused) else [Open(), *[None] * needed(refused)]
    with pytest.raises(UsageError, match=re.escape(name.rpartition(".")[2])) as caught:
        refused(*arguments)
    for mentioned in re.findall(r"fencepost\.(?!compat)[\w.]*\w", f"{caught.value} {page.refusal_of(name)}"):
        assert page.found_in(fencepost, mentioned.removeprefix("fencepost.")) is not None, mentioned


class Open:
    """A client that is not closed."""

    def _open(self) -> None:
        pass


def needed(method: Any) -> int:
    """The number of parameters without a default, besides self."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return sum(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)


def stubs() -> Iterator[tuple[str, list[str]]]:
    """(class and method, parameters) of the types that confluent-kafka ships for its module in C."""
    tree = ast.parse(Path(confluent_kafka.__path__[0], "cimpl.pyi").read_text())
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name in ("Producer", "Consumer", "TopicPartition", "NewTopic"):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and not method.decorator_list:
                    yield f"{owner.name}.{method.name}", [each.arg for each in method.args.args][1:]


def parameters_of(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.kind not in kinds and each.name != "self"]


def test_parameters_are_those_of_confluent_kafka() -> None:
    compared = 0
    for name, theirs in stubs():
        ours_of_it = page.found_in(ours, name) or page.found_in(ours.admin, name)
        if name.rpartition(".")[2].startswith("__") and not name.endswith("__init__"):
            continue
        if ours_of_it is None or name == "Consumer.unassign":  # it takes and ignores partitions in both
            continue
        assert parameters_of(ours_of_it)[: len(theirs)] == theirs, name
        compared += 1
    assert compared > 35


def test_parameters_of_the_admin_client_are_those_of_confluent_kafka() -> None:
    compared = 0
    for name in NAMES:
        short = name.removeprefix("admin.AdminClient.")
        theirs = getattr(confluent_kafka.admin.AdminClient, short, None)
        if short == name or not inspect.isfunction(theirs) or short in ("list_topics", "cluster_id"):
            continue
        assert parameters_of(getattr(ours.admin.AdminClient, short))[: len(parameters_of(theirs))] == parameters_of(
            theirs
        ), name
        compared += 1
    assert compared > 20


def test_error_codes_are_those_of_confluent_kafka() -> None:
    theirs = {name: getattr(confluent_kafka.KafkaError, name) for name in dir(confluent_kafka.KafkaError)}
    codes = {name: code for name, code in theirs.items() if name.strip("_").isupper() and isinstance(code, int)}
    assert {name: getattr(ours.KafkaError, name) for name in codes} == codes
    assert len(codes) > 150
    assert all(code < 0 or name not in codes or codes[name] == code for name, code in NUMBERS.items())
    with pytest.raises(AttributeError, match="NO_SUCH_CODE"):
        _ = ours.KafkaError.NO_SUCH_CODE


@pytest.mark.parametrize("code", [3, -185, -191, 47, 99_999])
def test_errors_behave_as_those_of_confluent_kafka(code: int) -> None:
    def shown(module: Any) -> list[Any]:
        error, other = module.KafkaError(code, "text", True, True, True), module.KafkaError(7)
        flags = error.code(), error.name(), error.str(), error.fatal(), error.retriable(), error.txn_requires_abort()
        order = error == code, error == other, error < 7, error > other, error <= code, error >= code, error != other
        return [flags, order, repr(error), str(error), hash(error) == hash(module.KafkaError(code)), bool(error)]

    assert shown(ours) == shown(confluent_kafka)


def test_values_behave_as_those_of_confluent_kafka() -> None:
    def shown(module: Any) -> list[Any]:
        first, second = module.TopicPartition("t", 1, 5, "note", 3), module.TopicPartition("t", 1)
        order = first == second, hash(first) == hash(second), first < module.TopicPartition("u"), first >= second
        partition = repr(first), str(second), first.metadata, first.leader_epoch, second.offset, second.error
        message = module.Message("t", 1, 2, b"k", b"value", [("h", b"x")], None, (1, 5))
        fields = message.topic(), message.partition(), message.offset(), message.key(), message.value()
        more = message.headers(), message.error(), message.timestamp(), message.latency(), message.leader_epoch()
        empty = module.Message()
        nothing = (
            empty.topic(),
            empty.partition(),
            empty.offset(),
            empty.timestamp(),
            len(empty),
            empty.delivery_count(),
        )
        topic = module.admin.NewTopic("t", 2, 1, config={"a": "b"})
        equal = topic == module.admin.NewTopic("t", 2, 1), topic == module.admin.NewTopic("t", 3, 1)
        created = repr(topic), equal, topic.config
        keys = [
            (module.murmur2(key, 7), module.consistent(key, 7), module.fnv1a(key, 7)) for key in (b"", b"a", b"abc")
        ]
        uuid = str(module.Uuid(-5, 7)), module.Uuid(-5, 7).get_most_significant_bits()
        return [order, partition, fields, more, len(message), message == empty, nothing, created, keys, uuid]

    assert shown(ours) == shown(confluent_kafka)


def enumerations(module: Any) -> dict[str, list[tuple[str, int]]]:
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    enums = {name: each for name, each in found.items() if isinstance(each, type) and issubclass(each, enum.Enum)}
    return {name: [(member.name, member.value) for member in each] for name, each in enums.items()}


@pytest.mark.parametrize(("mine", "theirs"), [(ours, confluent_kafka), (ours.admin, confluent_kafka.admin)])
def test_enumerations_and_constants_are_those_of_confluent_kafka(mine: Any, theirs: Any) -> None:
    own = enumerations(mine)
    assert own == {name: values for name, values in enumerations(theirs).items() if name in own}
    constants = {name: getattr(mine, name) for name in dir(mine) if isinstance(getattr(mine, name), int)}
    assert constants == {name: getattr(theirs, name) for name in constants}
    assert len(own) + len(constants) > 9


def test_versions_as_programs_log_them() -> None:
    assert ours.__version__ == ours.version() == fencepost.__version__
    with pytest.raises(UsageError, match=r"libversion\(\).*use version\(\)"):
        ours.libversion()


def test_it_does_not_need_confluent_kafka() -> None:
    program = """
import sys
sys.modules["confluent_kafka"] = None
from fencepost.compat.confluent_kafka import Consumer, Producer
from fencepost.compat.confluent_kafka.admin import AdminClient
print(Consumer.__name__, Producer.__name__, AdminClient.__name__)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["Consumer", "Producer", "AdminClient"]


def test_the_schema_registry_names_the_extra_that_it_needs() -> None:
    program = """
import sys
sys.modules["confluent_kafka"] = None
try:
    import fencepost.compat.confluent_kafka.schema_registry.avro
except ModuleNotFoundError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("fencepost.compat.confluent_kafka.schema_registry needs confluent_kafka")
    assert ran.stdout.endswith("not installed here: pip install 'fencepost[schemas]'\n")


# Settings whose defaults are Fencepost's own: they change how much is fetched, sent, retried or logged at once.
OWN_DEFAULTS = {
    "allow_auto_create_topics",  # librdkafka's producers create topics, whatever the setting says
    "check_crcs",
    "auto_commit_interval_ms",  # 5000 in both; the one of a minute is of librdkafka's old consumer
    "batch_size",
    "buffer_memory",
    "connections_max_idle_ms",
    "fetch_max_bytes",
    "max_in_flight_requests_per_connection",
    "max_partition_fetch_bytes",
    "max_poll_records",
    "max_response_bytes",
    "metadata_max_age_ms",
    "reconnect_backoff_max_ms",
    "reconnect_backoff_ms",
    "request_timeout_ms",  # librdkafka has two: socket.timeout.ms is the one that this is set to
    "retry_backoff_ms",
    "socket_connection_setup_timeout_ms",
    "sasl_mechanism",  # without security.protocol it has no effect, and GSSAPI needs an extra
    "sasl_kerberos_keytab",
    "sasl_kerberos_principal",
    "ssl_endpoint_identification_algorithm",
    "compression_level",
    "enable_auto_offset_store",  # the module stores offsets itself
}


@pytest.mark.parametrize("role", [ProducerConfig, ConsumerConfig])
def test_defaults_are_those_of_librdkafka(role: type[CommonConfig]) -> None:
    settings = {"bootstrap.servers": "localhost:1", **({"group.id": "g"} if role is ConsumerConfig else {})}
    config = given(role, (settings,), {}).config
    compared = set()
    for peer in librdkafka():
        if peer.config is not role or peer.default is None:
            continue
        try:
            theirs = given(role, ({**settings, peer.name: peer.default},), {}).config
        except (ours.KafkaException, UsageError, ValueError):
            continue  # the default of another role, or one that is refused
        changed = {name for name, value in theirs.items() if value != config[name]}
        assert changed <= OWN_DEFAULTS, (peer.name, peer.default)
        compared.add(peer.name)
    assert len(compared) > 60
    assert set(DEFAULTS[role]) <= config.keys()


@pytest.mark.parametrize("name", ["consume_cb", "rebalance_cb", "offset_commit_cb"])
def test_callbacks_that_would_not_be_called_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        ours.Producer({"bootstrap.servers": "localhost:1", name: print})


def test_a_callback_that_is_no_function() -> None:
    for name in ("on_delivery", "dr_cb", "error_cb", "stats_cb", "on_commit"):
        with pytest.raises(TypeError, match=name):
            ours.Producer({"bootstrap.servers": "localhost:1", name: "print"})
