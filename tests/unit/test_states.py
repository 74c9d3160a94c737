"""Every state machine is one table: what it does not list raises the machine's error. And the docs draw them all."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from enum import Enum
from itertools import product

import pytest

from fencepost.broker.coordinator.group.base.member_states import IllegalMemberStep
from fencepost.broker.coordinator.group.classic.states import IllegalStep
from fencepost.broker.coordinator.txn.states import IllegalTransition
from fencepost.broker.share.states import IllegalRecordStep
from fencepost.client.producer import transaction_states
from fencepost.client.producer.transaction_states import ProducerTxnState, TxnEvent
from fencepost.errors import UsageError
from fencepost.states import StateTable
from tests.support.tidy import PACKAGES, ROOT, python_files
from tools.draw_states import MACHINES, Machine, diagram

ERRORS: dict[str, type[Exception]] = {
    "fencepost.broker.coordinator.txn.states": IllegalTransition,
    "fencepost.broker.coordinator.group.classic.states": IllegalStep,
    "fencepost.broker.coordinator.group.base.member_states": IllegalMemberStep,
    "fencepost.broker.share.states": IllegalRecordStep,
    "fencepost.broker.security.login": RuntimeError,
}


class Light(Enum):
    """States of a machine for these tests."""

    RED = 1
    GREEN = 2


class Turn(Enum):
    """Its events."""

    GO = 1
    STOP = 2


def light() -> StateTable[Light, Turn]:
    steps = {Light.RED: {Turn.GO: Light.GREEN, Turn.STOP: Light.RED}}
    return StateTable(Light, Turn, steps, LookupError)


def test_a_step_that_is_not_listed_raises_what_the_owner_wants() -> None:
    table = light()
    assert table.step(Light.RED, Turn.GO, "crossing") is Light.GREEN
    with pytest.raises(LookupError) as refused:
        table.step(Light.GREEN, Turn.GO, "crossing")
    assert refused.value.args == (Light.GREEN, Turn.GO, "crossing")
    assert (table.leads_to(Light.RED, Turn.STOP), table.leads_to(Light.GREEN, Turn.STOP)) == (Light.RED, None)
    assert table.may_follow(Light.RED, Light.GREEN)
    assert not table.may_follow(Light.GREEN, Light.RED)


def test_a_diagram_has_one_arrow_for_all_events_between_two_states() -> None:
    assert diagram(light()).splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        "    RED --> GREEN: GO",
        "    RED --> RED: STOP",
        "```",
    ]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.title)
def test_every_pair_leads_somewhere_or_raises(machine: Machine) -> None:
    table = machine.table
    error = ERRORS.get(machine.module, UsageError)
    legal = list(table)
    assert {type(state) for state, _, _ in legal} == {table.states}
    assert {type(event) for _, event, _ in legal} == {table.events}
    assert {event for _, event, _ in legal} == set(table.events)  # an event that leads nowhere is none
    listed = {(state, event): following for state, event, following in legal}
    refused = 0
    for state, event in product(list(table.states), list(table.events)):
        if (state, event) in listed:
            assert table.step(state, event) is listed[state, event]
            assert table.may_follow(state, listed[state, event])
            continue
        refused += 1
        with pytest.raises(error, match=rf"(?i){event.name}|{event.value}"):
            table.step(state, event)
    assert refused


def test_every_table_is_drawn() -> None:
    tables = [path for path in python_files(*PACKAGES) if re.search(r"\bStateTable\(\n", path.read_text())]
    drawn = [ROOT / "src" / (machine.module.replace(".", "/") + ".py") for machine in MACHINES]
    assert sorted(tables) == sorted(drawn)


# States that are read off something else: of groups from epochs and members, of rows of the web page, and of the
# winners that a repair describes.
DERIVED = {"ConsumerGroupState", "EndState", "ShareGroupState", "StreamsGroupState", "WinnerState"}


def enums_of_states(text: str) -> set[str]:
    """Return the names of the enums that are called states."""
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    return {
        node.name
        for node in classes
        if node.name.endswith("State") and any(ast.unparse(base).endswith("Enum") for base in node.bases)
    }


def states_set_by_hand(text: str, derived: set[str]) -> list[str]:
    """Return the places that store a derived state, or a state that is a plain text or number."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign | ast.Call):
            continue
        values: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Assign):
            values = [(target.attr, node.value) for target in node.targets if isinstance(target, ast.Attribute)]
        elif ast.unparse(node.func).endswith("replace"):
            values = [(keyword.arg or "", keyword.value) for keyword in node.keywords]
        for name, value in values:
            is_plain = name.strip("_") == "state" and isinstance(value, ast.Constant) and value.value is not None
            if is_plain or derived & {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}:
                found.append(f"{node.lineno}: {name}")
    return found


def test_a_state_without_a_table_is_found() -> None:
    assert enums_of_states("class AState(IntEnum): ...\nclass B(Enum): ...\nclass CState: ...\n") == {"AState"}
    source = "x.state = AState.ONE\nself._state = 'open'\ny = replace(y, state=AState.TWO)\nz = AState.ONE\n"
    assert states_set_by_hand(source, {"AState"}) == ["1: state", "2: _state", "3: state"]


def test_every_state_that_is_stored_has_a_table() -> None:
    texts = {path: path.read_text() for path in python_files("src")}
    enums = {name for text in texts.values() for name in enums_of_states(text)}
    assert enums - DERIVED == {machine.table.states.__name__ for machine in MACHINES}
    assert enums >= DERIVED
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, text in texts.items()
        if "cli" not in path.parts  # the web page notes which states it saw
        for line in states_set_by_hand(text, DERIVED)
    ]
    assert found == []


def test_the_diagrams_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "draw_states.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


# --- what the producer's table must not allow ---


def test_fatal_is_terminal() -> None:
    """Unlike clients where a fatal state slips back into an abortable one."""
    assert {end for state, _, end in transaction_states.TABLE if state is ProducerTxnState.FATAL_ERROR} == {
        ProducerTxnState.FATAL_ERROR
    }


def test_every_state_can_end() -> None:
    """From everywhere but the fatal state there is a way back to READY."""
    reachable = {ProducerTxnState.READY}
    while True:
        before = len(reachable)
        reachable |= {state for state, _, following in transaction_states.TABLE if following in reachable}
        if len(reachable) == before:
            break
    assert reachable == set(ProducerTxnState) - {ProducerTxnState.FATAL_ERROR}


def test_a_commit_never_follows_an_error() -> None:
    for state in (ProducerTxnState.ABORTABLE_ERROR, ProducerTxnState.ABORTING):
        assert transaction_states.TABLE.leads_to(state, TxnEvent.COMMIT) is None
    assert set(transaction_states.WHY) == set(ProducerTxnState)
