"""Damage stays where it is: a sample of the campaign of `make damage`, and defects that it must find."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.broker.log import layout, log_start, recovery
from fencepost.broker.log.batch_walk import BatchWalk, DamagedRange
from fencepost.broker.log.lost_markers import LostMarkers
from fencepost.broker.log.segment import Segment
from fencepost.broker.topics import directories, repair
from fencepost.broker.topics.cleaner import Cleaner
from fencepost.broker.topics.internal import SHARE_GROUP_STATE as SHARES
from fencepost.protocol.records.batch import iter_batches
from tests.support.broker_driver import BrokerDriver
from tests.support.damage_campaign import Campaign, Case, cases, ordered
from tests.support.damage_cases import ROUTES, STOPS
from tests.support.damage_world import CONFIG, disk_of, images, look

SEED = 20261126
SAMPLE = 120


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return Campaign(images())


def test_a_sample_of_the_campaign(campaign: Campaign) -> None:
    rng = random.Random(SEED)
    every = list(cases(campaign.images, rng))
    assert len(every) > 80_000
    ran = rng.sample(every, SAMPLE)
    assert len({(case.route, case.stop) for case in ran}) == len(ROUTES) * len(STOPS)
    wrong = {case: found for case in ran if (found := campaign.run(case))}
    assert wrong == {}


@pytest.mark.parametrize("route", ROUTES)
def test_a_compacted_file_that_is_cut_between_batches_keeps_those_before(campaign: Campaign, route: str) -> None:
    """Its last batch may follow a gap, and then no later batch confirms that its offset is right."""
    ran = 0
    for path, data in campaign.images["compacted"].items():
        if not path.startswith("keys-0/") or not path.endswith(".log"):
            continue
        ends = [(header.base_offset, len(batch)) for header, batch in iter_batches(data)]
        for count in range(1, len(ends)):
            cut = sum(size for _, size in ends[:count])
            assert campaign.run(Case("compacted", path, cut, "cut", route=route)) == []
            ran += 1
    assert ran > 10


def test_a_missing_file_of_a_compacted_log_leaves_the_last_batch_before_it_readable(campaign: Campaign) -> None:
    files = campaign.images["compacted"]
    path, following = (f"keys-0/{base:020}.log" for base in (8, 16))
    *_, (before, _), (last, _) = iter_batches(files[path])
    assert last.base_offset > before.last_offset + 1, "it follows a gap"
    remaining = {name: data for name, data in files.items() if name != following}
    found = look(BrokerDriver(CONFIG, disk_of(remaining))).records
    assert isinstance(found["keys", last.base_offset], tuple)
    assert (
        found["keys", last.base_offset] == look(BrokerDriver(CONFIG, disk_of(files))).records["keys", last.base_offset]
    )


def test_the_order_meets_each_combination_before_any_comes_again() -> None:
    files = {"stopped": {"plain-0/00000000000000000000.log": bytes(range(1, 91)), "meta.properties": b"x" * 60}}
    every = list(cases(files, random.Random(1)))
    chosen = ordered(every, random.Random(1))
    assert sorted(chosen) == sorted(every)
    strata = {case.stratum for case in every}
    assert len(strata) > 40
    assert {case.stratum for case in chosen[: len(strata)]} == strata


def trusting(self: BatchWalk, header: Any, position: int, expected: int, **_: Any) -> str:
    """A base offset that has jumped ahead is believed."""
    return "" if header.base_offset >= expected else "base offset"


def plant_trust_in_base_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchWalk, "_misplaced", trusting)


def plant_no_fence_around_compaction(patch: pytest.MonkeyPatch) -> None:
    def failed(self: Cleaner, partition: Any, error: Exception) -> None:
        raise error

    patch.setattr(Cleaner, "_failed", failed)


def plant_repair_that_keeps_no_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "_keep_copy", lambda log, segment: None)


def plant_lost_markers_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LostMarkers, "found_damage", lambda *args: None)


def plant_snapshot_believed_when_bytes_came_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_ends_at", lambda *args: True)


def plant_compaction_over_damage(patch: pytest.MonkeyPatch) -> None:
    def intact(self: Segment, position: int, expected: int, below: int = 0) -> Iterator[Any]:
        return (item for item in self.walk(position, expected) if not isinstance(item, DamagedRange))

    patch.setattr(Segment, "intact", intact)


def plant_log_start_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_start, "COPY", ".none")


def plant_topic_id_without_a_crc(patch: pytest.MonkeyPatch) -> None:
    def trusting_lines(data: bytes) -> uuid.UUID:
        return layout.decode_metadata(b"\n".join(data.splitlines()[:2]))

    for module in (recovery, directories):
        patch.setattr(module, "decode_metadata", trusting_lines)


@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (plant_log_start_without_a_copy, Case("killed", "plain-0/log-start-offset", 3, "flip", 5, "stop", "compact")),
        (
            plant_topic_id_without_a_crc,
            Case("stopped", f"{SHARES}-0/partition.metadata", 42, "flip", 2, "kill", "retain"),
        ),
        (plant_trust_in_base_offsets, Case("stopped", "plain-0/00000000000000000000.log", 79 * 3 + 6, "flip", 2)),
        (plant_trust_in_base_offsets, Case("killed", "plain-0/00000000000000000000.log", 79 * 3 + 7, "flip", 6)),
        (plant_no_fence_around_compaction, Case("killed", "keys-0/00000000000000000008.log", 100, "flip", 1)),
        (plant_repair_that_keeps_no_copy, Case("stopped", "plain-0/00000000000000000000.log", 100, "flip", 4)),
        (plant_lost_markers_forgotten, Case("scanned", "paid-0/00000000000000000009.log", 190, "flip", 1)),
        (plant_snapshot_believed_when_bytes_came_in, Case("stopped", "keys-0/00000000000000000032.log", 133, "double")),
        (plant_compaction_over_damage, Case("killed", "keys-0/00000000000000000008.log", 149, "flip", 1)),
    ],
)
def test_planted_defects_are_found(
    campaign: Campaign, plant: Callable[[pytest.MonkeyPatch], None], case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert case.applied(campaign.images[case.image][case.path]) is not None
    assert campaign.run(case) == []
    plant(monkeypatch)
    assert campaign.run(case) != []
