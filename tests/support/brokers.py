"""The two brokers that conformance tests speak to, with one face."""

from __future__ import annotations

import time
import uuid
from typing import Literal, Protocol

from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.apache_kafka import VERSION, ApacheKafka
from tests.support.raw_client import Closed, RawClient

Arm = Literal["fencepost", "kafka"]


class HasAddress(Protocol):
    """fencepost.Broker, ApacheKafka and BrokerProcess."""

    @property
    def bootstrap_servers(self) -> str: ...


class BrokerUnderTest:
    """A running broker of one arm. Names are made unique, because the Kafka node is shared by all tests."""

    def __init__(self, arm: Arm, running: HasAddress) -> None:
        self.arm = arm
        self.running = running
        self._is_ready = False

    @property
    def bootstrap_servers(self) -> str:
        return self.running.bootstrap_servers

    @property
    def is_ours(self) -> bool:
        """True where a test expects of our broker what Kafka does otherwise; each use says why."""
        return self.arm == "fencepost"

    def is_before(self, *release: int) -> bool:
        """Return true for an Apache Kafka before that release, which KAFKA_RELEASE may choose."""
        return not self.is_ours and tuple(map(int, VERSION.split(".")[: len(release)])) < release

    def connect(self) -> RawClient:
        client = RawClient(self.bootstrap_servers)
        if not self._is_ready:
            client.find_coordinators()
            self._is_ready = True
        return client

    def connect_again(self) -> RawClient:
        """As soon as it answers, after a kill. Raises what keeps it from that for two minutes."""
        deadline = time.monotonic() + 120
        while True:
            try:
                client = self.connect()
                client.api_versions()
            except (OSError, Closed):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return client

    def name(self, what: str) -> str:
        return f"{what}-{uuid.uuid4().hex[:10]}"


Killable = BrokerProcess | ApacheKafka
