"""Everything at once, for a while: `python -m tests.support.torture --minutes 60 --seed 1`.

One broker process, killed with -9 now and then, behind a proxy that loses requests and answers. Groups of asyncio
applications copy a topic in transactions while their code raises, is cancelled, outlasts its timeout or is replaced by
another; a topic is deleted and made anew under a producer that writes to others, too; clients ask and never read, or
promise bytes that they never send. Then everything heals, and each group's copy must be the input, once each; nobody
may have been told of a loss, the broker's memory must have stayed bounded, and no transaction may hang.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil

import fencepost
from fencepost import TopicPartition
from fencepost.errors import KafkaTimeoutError
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.child_process import free_port
from fencepost_lab.torture.fault_proxy import FaultProxy, Lottery
from tests.support.torture.copiers import Copier
from tests.support.torture.feeders import Feeder, Recreator
from tests.support.torture.hostiles import Hostile
from tests.support.torture.judging import committed_values, differences, hanging

PARTITIONS = 4
GROUPS = {"from-earliest": "earliest", "from-latest": "latest"}
MEMBERS = {"from-earliest": 2, "from-latest": 1}  # until its first commit nobody else could know where the one began
MEMORY_MOST_MB = 1_000
STANDSTILL_S = 120.0
BIG_MB = 60
SETTINGS: dict[str, str | int | bool] = {
    "fsync": "commit",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@dataclass
class Findings:
    """Counts, anomalies and peak values of a run."""

    happened: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)
    memory_most_mb: float = 0.0
    slowest_start_s: float = 0.0
    records: int = 0


class Torture:
    """One run. `direct` reaches the broker itself, `proxied` through what loses."""

    def __init__(self, minutes: float, seed: int) -> None:
        self._minutes = minutes
        self._chance = random.Random(seed)
        self.found = Findings()
        self._stop = threading.Event()
        direct = free_port()
        self._direct_port = direct
        self._direct = f"127.0.0.1:{direct}"
        self._lottery = Lottery(self._chance.randrange(2**32), one_in=25)
        self._proxy = FaultProxy(("127.0.0.1", direct), self._lottery)
        self._broker: BrokerProcess | None = None

    def run(self) -> Findings:
        """The storm, the calm, the check."""
        with self._proxy as proxy:
            self._broker = broker = BrokerProcess({**SETTINGS, "listeners": f"PLAINTEXT://{self._direct}"})
            broker.start()
            try:
                asyncio.run(self._whole(f"127.0.0.1:{proxy.port}"))
            finally:
                self._stop.set()
                if self.found.anomalies:
                    print("\n".join(broker.output().splitlines()[-300:]), file=sys.stderr)
                broker.stop()
        self.found.happened |= self._lottery.happened
        return self.found

    async def _whole(self, proxied: str) -> None:
        happened = self.found.happened
        async with fencepost.AsyncAdmin(self._direct) as admin:
            await admin.create_topic("in", PARTITIONS)
            for group in GROUPS:
                await admin.create_topic(f"out-{group}", 2)
            await admin.create_topic("big", PARTITIONS)
        await self._fill("big")
        copiers = [
            Copier(
                f"{group}-{number}",
                proxied,
                "in",
                f"out-{group}",
                group,
                auto_offset_reset=reset,
                seed=self._chance.randrange(2**32),
                happened=happened,
            )
            for group, reset in GROUPS.items()
            for number in range(MEMBERS[group])
        ]
        lives = [asyncio.create_task(copier.live()) for copier in copiers]
        await asyncio.gather(*(copier.ready.wait() for copier in copiers))
        await asyncio.sleep(2)  # those that read from the end have found it while the topic was empty
        self._lottery.enabled = False
        feeder = Feeder(proxied, "in", PARTITIONS, happened)
        recreator = Recreator(proxied, self._direct, self._chance.randrange(2**32), happened)
        hostile = Hostile(self._direct_port, "big", self._chance.randrange(2**32), happened)
        threads = [
            threading.Thread(target=self._until_stopped, args=(deed,), daemon=True)
            for deed in (feeder.feed_some, recreator.one_round, hostile.one_bad_thing)
        ]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(copier.committed.wait() for copier in copiers))
        self._lottery.enabled = True
        await asyncio.to_thread(self._storm)
        self._stop.set()
        self._lottery.enabled = self._proxy.away = False
        for thread in threads:
            await asyncio.to_thread(thread.join, 120)
            if thread.is_alive():
                self.found.anomalies.append("a feeder or hostile does not come back")
        for copier in copiers:
            copier.calm = True
        await asyncio.to_thread(feeder.finish)
        await asyncio.to_thread(recreator.finish)
        await self._settle()
        for copier in copiers:
            copier.stopping = True
        _, pending = await asyncio.wait(lives, timeout=60)
        self.found.anomalies += [f"a copier does not end: {task}" for task in pending]
        for copier in copiers:
            self.found.anomalies += [f"told of a loss: {loss}" for loss in copier.losses]
        await asyncio.to_thread(self._check, feeder, copiers)
        self.found.anomalies += feeder.anomalies + recreator.anomalies

    async def _fill(self, topic: str) -> None:
        """Something worth not being read."""
        async with fencepost.AsyncProducer(self._direct) as producer:
            for number in range(BIG_MB):
                value = self._chance.randbytes(900_000)
                await (await producer.send(topic, value, partition=number % PARTITIONS))

    def _until_stopped(self, deed: object) -> None:
        while not self._stop.is_set():
            deed()  # type: ignore[operator]

    def _storm(self) -> None:
        end = time.monotonic() + self._minutes * 60
        said = time.monotonic()
        while time.monotonic() < end:
            pause = time.monotonic() + self._chance.uniform(1, 8)
            while time.monotonic() < min(pause, end):
                self._look_at_memory()
                time.sleep(0.05)
            self._one_broker_fault()
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{(end - said) / 60:.1f} min left, {self.found.memory_most_mb:.0f} MB", flush=True)

    def _look_at_memory(self) -> None:
        try:
            pid = self._broker.pid if self._broker else None
            memory = 0 if pid is None else psutil.Process(pid).memory_info().rss / 2**20
        except psutil.Error:
            return  # it is dead just now
        self.found.memory_most_mb = max(self.found.memory_most_mb, memory)

    def _one_broker_fault(self) -> None:
        broker, kind = self._broker, self._chance.choice(("kill", "cut", "cut", "away", "nothing"))
        self.found.happened[f"broker: {kind}"] += 1
        if kind == "kill" and broker is not None:
            broker.kill()
            began = time.monotonic()
            broker.start()
            self.found.slowest_start_s = max(self.found.slowest_start_s, time.monotonic() - began)
        elif kind == "cut":
            self._proxy.cut()
        elif kind == "away":
            self._proxy.away = True
            self._proxy.cut()
            time.sleep(self._chance.uniform(1, 12))  # longer than max.block.ms, sometimes
            self._proxy.away = False

    async def _settle(self) -> None:
        """Until every group has read all of the input, or none of them got on for a while."""
        parts = [TopicPartition("in", number) for number in range(PARTITIONS)]
        async with fencepost.AsyncAdmin(self._direct) as admin:
            ends = await admin.list_offsets(dict.fromkeys(parts, -1))
            left = sum(end.offset for end in ends.values()) * len(GROUPS)
            deadline = time.monotonic() + STANDSTILL_S
            while time.monotonic() < deadline:
                try:
                    offsets = [await admin.group_offsets(group, parts) for group in GROUPS]
                except KafkaTimeoutError as error:
                    self.found.anomalies.append(f"{error}; {await self._held_by(admin)}")
                    return
                now_left = sum(ends[part].offset - found[part].offset for found in offsets for part in parts)
                if now_left == 0:
                    return
                if now_left < left:
                    left, deadline = now_left, time.monotonic() + STANDSTILL_S
                await asyncio.sleep(0.5)
        self.found.anomalies.append(f"the groups stand still, {left} records before the end")

    async def _held_by(self, admin: fencepost.AsyncAdmin) -> str:
        """Return a description of all transactions, and the folder with a copy of the broker's directory."""
        kept = tempfile.mkdtemp(prefix="fencepost-torture-kept-")
        if self._broker is not None:
            shutil.copytree(self._broker.data_directory.parent, kept, dirs_exist_ok=True)
        known = [listed.transactional_id for listed in await admin.list_transactions()]
        return f"transactions {await admin.describe_transactions(known)}; the broker's directory is in {kept}"

    def _check(self, feeder: Feeder, copiers: list[Copier]) -> None:
        with fencepost.Admin(self._direct) as admin, fencepost.Consumer(self._direct) as consumer:
            stored = committed_values(admin, consumer, "in", PARTITIONS)
            feeder.compare(stored)
            self.found.records = len(stored)
            for group in GROUPS:
                wrong = self._compare(group, stored, committed_values(admin, consumer, f"out-{group}", 2))
                for copier in copiers:
                    self._tell(copier, wrong)
            self.found.anomalies += hanging(admin)
        if self.found.memory_most_mb > MEMORY_MOST_MB:
            self.found.anomalies.append(f"the broker took {self.found.memory_most_mb:.0f} MB")

    def _compare(self, group: str, stored: list[bytes], copied: list[bytes]) -> set[bytes]:
        """The values that are not there once."""
        wrong = differences(stored, copied)
        for what, values in wrong.items():
            self.found.anomalies.append(f"{group}: {values.total()} {what}: {sorted(values)[:5]}")
        return {value for values in wrong.values() for value in values}

    @staticmethod
    def _tell(copier: Copier, wrong: set[bytes]) -> None:
        """Print the copier's journal about up to three of the wrong values."""
        for value in sorted(wrong)[:3]:
            for when, values, told in copier.journal:
                if value in values:
                    print(f"{value!r}: {copier.name} at {when:.3f}, {len(values)} records: {told}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    found = Torture(given.minutes, given.seed).run()
    for what, count in sorted(found.happened.items()):
        print(f"{count:7} {what}")
    print(
        f"{found.records} records, {len(GROUPS)} groups; the broker took at most {found.memory_most_mb:.0f} MB, "
        f"its slowest start after kill -9 {found.slowest_start_s:.2f} s; {len(found.anomalies)} anomalies"
    )
    for anomaly in found.anomalies[:50]:
        print(anomaly)
    return 1 if found.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
