"""Gate for exposed names: a test names each metric, exception and setting that a user can see."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from fencepost import config, errors
from fencepost.broker.metrics.counters import COUNTERS, GAUGES
from fencepost.broker.settings.table import BROKER_SETTINGS, GROUP_SETTINGS, LISTENER_SETTINGS, TOPIC_SETTINGS
from tests.support.tidy import ROOT

SETTINGS = {**BROKER_SETTINGS, **LISTENER_SETTINGS, **TOPIC_SETTINGS, **GROUP_SETTINGS}

WITHOUT_EFFECT = frozenset(
    """
    compression.gzip.level compression.lz4.level compression.zstd.level flush.messages flush.ms
    follower.replication.throttled.replicas local.retention.bytes local.retention.ms
    oauthbearer.sasl.server.callback.handler.class preallocate remote.log.copy.disable remote.log.delete.on.disable
    """.split()
)
"""Settings without an effect on one node, whose rows do not say so."""

UNTESTED = frozenset(
    """
    partitioner_adaptive_partitioning_enable sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.sub.claim.name
    """.split()
)
"""Settings that are tested by other names only. This list may only become shorter."""


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, with underscores for dots and hyphens."""
    words = set(re.findall(r"[A-Za-z0-9_.-]+", text))
    words |= {part for word in words for part in (word.rpartition(".")[2], word.strip("."))}
    return frozenset(re.sub(r"[.-]", "_", word) for word in words)


@functools.cache
def words_of_tests() -> frozenset[str]:
    """Return the words of all tests but this one."""
    own = Path(__file__)
    return words_of("\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != own))


def unnamed(names: Iterable[str], words: frozenset[str]) -> list[str]:
    """Return the names that are no word, with dots or underscores."""
    return [name for name in names if re.sub(r"[.-]", "_", name) not in words]


def test_a_name_without_a_test_is_found() -> None:
    words = words_of(
        'broker.metrics().counters["compactions"]; errors.ClosedError; {"log.roll.ms": 1}; f(segment_bytes=1)'
    )
    assert unnamed(["compactions", "ClosedError", "log.roll.ms", "segment.bytes"], words) == []
    assert unnamed(["compaction", "UsageError", "log.roll", "segment.ms"], words) == [
        "compaction",
        "UsageError",
        "log.roll",
        "segment.ms",
    ]


def exceptions() -> list[str]:
    return [name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception)]


def client_settings() -> list[str]:
    found = set()
    for each in vars(config).values():
        if (
            is_dataclass(each)
            and isinstance(each, type)
            and each.__module__ == config.__name__
            and each.__name__.endswith("Config")
        ):
            found |= {field.name for field in fields(each)}
    return sorted(found)


def broker_settings(words: frozenset[str]) -> list[str]:
    """Return the settings with an effect, without those that a test names as the default of the same, or inversely."""
    twins = {setting.broker_key: key for key, setting in SETTINGS.items() if setting.broker_key}
    twins |= {key: twin for twin, key in twins.items()}
    return [
        key
        for key, setting in SETTINGS.items()
        if key not in WITHOUT_EFFECT
        and twins.get(key) not in WITHOUT_EFFECT
        and "ithout effect" not in setting.doc
        and (key not in twins or unnamed([key, twins[key]], words) == [key, twins[key]])
    ]


@pytest.mark.parametrize(
    ("names", "least"),
    [
        pytest.param([*COUNTERS, *GAUGES], 60, id="metrics"),
        pytest.param(exceptions(), 40, id="exceptions"),
        pytest.param(client_settings(), 80, id="client settings"),
        pytest.param(broker_settings(frozenset()), 100, id="broker settings"),
    ],
)
def test_every_exposed_name_is_in_a_test(names: list[str], least: int) -> None:
    assert len(names) >= least
    with_effect = set(broker_settings(words_of_tests()))
    missing = [name for name in unnamed(names, words_of_tests()) if name not in SETTINGS or name in with_effect]
    assert sorted(set(missing) - UNTESTED) == []


def test_the_exceptions_of_this_gate_exist() -> None:
    assert set(SETTINGS) >= WITHOUT_EFFECT
    assert set(unnamed(UNTESTED, words_of_tests())) == UNTESTED <= {*SETTINGS, *client_settings()}
