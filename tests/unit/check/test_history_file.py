"""Histories as JSON lines: what is written is read again, and what is wrong is named with its line."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fencepost_lab.check.checks import CHECKS, check_all
from fencepost_lab.check.history.file import COMMON, VERSION_LINE, lines_of, operations_of
from fencepost_lab.check.history.model import History, InvalidHistory
from fencepost_lab.check.history.operations import KINDS, Operation, OperationResult, Send
from fencepost_lab.check.history.recorder import Recorder
from tests.support.history_builder import HistoryBuilder
from tests.support.readme import ROOT
from tests.unit.check import test_checks

EVENT_FIELDS = {"time_ms", "process", "op", "type", "f"}
DOCUMENT = ROOT / "docs" / "check.md"


def ends(operation: Operation) -> tuple[object, ...]:
    return tuple(
        getattr(operation, field.name) for field in fields(operation) if field.name not in ("invoked", "completed")
    )


@pytest.mark.parametrize("planted", [case[1] for case in test_checks.CASES], ids=lambda value: value.__name__)
def test_what_is_written_is_read_again(planted: test_checks.FencingHistory) -> None:
    story = HistoryBuilder()
    planted(story)
    lines = list(lines_of(story.recorder.operations))
    read = list(operations_of(lines))
    assert [ends(operation) for operation in read] == [ends(operation) for operation in story.recorder.operations]
    assert list(lines_of(read)) != []
    assert {anomaly.check for anomaly in check_all(History(read))} == {
        anomaly.check for anomaly in check_all(story.history())
    }


def test_a_recorder_writes_each_event_when_it_happens() -> None:
    written: list[str] = []
    times = iter(range(10))
    recorder = Recorder(lambda: float(next(times)), written.append)
    send = recorder.invoke(Send(process="p", topic="t", value="a"))
    assert len(written) == 1
    recorder.ok(send, partition=0, offset=5)
    other = recorder.invoke(Send(process="p", topic="t", value="b"))
    recorder.unknown(other, "cut off")
    recorder.invoke(Send(process="p", topic="t", value="c"))
    assert recorder.operations == []
    first, second, third = operations_of([VERSION_LINE, *written])
    assert isinstance(first, Send)
    assert (first.offset, first.result, first.invoked_ms, first.completed_ms) == (5, OperationResult.OK, 0.0, 1.0)
    assert (second.result, second.error) == (OperationResult.UNKNOWN, "cut off")
    assert third.result is OperationResult.UNKNOWN


COMMITTED = '"isolation": "read_committed"'
UNEVEN = '[{"topic": "t", "partition": 0, "offsets": [1], "values": []}]'
INVOKE = '{"time_ms": 1, "process": "p", "type": "invoke", "op": 1, "f": "send", "topic": "t", "value": "a"}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: the history is empty"),
        ([INVOKE], "line 1: the first line has to be"),
        ([VERSION_LINE, "{"], "line 2: not JSON: .* at column 2; the line is cut off"),
        ([VERSION_LINE, "{\n"], "line 2: not JSON: .*column [0-9]+$"),
        ([VERSION_LINE, "[]"], r"line 2: not a JSON object, but \[\]"),
        ([VERSION_LINE, '{"process": "p"}'], "line 2: time_ms has to be a number, not None"),
        ([VERSION_LINE, INVOKE.replace('"invoke"', '"begin"')], "type has to be invoke, ok, fail or unknown"),
        ([VERSION_LINE, INVOKE.replace('"send"', '"produce"')], "f has to be one of .*, not 'produce'"),
        ([VERSION_LINE, INVOKE.replace('"topic": "t", ', "")], "line 2: send needs the field topic"),
        ([VERSION_LINE, INVOKE.replace('"t"', "7")], "line 2: topic: it has to be a string, not 7"),
        ([VERSION_LINE, INVOKE.replace('"topic"', '"color": 1, "topic"')], "line 2: send has no field color"),
        ([VERSION_LINE, INVOKE.replace('"op": 1', '"op": true')], "op has to be an integer, not True"),
        ([VERSION_LINE, INVOKE, INVOKE], "line 3: op 1 of p was invoked in line 2 and has not ended"),
        ([VERSION_LINE, '{"time_ms": 1, "process": "p", "type": "ok", "op": 1}'], "op 1 of p was not invoked"),
        (
            [VERSION_LINE, INVOKE, '{"time_ms": 0, "process": "p", "type": "ok", "op": 1}'],
            r"line 3: time_ms 0 is before that of the line above \(1\)",
        ),
        (
            [VERSION_LINE, INVOKE, '{"time_ms": 2, "process": "p", "type": "ok", "op": 1, "value": "b"}'],
            "line 3: the end of send has no field value",
        ),
        (
            [VERSION_LINE, '{"time_ms": 1, "process": "p", "type": "ok", "f": "poll", "isolation": "dirty"}'],
            "isolation has to be read_committed or read_uncommitted",
        ),
        (
            [
                VERSION_LINE,
                f'{{"time_ms": 1, "process": "p", "type": "ok", "f": "poll", {COMMITTED}, "records": {UNEVEN}}}',
            ],
            "records: offsets and values have to be lists of the same length",
        ),
        (
            [VERSION_LINE, '{"time_ms": 1, "process": "p", "type": "ok", "f": "seek", "positions": [["t", 0]]}'],
            r"positions: it has to be \[topic, partition, offset\]",
        ),
        ([VERSION_LINE, INVOKE, INVOKE.replace('"op": 1', '"op": 2')], "line 3: value 'a' was sent before, in line 2"),
        (
            [VERSION_LINE, INVOKE.replace('"value"', '"transaction": "t9", "value"')],
            "line 2: send in transaction 't9', which has not begun",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(lines: list[str], message: str) -> None:
    with pytest.raises(InvalidHistory, match=message):
        History(operations_of(lines))


def test_the_document_tells_every_kind_field_and_check() -> None:
    text = DOCUMENT.read_text()
    reported = set(re.findall(r"`([a-z_]+)`", text))
    names = {field.name for kind in KINDS.values() for field in fields(kind)} - COMMON
    assert len(names) > 15
    assert (names | EVENT_FIELDS | set(KINDS) | {check.__name__ for check in CHECKS}) - reported == set()


def test_a_document_without_a_field_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "check.md").write_text(DOCUMENT.read_text().replace("`generation`", ""))
    assert "generation" not in set(re.findall(r"`([a-z_]+)`", (tmp_path / "check.md").read_text()))
