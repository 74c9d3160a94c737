"""Histories with and without the straight paths: the same bytes on the wire and on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from fencepost.broker.api import straight as straight_requests
from fencepost.broker.api.records import produce_straight
from fencepost.broker.api.records.produce_common import CommonProduce, Taken, encode_common_answer
from fencepost.broker.api.straight import PATHS, Straight, straight_path
from fencepost.broker.connection import Connection, Core
from fencepost.protocol.cursor import Buffer
from fencepost_lab.check import sim_cluster, world
from fencepost_lab.check.disk import MemoryDisk
from fencepost_lab.check.options import Profile, SimulationOptions
from fencepost_lab.check.sim_broker import SimBroker
from fencepost_lab.check.sink_world import SinkFaults, run_sink_world
from fencepost_lab.check.world import run_world
from tests.sim.test_world import FAILING, STORMY

PRODUCE = 0


@dataclass
class Seen:
    """All that a broker sent and wrote in a run."""

    sent: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Time in ms, connection and frame."""
    disks: list[MemoryDisk] = field(default_factory=list)
    straight: Counter[int] = field(default_factory=Counter)
    general: Counter[int] = field(default_factory=Counter)

    def files(self) -> list[dict[str, bytes]]:
        return [disk.tree("") for disk in self.disks]


def seen(run: Callable[[], object], *, straight: bool) -> Seen:
    """Run with the straight paths, or without."""
    found = Seen()
    send, init = SimBroker._send, MemoryDisk.__init__

    def recorded_send(self: SimBroker, connection_id: int, data: bytes) -> None:
        found.sent.append((self._scheduler.now_ms(), connection_id, data))
        send(self, connection_id, data)

    def recorded_disk(self: MemoryDisk, *, durable: bool = True) -> None:
        init(self, durable=durable)
        found.disks.append(self)

    def path_of(key: int) -> Straight | None:
        path = straight_path(key)
        if path is None:
            return None

        def counted(
            core: Core, connection: Connection, frame: memoryview, now_ms: int, others: Sequence[Buffer]
        ) -> int:
            count = path(core, connection, frame, now_ms, others) if straight else 0
            (found.straight if count else found.general)[key] += count or 1
            return count

        return counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimBroker, "_send", recorded_send)
        patch.setattr(MemoryDisk, "__init__", recorded_disk)
        patch.setattr(straight_requests, "straight_path", path_of)
        run()
    return found


def assert_same(run: Callable[[], object]) -> Counter[int]:
    """Run both ways; return the number of requests that went straight, by API."""
    with_it, without = seen(run, straight=True), seen(run, straight=False)
    assert without.straight.total() == 0
    assert len(with_it.sent) > 50
    for mine, other in zip(with_it.sent, without.sent, strict=False):
        assert mine == other
    assert len(with_it.sent) == len(without.sent)
    assert with_it.files() == without.files()
    assert with_it.straight + with_it.general == without.general
    return with_it.straight


SHORT = SimulationOptions(storm_ms=800, producers=3, feeders=1, crash_interval_ms=400)
WORLDS = {
    "drawn": SimulationOptions.draw(21, Profile.SWARM).changed(["storm_ms=1000"]),
    "stormy": STORMY.changed(["storm_ms=800", "copiers=0", "feeders=1"]),
    "failing disk": FAILING.changed(["storm_ms=2000", "copiers=0"]),
    "two phases": SHORT.changed(["deciders=2"]),
    "older transactions": SHORT.changed(["transaction_version=1"]),
    "compacted": SHORT.changed(["compacted=True", "storm_ms=2000"]),
    "damaged files": SHORT.changed(["flip_chance=0.9", "restore_chance=0.5"]),
    "a group": SimulationOptions(storm_ms=800, copiers=1, feeders=1),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_history_is_the_same_without_straight_paths(name: str) -> None:
    assert assert_same(lambda: run_world(31, WORLDS[name]))[PRODUCE] > 5


@pytest.mark.parametrize("name", ["stormy", "two phases", "older transactions", "a group"])
def test_a_history_is_the_same_when_answers_do_not_wait_for_a_sync(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills lose nothing that was written, so such a run ends well."""
    monkeypatch.setattr(world, "BROKER", {**world.BROKER, "fsync": "never"})
    monkeypatch.setattr(sim_cluster, "KILLED_ONLY", 1.0)
    options = WORLDS[name].changed(["power_cut_chance=0"])
    assert assert_same(lambda: run_world(32, options))[PRODUCE] > 5


@pytest.mark.parametrize("seed", range(41, 45))
def test_drawn_histories_are_the_same_without_straight_paths(seed: int) -> None:
    assert_same(lambda: run_world(seed, SimulationOptions.draw(seed).changed(["storm_ms=500"])))


@pytest.mark.parametrize("seed", [1, 4])
def test_a_sink_is_the_same_without_straight_paths(seed: int) -> None:
    faults = SinkFaults.draw(Random(seed))
    assert assert_same(lambda: run_sink_world(seed, rows=10, faults=faults))[PRODUCE] > 5


def test_a_straight_path_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def offset_too_high(asked: CommonProduce, results: list[Taken]) -> bytes:
        higher: list[Taken] = [(name, index, base + 1, ms, start) for name, index, base, ms, start in results]
        return encode_common_answer(asked, higher)

    monkeypatch.setattr(produce_straight, "encode_common_answer", offset_too_high)
    with pytest.raises(AssertionError):
        assert_same(lambda: run_world(31, WORLDS["stormy"]))


def test_every_straight_path_is_met() -> None:
    met: Counter[int] = Counter()
    for name in ("stormy", "a group"):
        met += assert_same(lambda name=name: run_world(51, WORLDS[name]))  # type: ignore[misc]
    assert {key for key, count in met.items() if count > 20} == set(PATHS)
