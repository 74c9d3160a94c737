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
        "The state of an id after each of its records in the transaction log. `PREPARE_EPOCH_FENCE` exists in Kafka's "
        "numbering only; no step leads there.",
    ),
    Machine(
        "A classic group",
        "fencepost.broker.coordinator.group.classic.states",
        "The coordinator's view of a group whose members assign the partitions themselves.",
    ),
    Machine(
        "A member of a consumer or streams group (KIP-848, KIP-1071)",
        "fencepost.broker.coordinator.group.base.member_states",
        "The coordinator's view of a member whose partitions or tasks it assigns.",
        "MEMBER_TABLE",
    ),
    Machine(
        "A record that a share group reads (KIP-932)",
        "fencepost.broker.share.states",
        "The broker's view of a record that it delivers to members and that they acknowledge.",
        "RECORD_TABLE",
    ),
    Machine(
        "A connection during authentication",
        "fencepost.broker.security.login",
        "SASL, on a listener that requires it.",
    ),
    Machine(
        "A transactional producer",
        "fencepost.client.producer.transaction_states",
        "The effect of the producer's calls, and of the answers to its requests.",
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
        "A client that pushes its metrics (KIP-714)",
        "fencepost.client.telemetry.states",
        "The states are those of Java's clients.",
    ),
    Machine(
        "A fetch session",
        "fencepost.client.consumer.fetch_sessions",
        "The consumer's side of KIP-227: one session per broker.",
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
        "`tools/draw_states.py` draws these diagrams from the tables in the code, and a test compares them. A step\n"
        "without an arrow is illegal and raises. Events on one arrow are separate events that lead to the same state.\n"
    )
    parts = [
        f"\n## {machine.title}\n\n{machine.about} Table: `src/{machine.module.replace('.', '/')}.py`.\n\n"
        f"{diagram(machine.table)}\n"
        for machine in MACHINES
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
