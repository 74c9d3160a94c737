"""A sink played by hand: its steps with the real client, without Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping

from fencepost.client.types import Isolation, TopicPartition
from fencepost.protocol.records.batch import set_producer
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.protocol.records.walk import pairs_of
from fencepost.spark.sink import names, plan, plan_steps, wire
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Content
from fencepost.spark.sink.runner import ClusterClient, SinkLink
from fencepost.spark.sink.steps import SinkConfig


def decide(runner: SinkLink, steps: plan.Plan[bool]) -> None:
    """Carry a commit up to its decision, and no further."""
    step = next(steps)
    while True:
        answer = runner._link.io.run(runner._steps.perform(step))
        if isinstance(step, plan_steps.WriteDecision):
            assert answer == 0
            return
        step = steps.send(answer)


class Bench:
    """A sink on a fresh topic, played by hand. `settings`: further ones of its clients."""

    def __init__(
        self,
        servers: str,
        abilities: BrokerAbilities,
        timeout_ms: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.servers, self.abilities, self.settings = servers, abilities, dict(settings or {})
        self.sink = f"bench/{uuid.uuid4().hex[:8]}"
        self.query = f"{uuid.uuid4().hex[:8]}-query"
        self.topic = f"out-{uuid.uuid4().hex[:8]}"
        self.link = ClusterClient({"bootstrap.servers": servers, **self.settings})
        self._make_topic()
        self.runner = self.another_process(timeout_ms)

    def another_process(self, timeout_ms: int | None = None) -> SinkLink:
        """Return a link with a client and caches of its own, as another process of the sink has."""
        link = ClusterClient({"bootstrap.servers": self.servers, **self.settings})
        return SinkLink(link, SinkConfig(transaction_timeout_ms=timeout_ms))

    def _make_topic(self) -> None:
        self.link.io.run(self.link.admin.create_topic(self.topic, 1))

    def open(self) -> plan_steps.OpenedSink:
        opened = self.another_process().open(self.sink)
        assert opened.abilities == self.abilities
        return opened

    def task(self, opened: plan_steps.OpenedSink, batch_id: int) -> plan_steps.TaskResult:
        def write(step: plan_steps.Step) -> Content:
            assert isinstance(step, plan_steps.WriteRows)
            batch = encode_pairs([(b"k", b"%d" % batch_id)], int(time.time() * 1000))
            set_producer(batch, step.pair.producer_id, step.pair.epoch, 0, True)
            cluster = self.link.admin.cluster
            deadline_ms = cluster.runtime.now_ms() + 20_000
            writing = wire.produce_batch(
                cluster, step.transactional_id, self.topic, 0, batch, deadline_ms, verified=step.verified
            )
            assert self.link.io.run(writing) == 0
            return Content(1, batch_id)

        own: dict[type, Callable[[plan_steps.Step], object]] = {
            plan_steps.HasRows: lambda _: True,
            plan_steps.WriteRows: write,
        }
        own[plan_steps.DrainRows] = lambda _: Content(1, batch_id)
        return self.runner.run_task(plan.write_task(opened, self.query, batch_id), own)

    def decide(self, batch_id: int, messages: list[plan_steps.TaskResult]) -> None:
        """Carry a commit up to its decision, and then the process dies."""
        decide(self.runner, plan.commit_batch(self.sink, batch_id, messages))

    def committed(self) -> list[int]:
        """The batch number of every committed record."""
        partition = TopicPartition(self.topic, 0)
        cluster = self.link.admin.cluster
        uncommitted = Isolation.READ_UNCOMMITTED
        end = self.link.io.run(self.link.admin.list_offsets({partition: -1}, isolation=uncommitted))[partition].offset

        async def read() -> list[int]:
            deadline_ms = cluster.runtime.now_ms() + 20_000
            found = []
            async for header, batch in wire.batches(cluster, self.topic, 0, 0, end, deadline_ms):
                found += [int(value or b"-1") for _, _, value in pairs_of(header, batch)]
            return found

        return self.link.io.run(read())

    def wait_for_markers(self) -> None:
        """Until the sink's own transaction, the latest decision, is complete."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            own = names.sink_id(self.sink)
            (found,) = self.link.io.run(self.link.admin.describe_transactions([own]))
            if found.state.startswith("Complete"):
                return
            time.sleep(0.02)
        raise TimeoutError(f"the markers of {self.sink}'s decision are not written")

    def open_ids(self) -> list[str]:
        listed = self.link.io.run(self.link.admin.list_transactions(states=("Ongoing",)))
        return [
            listing.transactional_id
            for listing in listed
            if (name := names.parse(listing.transactional_id)) is not None and name.sink == self.sink
        ]
