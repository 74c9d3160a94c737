"""Clients of the confluent-kafka module that are not closed, in reference cycles: no warning, as confluent-kafka."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost.compat.confluent_kafka import Consumer, Producer
from fencepost.compat.confluent_kafka.admin import AdminClient


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("kind", [AdminClient, Consumer, Producer])
def test_the_collector_warns_of_none(kind: Any, fencepost_broker: fencepost.Broker) -> None:
    client = kind.__new__(kind)
    gc.collect(0)  # a full collection finalizes the youngest objects first, here those that __init__ creates
    client.__init__({"bootstrap.servers": fencepost_broker.bootstrap_servers, "group.id": "g"})
    client.itself = client
    del client
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in seen] == []
