"""Options of `format("fencepost")`, as Spark passes them: lower-case keys, text values.

Names are those of Spark's own Kafka connector; `kafka.*` goes to the client under Kafka's name. The sink adds:
sink.id, delivery, require.guarantee, same.batch, decision.topic, query.copied, first.batch, step.timeout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from fencepost.arguments import brief_repr, nearest
from fencepost.common_config import own_name
from fencepost.config import CommonConfig, ConsumerConfig, ProducerConfig
from fencepost.config_providers import PROVIDERS
from fencepost.errors import ConfigurationError
from fencepost.setting import number_in
from fencepost.spark.kafka_settings import note, without_java
from fencepost.spark.sink import names, plan_steps
from fencepost.spark.sink.abilities import Guarantee
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.steps import STEP_TIMEOUT_MS, SinkConfig

__all__ = [
    "AT_LEAST_ONCE",
    "EXACTLY_ONCE",
    "NOT_YOURS",
    "ClientSettings",
    "SinkOptions",
    "client_settings",
    "flag",
    "guarantee_of",
    "hint_of_none",
    "milliseconds",
    "whole",
]

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

_COMMON: Final = frozenset(field.name for field in fields(CommonConfig))
_NO_JAVA: Final = "there are no Java classes in this client"
_BYTES: Final = "keys and values are bytes here; convert them with the data frame's functions"
# Settings that the sink and the source choose themselves. Spark's own connector refuses most of them too.
NOT_YOURS: Final[Mapping[str, str]] = {
    "transactional.id": "the sink makes its transactional ids; name the sink with sink.id",
    "enable.idempotence": "it is always on",
    "acks": "every replica in sync acknowledges: with less, a record that was reported as written could be lost",
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are in Spark's checkpoint; commitOffsets shows them to a consumer group",
    "interceptor.classes": _NO_JAVA,
    "partitioner.class": f"{_NO_JAVA}; a column 'partition' chooses the partition",
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "ssl.engine.factory.class": _NO_JAVA,
}
# Options of the sink. Spark passes the last three for its own use.
SINK_OPTIONS: Final = (
    "topic",
    "sink.id",
    "delivery",
    "require.guarantee",
    "same.batch",
    "decision.topic",
    "query.copied",
    "first.batch",
    "step.timeout",
    "checkpointlocation",
    "queryname",
    "path",
)
MOST_OF_32_BITS: Final = 2**31 - 1
TYPO: Final = 0.8  # an unknown name is refused if its similarity to a known name is at least this (0 to 1)
_AS_IT_IS: Final[Mapping[str, tuple[str, ...]]] = {"enable.idempotence": ("true",), "acks": ("all", "-1")}

NAMELESS: Final = (
    "exactly-once needs a name that stays over restarts: set option sink.id, or give checkpointLocation or queryName "
    f"as an option of the writer; or choose delivery={AT_LEAST_ONCE}"
)

Settings = tuple[tuple[str, str], ...]  # Kafka's dotted names, sorted; hashable and picklable


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Checked client settings: `common` for any client, and `own` for the producer or consumer only."""

    common: Settings = field(repr=False)  # passwords are among them
    own: tuple[tuple[str, Any], ...] = field()

    def value(self, name: str) -> Any:
        """Return a setting of the producer or consumer by its snake_case name."""
        return dict(self.own)[name]

    def producer(self) -> ProducerConfig:
        """Return all settings of the sink's producer."""
        return replace(ProducerConfig.from_dotted(dict(self.common)), **dict(self.own))


def client_settings(options: Mapping[str, str], kind: type[ProducerConfig | ConsumerConfig]) -> ClientSettings:
    """Parse the kafka.* options.

    Raises ConfigurationError for unknown settings, and for settings that the sink and the source choose themselves.
    """
    settings = {key[len("kafka.") :]: value for key, value in options.items() if key.lower().startswith("kafka.")}
    for name, reason in NOT_YOURS.items():
        if name in settings and settings[name].strip().lower() not in _AS_IT_IS.get(name, ()):
            raise ConfigurationError(f"kafka.{name} cannot be set: {reason}")
    if "bootstrap.servers" in settings and not settings["bootstrap.servers"].strip():
        raise ConfigurationError("option kafka.bootstrap.servers is empty")
    if "bootstrap.servers" not in settings:
        near = nearest("kafka.bootstrap.servers", options, TYPO)
        meant = f"; option {near} is not known" if near is not None else ""
        raise ConfigurationError(f"option kafka.bootstrap.servers is missing{meant}{hint_of_none(options)}")
    settings = without_java(settings, kind)
    try:
        config = kind.from_dotted(settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"option kafka.*: {error}") from error
    common = {key: value for key, value in settings.items() if _setting(key) in _COMMON or key.startswith(PROVIDERS)}
    own = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in _COMMON}
    return ClientSettings(tuple(sorted(common.items())), tuple(sorted(own.items())))


