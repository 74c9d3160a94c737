"""Values of other clients' settings, and their spelling. Each function returns other values unchanged."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = [
    "CONVERTED",
    "assignors",
    "codec",
    "codec_of",
    "delivery_time",
    "host_name_check",
    "interceptors",
    "iteration_time",
    "lower",
    "partitioner",
    "reset_word",
    "retries",
    "serializer",
    "token_method",
    "upper",
    "with_topic_settings",
]

_FOR_EVER: Final = 2**31 - 1
_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_JAVA_BYTES: Final = tuple(f"org.apache.kafka.common.serialization.ByteArray{kind}ializer" for kind in ("Ser", "Deser"))


def _kilobytes(value: Any) -> Any:
    return int(value) * 1024


def _host_name_switch(value: Any) -> Any:
    checks = {"true": "https", "false": ""}
    return checks.get(str(value).strip().lower(), value)


# Settings of other clients that have another unit or form of value than ours, by their names.
CONVERTED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "queue_buffering_max_kbytes": _kilobytes,
    "ssl_check_hostname": _host_name_switch,
}


def lower(value: Any) -> Any:
    """Return a text in lower case."""
    return value.lower() if isinstance(value, str) else value


def upper(value: Any) -> Any:
    """Return a text in upper case."""
    return value.upper() if isinstance(value, str) else value


def _word(words: Mapping[str, Any], value: Any) -> Any:
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def codec(value: Any) -> Any:
    """Return None, that is the default, for librdkafka's "inherit"."""
    return _word({"inherit": None}, value)


def reset_word(value: Any) -> Any:
    """Return our word for a start offset of librdkafka."""
    words = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
    return _word(words, value)


def host_name_check(value: Any) -> Any:
    """Return "" for librdkafka's "none"."""
    return _word({"none": "", "https": "https"}, value)


def retries(value: Any) -> Any:
    """Return the highest number for kafka-python's infinity."""
    return _FOR_EVER if value == math.inf else value


def iteration_time(value: Any) -> Any:
    """Return None, that is no limit, for kafka-python's infinity."""
    return None if value == math.inf else value


def delivery_time(value: Any) -> Any:
    """Return the highest number for librdkafka's 0, which is no limit."""
    return _FOR_EVER if str(value).strip() == "0" else value


def interceptors(value: Any) -> Any:
    """Return no interceptors for Java's empty text."""
    return () if value == "" else value


def assignors(value: Any) -> Any:
    """Return custom assignors, and the names of built-in ones given as names or as classes of Java or Python."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else None
    return value if given is None else [_assignor(each) for each in given]


def _assignor(given: Any) -> Any:
    if isinstance(given, str):
        name = given.strip().removeprefix("class ")
        return _ASSIGNORS.get(name.rpartition(".")[2], name) if "." in name else name
    theirs = getattr(given, "name", None)
    is_theirs = theirs in _ASSIGNORS.values() and not hasattr(given, "subscription_user_data")
    return theirs if is_theirs else given


def serializer(value: Any) -> Any:
    """Return None, that is bytes, for Java's class of byte arrays. Raises ValueError for its other classes."""
    if isinstance(value, str) and value not in _JAVA_BYTES:
        raise ValueError("must be a function, such as str.encode or bytes.decode; without one, it is bytes")
    return None if isinstance(value, str) else value


def partitioner(value: Any) -> Any:
    """Return the name of the default partitioner of aiokafka and kafka-python, which is Java's."""
    return "murmur2_random" if type(value).__name__ == "DefaultPartitioner" else value


def token_method(value: Any) -> Any:
    """Return the method of a token provider that is an object, as in aiokafka and kafka-python."""
    return value if callable(value) else getattr(value, "token", value)


def with_topic_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with those that confluent-kafka nests in `default.topic.config`. Raises TypeError."""
    nested = settings.get("default_topic_config")
    if nested is not None and not isinstance(nested, Mapping):
        raise TypeError(f"default_topic_config={reprlib.repr(nested)}: must be a dict of settings")
    if "default_topic_config" not in settings:
        return settings
    others = {name: value for name, value in settings.items() if name != "default_topic_config"}
    return {**{name.replace(".", "_"): value for name, value in (nested or {}).items()}, **others}


def codec_of(settings: Mapping[str, Any]) -> object:
    """Return the compression codec of these settings; None if they have none."""
    names = ("compression_type", "compression_codec", "compression")
    return next((settings[name] for name in names if name in settings), None)
