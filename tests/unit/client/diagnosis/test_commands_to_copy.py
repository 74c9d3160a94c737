"""Commands that findings recommend are copied into a shell."""

from __future__ import annotations

from dataclasses import replace

from fencepost.client.admin.groups import GroupListing
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.diagnosis.facts import UnreadableRecords
from tests.unit.client.diagnosis.test_findings import AT, SINK, held, lasting, transaction


def test_a_command_to_copy_takes_a_name_as_one_word() -> None:
    """Clients choose the names, and a shell would run what follows a semicolon."""
    name = "my group; reboot"
    sick = replace(
        held(described=transaction(name)),
        groups=[GroupListing(name, "consumer", "Empty", "classic")],
        committed={name: {AT: 4}},
        damaged={AT: UnreadableRecords(4, 5, "the reason")},
        sinks=[replace(SINK, sink=name, lost=("t-3",))],
    )
    actions = {each.code: each.action for each in diagnose(lasting(sick, 60_000))}
    assert {code for code, action in actions.items() if f"'{name}'" in action} >= {"FP204", "FP403", "FP502", "FP602"}
    assert [code for code, action in actions.items() if name in action.replace(f"'{name}'", "")] == []
