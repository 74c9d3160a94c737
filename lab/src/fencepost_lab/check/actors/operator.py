"""An administrator who fences producers, ends their transactions, changes topics and lists state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fencepost.client.net.transaction_calls import enlist, to_enlist
from fencepost.errors import KafkaError
from fencepost.protocol.logs.topic_names import TRANSACTION_STATE
from fencepost_lab.check.actors.actor import Actor
from fencepost_lab.check.history.operations import Init
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["Operator"]


class Operator(Actor):
    """An administrator who acts about once a second during the storm."""

    async def live(self, process: Process) -> None:
        """Act until the storm is over."""
        while self.world.has_faults:
            await process.runtime.sleep_ms(self.chance.uniform(50, 1_500))
            if self.world.has_faults:
                await self._act(process)

    async def _act(self, process: Process) -> None:
        admin, world = process.admin, self.world
        sessions = world.sessions
        whom = self.chance.choice(world.replaceable)
        taken_over = Init(process=process.life_name, transactional_id=whom)
        acts: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            f"fence {whom}": lambda: sessions.ask(taken_over, lambda: admin.fence_producers([whom])),
            f"terminate {whom}": lambda: sessions.ask(taken_over, lambda: admin.force_terminate_transaction(whom)),
            "list": admin.list_transactions,
            "add a partition": lambda: world.add_partition(admin),
            "replace a topic": lambda: world.replace_topic(admin),
            "change settings": lambda: world.change_settings(admin, self.chance),
            "enlist an internal topic": lambda: self._write_into_internal_topic(process),
        }
        what = self.chance.choice(list(acts))
        try:
            await self.call(process, what, acts[what])
        except (KafkaError, TaskCancelled) as error:
            world.trace(f"{self.name} {what}: {type(error).__name__}: {error}")
        else:
            world.trace(f"{self.name} {what}")

    async def _write_into_internal_topic(self, process: Process) -> None:
        """Try to write a marker into an internal topic. If the broker allowed it, its next start would fail."""
        admin, name = process.admin, f"{self.name}-intruder"
        given = await admin.init_producer_id(name, timeout_ms=60_000)
        request = to_enlist(name, given.producer_id, given.producer_epoch, [(TRANSACTION_STATE, 0)])
        if not await enlist(admin.cluster, request, process.runtime.now_ms() + 10_000):
            self.world.found("intruded", f"{name} has a part of __transaction_state in its transaction")
