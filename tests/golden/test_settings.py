"""The settings that we hold the broker to are those that Apache Kafka's jars have."""

from __future__ import annotations

import pytest

from tests.golden.load import SETTINGS, SETTINGS_PROGRAM
from tests.support.apache_kafka import REFERENCE, VERSION, run_kafka_class

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.java,
    pytest.mark.skipif(VERSION != REFERENCE, reason="KAFKA_RELEASE chooses another release than the file is of"),
]


def test_the_settings_are_those_of_the_jars() -> None:
    asked = run_kafka_class(str(SETTINGS_PROGRAM))
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == SETTINGS.read_text()
