"""Another cluster behind the same address: it is told by name, and nothing is sent there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import fencepost
from fencepost.errors import ClusterChangedError, ProduceFailedError


class ReplacedBroker:
    """An address, and the brokers that take turns there."""

    def __init__(self, first: fencepost.Broker, data_dir: str) -> None:
        self.address = first.bootstrap_servers
        self.broker = first
        self._data_dir = data_dir

    def _start(self, data_dir: str | None) -> None:
        self.broker.stop()
        self.broker = fencepost.Broker(data_dir=data_dir, port=int(self.address.rpartition(":")[2])).start()

    def another(self) -> None:
        """A broker of another cluster takes the place."""
        self._start(None)

    def the_first(self) -> None:
        """The first cluster's broker is back."""
        self._start(self._data_dir)

    def is_untouched(self) -> bool:
        """Return true if the present broker has no topics, groups or transactional ids."""
        with fencepost.Admin(self.address) as admin:
            return (admin.list_topics(), admin.list_groups(), admin.list_transactions()) == ([], [], [])


@contextmanager
def replaced_broker(data_dir: Any) -> Iterator[ReplacedBroker]:
    with_topic = fencepost.Broker(data_dir=str(data_dir)).start()
    here = ReplacedBroker(with_topic, str(data_dir))
    try:
        with fencepost.Admin(here.address) as admin:
            admin.create_topic("t", 1)
        yield here
    finally:
        here.broker.stop()


def test_a_producer_ends(tmp_path: Any) -> None:
    with replaced_broker(tmp_path) as here, fencepost.Producer(here.address) as producer:
        producer.send("t", b"before").result(60)
        here.another()
        failed = producer.send("t", b"after").exception(60)
        assert isinstance(failed, ProduceFailedError)
        assert isinstance(failed.__cause__, ClusterChangedError)
        with pytest.raises(ClusterChangedError, match="this client has worked with cluster"):
            producer.send("t", b"more")
        assert here.is_untouched()


def test_a_transaction_ends(tmp_path: Any) -> None:
    with replaced_broker(tmp_path) as here, fencepost.Producer(here.address, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"before").result(60)
        here.another()
        with pytest.raises(ClusterChangedError):
            producer.commit_transaction()
        with pytest.raises(ClusterChangedError):
            producer.abort_transaction()
        assert here.is_untouched()


@pytest.mark.parametrize("group_protocol", [None, "classic", "consumer"])
def test_a_consumer_is_told_by_poll(tmp_path: Any, group_protocol: str | None) -> None:
    settings: dict[str, Any] = {"auto_offset_reset": "earliest"}
    if group_protocol is not None:
        settings |= {"group_id": "g", "group_protocol": group_protocol}
    with replaced_broker(tmp_path) as here, fencepost.Consumer(here.address, **settings) as consumer:
        with fencepost.Producer(here.address) as producer:
            producer.send("t", b"v")
        if group_protocol is None:
            consumer.assign([("t", 0)])
        else:
            consumer.subscribe(["t"])
        while not consumer.poll(1000):
            pass
        here.another()
        with pytest.raises(ClusterChangedError):  # noqa: PT012 (whichever poll it is)
            while True:
                assert consumer.poll(1000) == []
        assert here.is_untouched()


def test_an_admin_client_is_told_and_goes_on_when_its_cluster_is_back(tmp_path: Any) -> None:
    with replaced_broker(tmp_path) as here, fencepost.Admin(here.address) as admin:
        before = admin.describe_cluster().cluster_id
        here.another()
        for _ in range(2):
            with pytest.raises(ClusterChangedError, match=str(before)):
                admin.list_topics()
        here.the_first()
        assert admin.list_topics() == ["t"]
        assert admin.describe_cluster().cluster_id == before


def test_with_asyncio(tmp_path: Any) -> None:
    async def main(here: ReplacedBroker) -> None:
        async with fencepost.AsyncAdmin(here.address) as admin:
            await admin.list_topics()
            await asyncio.to_thread(here.another)
            with pytest.raises(ClusterChangedError):
                await admin.list_topics()

    with replaced_broker(tmp_path) as here:
        asyncio.run(main(here))


def test_a_restart_of_the_same_cluster_is_none(tmp_path: Any) -> None:
    with replaced_broker(tmp_path) as here, fencepost.Producer(here.address) as producer:
        producer.send("t", b"before").result(60)
        here.the_first()
        assert producer.send("t", b"after").result(60).offset == 1
