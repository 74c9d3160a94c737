"""The settings of the other clients with their defaults, read from the installed packages.

librdkafka prints its own table of settings (`rd_kafka_conf_properties_show`). The settings of Java's clients are in
`tests/golden/client_settings.tsv`, written by `ClientSettings.java`. aiokafka and kafka-python have them in Python.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import inspect
import re
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka
import confluent_kafka
import kafka

from fencepost.common_config import own_name
from fencepost.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from fencepost.foreign_settings import BOUND, WITHOUT_EFFECT
from tests.golden.load import CLIENT_SETTINGS

_ROW: Final = re.compile(r"^([a-z][\w.]*)\s+\|\s+([CP*])\s+\|[^|]*\|\s*([^|]*?)\s*\|", re.MULTILINE)
_NO_SETTINGS: Final = frozenset({"bootstrap_servers", "bootstrap.servers", "topics", "self"})
_JAVA_BYTES: Final = "org.apache.kafka.common.serialization.ByteArray"


class PeerSetting(NamedTuple):
    """A setting of another client.

    Attributes:
        client: The client, such as "librdkafka".
        config: Our configuration for the role that has the setting.
        name: Its name.
        default: Its default value, as the client shows it. librdkafka shows a value that is not set as nothing.
    """

    client: str
    config: type[CommonConfig]
    name: str
    default: Any

    @property
    def has_default(self) -> bool:
        """False if the client shows a mark of its own for its default."""
        return type(self.default) is not object


class Treatment(enum.Enum):
    """Treatment of a setting of another client."""

    SAME = "same name"
    RENAMED = "another name here"
    NO_EFFECT = "accepted with a warning"
    BOUND = "some values are refused"
    UNKNOWN = "unknown"


def librdkafka() -> Iterator[PeerSetting]:
    """The settings of the librdkafka in the installed confluent-kafka; those of both roles come twice."""
    configs: dict[str, list[type[CommonConfig]]]
    configs = {"P": [ProducerConfig], "C": [ConsumerConfig], "*": [ProducerConfig, ConsumerConfig]}
    for name, roles, default in _ROW.findall(_librdkafkas_table()):
        if name not in _NO_SETTINGS:
            yield from (PeerSetting("librdkafka", config, name, default or None) for config in configs[roles])


@functools.cache
def _librdkafkas_table() -> str:
    (library,) = Path(confluent_kafka.__path__[0]).parent.glob("confluent_kafka.libs/librdkafka*")
    rdkafka, c = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile("r") as table:
        stream = ctypes.c_void_p(c.fopen(table.name.encode(), b"w"))
        rdkafka.rd_kafka_conf_properties_show(stream)
        c.fclose(stream)
        return table.read()


def java() -> Iterator[PeerSetting]:
    """The settings of Java's clients."""
    configs = {"admin": AdminConfig, "consumer": ConsumerConfig, "producer": ProducerConfig}
    for line in CLIENT_SETTINGS.read_text().splitlines():
        role, name, _kind, default = line.split("\t")
        if name not in _NO_SETTINGS:
            if default == "required":
                default = f"{_JAVA_BYTES}{name.partition('.')[2].capitalize()}"
            yield PeerSetting("Java", configs[role], name, None if default == "none" else default)


def aiokafkas() -> Iterator[PeerSetting]:
    """The parameters of aiokafka's producer and consumer."""
    for client, config in ((aiokafka.AIOKafkaProducer, ProducerConfig), (aiokafka.AIOKafkaConsumer, ConsumerConfig)):
        for name, parameter in inspect.signature(client.__init__).parameters.items():
            if name not in _NO_SETTINGS:
                yield PeerSetting("aiokafka", config, name, parameter.default)


def kafka_pythons() -> Iterator[PeerSetting]:
    """The settings of kafka-python's producer, consumer and admin client."""
    for client, config in (
        (kafka.KafkaProducer, ProducerConfig),
        (kafka.KafkaConsumer, ConsumerConfig),
        (kafka.KafkaAdminClient, AdminConfig),
    ):
        for name, default in client.DEFAULT_CONFIG.items():
            if name not in _NO_SETTINGS:
                yield PeerSetting("kafka-python", config, name, default)


def confluents() -> Iterator[PeerSetting]:
    """The settings that confluent-kafka's documentation adds to librdkafka's ("Python-only configuration")."""
    for name in ("error_cb", "logger", "oauth_cb", "stats_cb", "throttle_cb", "default.topic.config"):
        yield PeerSetting("confluent-kafka", ConsumerConfig, name, None)
        yield PeerSetting("confluent-kafka", ProducerConfig, name, None)
    yield PeerSetting("confluent-kafka", ProducerConfig, "on_delivery", None)
    yield PeerSetting("confluent-kafka", ConsumerConfig, "on_commit", None)


def all_of_them() -> list[PeerSetting]:
    """Every setting of every client."""
    return [*librdkafka(), *confluents(), *java(), *aiokafkas(), *kafka_pythons()]


def treatment_of(name: str, config: type[CommonConfig]) -> Treatment:
    """Return the treatment of a setting by a configuration."""
    given = name.replace(".", "_")
    if given in BOUND:
        return Treatment.BOUND
    if given in WITHOUT_EFFECT:
        return Treatment.NO_EFFECT
    if given in WHOLE:
        return Treatment.SAME
    own = field_of(name)
    here = {setting.name for setting in fields(config)}
    elsewhere = {
        setting.name for role in (ConsumerConfig, ProducerConfig, ShareConsumerConfig) for setting in fields(role)
    }
    if own not in here:
        return Treatment.NO_EFFECT if own in elsewhere or given in SPECIAL else Treatment.UNKNOWN
    return Treatment.SAME if own == given else Treatment.RENAMED


SPECIAL: Final = {
    **{f"compression_{codec}_level": "compression_level" for codec in ("gzip", "lz4", "zstd")},
}
"""Settings that are no field and in no table, with what they set."""


WHOLE: Final = frozenset({"config_providers", "default_topic_config", "oauth_cb"})
"""Settings that `from_config` reads before it looks at the fields."""


def field_of(name: str) -> str:
    """Return the name here of another client's setting."""
    given = name.replace(".", "_")
    return SPECIAL.get(given) or own_name(given)
