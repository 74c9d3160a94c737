"""A start among transactional ids that are done: `python -m bench.idle_ids --ids 60000`.

Each id writes one record to each partition in one transaction, commits, and is never used again, as the tasks of a
Spark job do that take a new id each. Then the broker stops, or is killed, and starts. Printed are the CPU seconds of
the start (beside those of a start without ids), how many records it read, and the bytes of memory per id.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
import tracemalloc
from uuid import uuid4

from fencepost.broker.coordinator.txn.decide_end import EndRequest
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.model import NO_PAIR, ProducerPair
from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.changes import carry_out
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol.records.batch import seal

TOPIC = "rows"
_RECORD = bytes((14, 0, 0, 0, 1, 2, 120, 0))  # length 7, attributes, deltas, no key, value "x", no headers


def _now_ms() -> int:
    return int(time.time() * 1000)


def _open(root: str) -> tuple[BrokerCore, float]:
    """An open broker, and the CPU seconds that opening it and its logs took."""
    core = BrokerCore(SystemFiles(root, durable=False), BrokerConfig({"fsync": "never"}), new_uuid=uuid4)
    began = time.process_time()
    core.open(_now_ms())
    for topic in core.topics:
        for partition in topic.partitions:
            if core.files.exists(partition.directory):
                _ = partition.log
    return core, time.process_time() - began


def fill(core: BrokerCore, ids: int, partitions: int) -> None:
    """Let so many ids write and commit."""
    topic = core.topics.get(TOPIC) or carry_out(core.topics.create(TOPIC, partitions, {}))
    names = [(TOPIC, index) for index in range(partitions)]
    coordinator = core.transactions.coordinator
    for number in range(ids):
        now_ms = _now_ms()
        name = f"fencepost/bench/{number:08d}-{number * 7919 % 65_536:04x}"
        begun = coordinator.init_producer_id(now_ms, InitRequest(name, 60_000, NO_PAIR, 5))
        core.transactions.apply(now_ms, begun)
        pair = ProducerPair(begun.reply.producer_id, begun.reply.producer_epoch)
        core.transactions.apply(now_ms, coordinator.enlist_for_produce(now_ms, EnlistRequest(name, pair, names, 13)))
        batch = seal(
            bytearray(_RECORD),
            record_count=1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            base_sequence=0,
            transactional=True,
        )
        for partition in topic.partitions:
            partition.log.append(batch, now_ms)
        core.transactions.apply(now_ms, coordinator.end_txn(now_ms, EndRequest(name, pair, True, 5)))
        core.on_time(now_ms)
        core.take_effects()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=60_000)
    parser.add_argument("--partitions", type=int, default=2)
    options = parser.parse_args()
    for how in ("stopped", "killed"):
        with tempfile.TemporaryDirectory() as root:
            core, _ = _open(root)
            fill(core, 1, options.partitions)
            core.close()
            core, empty = _open(root)
            fill(core, options.ids, options.partitions)
            if how == "stopped":
                core.close()
            del core
            gc.collect()
            core, taken = _open(root)
            read = core.metrics.values["start_records_read"]
            del core
            gc.collect()
            tracemalloc.start()
            core, _ = _open(root)
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            known = len(core.transactions.coordinator)
        print(
            f"{how}: {known} ids, {taken:.2f} s of CPU for the start ({empty:.2f} s without them), "
            f"{read} records read, {held / known:.0f} bytes per id and {options.partitions} partitions",
            flush=True,
        )


if __name__ == "__main__":
    main()