def hint_of_none(options: Mapping[str, str]) -> str:
    """Return a text with the likely reason why Spark passed no option; "" if it passed some."""
    if any(name.lower() != "path" for name in options):
        return ""
    return (
        "; Spark passed no option. It passes the OPTIONS of a CREATE TABLE to no source or sink in Python: use CREATE "
        "TEMPORARY VIEW ... USING fencepost OPTIONS (...), or repeat them: SELECT ... FROM t WITH (...) or "
        "INSERT INTO t WITH (...) ...; a stream takes them from spark.readStream.option(...).table(...)"
    )


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return an option with the value true or false. Raises ConfigurationError for any other value."""
    text = options.get(name.lower(), "true" if default else "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"option {name}={brief_repr(text)}: true or false")
    return text == "true"


def whole(options: Mapping[str, str], name: str, lowest: int, most: int = MOST_OF_32_BITS) -> int | None:
    """Return an option that is a whole number from `lowest` to `most`; None if it is not given.

    Raises ConfigurationError for any other value.
    """
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = number_in(text)
    except ValueError as error:
        raise ConfigurationError(f"option {name}={brief_repr(text)}: a whole number") from error
    if not lowest <= number <= most:
        raise ConfigurationError(f"option {name}={number}: from {lowest} to {most}")
    return number


def _setting(dotted: str) -> str:
    """Return the client's own name of a setting, from any of its names."""
    return own_name(dotted.replace(".", "_"))


_UNITS_MS: Final = {"us": 0.001, "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(options: Mapping[str, str], name: str, default: int, lowest: int = 0) -> int:
    """Return an option that is a time, in milliseconds. Raises ConfigurationError.

    The text has Spark's form: "15m", "30s", "500ms", "1h". A number without a unit is in milliseconds.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ConfigurationError(f"option {name}={brief_repr(text)}: a time such as 500ms, 30s, 15m, 1h or 1d")
    found = int(int(match[1]) * _UNITS_MS[match[2]])
    if found < lowest:
        raise ConfigurationError(f"option {name}={brief_repr(text)}: at least {lowest} ms")
    return found


def _check_names(options: Mapping[str, str]) -> None:
    """Raise ConfigurationError for misspelled options of the sink, and store a warning for other unknown names."""
    for given in sorted(options):
        if given.lower() in SINK_OPTIONS or given.lower().startswith("kafka."):
            continue
        if given.lower() == "require.level":
            raise ConfigurationError("option require.level is now require.guarantee: durable or timed")
        meant = nearest(given.lower(), SINK_OPTIONS, TYPO)
        if meant is not None:
            raise ConfigurationError(f"option {given} is not known; was {meant} meant?")
        note(f"option {given} is not known to the sink; it has no effect")


def guarantee_of(text: str) -> Guarantee:
    """Return the guarantee named "durable" or "timed". Raises ConfigurationError."""
    try:
        return Guarantee(text.strip().lower())
    except ValueError as error:
        choices = " or ".join(guarantee.value for guarantee in Guarantee)
        raise ConfigurationError(f"option require.guarantee={brief_repr(text)}: {choices}") from error


def same_of(text: str) -> plan_steps.SameBatch:
    """Return the rule named "rows", "count", "offsets" or "number". Raises ConfigurationError."""
    try:
        return plan_steps.SameBatch(text.strip().lower())
    except ValueError as error:
        choices = ", ".join(way.value for way in plan_steps.SameBatch)
        raise ConfigurationError(f"option same.batch={brief_repr(text)}: one of {choices}") from error


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A checked set of the sink's options."""

    client: ClientSettings
    topic: str | None
    exactly_once: bool
    given_id: str | None  # sink.id; without it, checkpoint.py finds a name
    checkpoint: str | None  # the location as it was given
    query_name: str | None
    required: Guarantee | None
    steps: SinkConfig
    query_is_copy: bool  # another query continues with the same query id and another sink's name
    first_batch: int | None  # the first batch here of a query that has written elsewhere
    same: plan_steps.SameBatch = plan_steps.SameBatch.ROWS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options. Raises ConfigurationError, which names the option."""
        client = client_settings(options, ProducerConfig)
        _check_names(options)
        delivery = options.get("delivery", EXACTLY_ONCE).strip().lower()
        if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
            raise ConfigurationError(f"option delivery={delivery!r}: {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
        exactly_once = delivery == EXACTLY_ONCE
        sink = options["sink.id"].strip() if "sink.id" in options else None
        if sink == "":
            raise ConfigurationError("option sink.id is empty")
        location, query_name = (options.get(name) or None for name in ("checkpointlocation", "queryname"))
        if exactly_once:
            name = sink or location or query_name
            if name is None:
                raise ConfigurationError(NAMELESS)
            names.sink_id(name)
        elif "require.guarantee" in options:
            raise ConfigurationError(f"option require.guarantee needs delivery={EXACTLY_ONCE}")
        topic = options["topic"].strip() if "topic" in options else None  # as Spark's own sink
        timeout_is_given = "kafka.transaction.timeout.ms" in options
        steps = SinkConfig(
            int(client.value("transaction_timeout_ms")) if timeout_is_given else None,
            milliseconds(options, "step.timeout", STEP_TIMEOUT_MS, 1),
            options.get("decision.topic", DEFAULT_TOPIC).strip(),
            topic,
        )
        if not steps.decision_topic:
            raise ConfigurationError("option decision.topic is empty")
        if topic == steps.decision_topic:
            raise ConfigurationError(f"option topic={topic!r}: it is the decision topic, which takes no rows")
        required = options.get("require.guarantee")
        return cls(
            client,
            topic,
            exactly_once,
            sink,
            location,
            query_name,
            None if required is None else guarantee_of(required),
            steps,
            flag(options, "query.copied", False),
            whole(options, "first.batch", 0),
            same_of(options.get("same.batch", plan_steps.SameBatch.ROWS.value)),
        )
