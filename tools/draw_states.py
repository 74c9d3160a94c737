"""Draw the state tables: docs/states.md, a Mermaid diagram of each. `--check` says whether it is current."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from fencepost.states import StateTable

PAGE = Path(__file__).resolve().parent.parent / "docs" / "states.md"


class Machine(NamedTuple):
    """A table and what it is of."""

    title: str
    module: str
    about: str
    name: str = "TABLE"

    @property
    def table(self) -> StateTable[Enum, Enum]:
        """The table itself."""
        found = getattr(importlib.import_module(self.module), self.name)
        if not isinstance(found, StateTable):
            raise TypeError(f"{self.module}.{self.name} is no StateTable")
        return found


MACHINES = (
    Machine(
        "A transactional id",
        "fencepost.broker.coordinator.txn.states",
        "What the log's records say of an id, one after the other. `PREPARE_EPOCH_FENCE` is a number that Kafka has; "
        "nothing leads there.",
    ),
    Machine(
        "A classic group",
        "fencepost.broker.coordinator.group.classic.states",
        "The coordinator's view of a group whose members assign the partitions themselves.",
    ),
    Machine(
        "A member of a consumer group (KIP-848)",
        "fencepost.broker.coordinator.group.consumer.states",
        "The coordinator's view of a member whose partitions it assigns.",
        "MEMBER_TABLE",
    ),
    Machine(
        "A record that a share group reads (KIP-932)",
        "fencepost.broker.share.states",
        "The broker's view of a record that is handed out to members and answered for by them.",
        "RECORD_TABLE",
    ),
    Machine(
        "A connection that logs in",
        "fencepost.broker.security.login",
        "SASL, on a listener that asks for it.",
    ),
    Machine(
        "A transactional producer",
        "fencepost.client.producer.transaction_states",
        "What the calls of a producer, and what it is answered, lead to.",
    ),
    Machine(
        "A consumer in a classic group",
        "fencepost.client.group.classic_states",
        "The same group, seen by a member.",
    ),
    Machine(
        "A consumer in a KIP-848 group",
        "fencepost.client.group.consumer_protocol_states",
        "The same group, seen by a member.",
    ),
    Machine(
        "A fetch session",
        "fencepost.client.consumer.fetch_sessions",
        "KIP-227, the consumer's side: one for each broker.",
    ),
)


def diagram(table: Iterable[tuple[Enum, Enum, Enum]]) -> str:
    """One arrow from a state to another, with all the events that lead there."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, event, following in table:
        arrows.setdefault((state.name, following.name), []).append(event.name)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    {start} --> {end}: {', '.join(events)}" for (start, end), events in arrows.items()]
    return "\n".join([*lines, "```"])


def page() -> str:
    """All of docs/states.md."""
    head = (
        "# State machines\n\n"
        "Drawn by `tools/draw_states.py` from the tables in the code; a test holds them together. What has no arrow\n"
        "is illegal and raises. Events on one arrow are separate events that lead to the same state.\n"
    )
    parts = [
        f"\n## {one.title}\n\n{one.about} Table: `src/{one.module.replace('.', '/')}.py`.\n\n{diagram(one.table)}\n"
        for one in MACHINES
    ]
    return head + "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check compare it."""
    wanted = page()
    if "--check" not in arguments:
        PAGE.write_text(wanted)
        return 0
    if not PAGE.exists() or PAGE.read_text() != wanted:
        print("docs/states.md is not current: run python tools/draw_states.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
