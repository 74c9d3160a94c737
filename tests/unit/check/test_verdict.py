"""The report, the picture and the command."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fencepost.cli.main import main
from fencepost_lab.check.history.file import VERSION_LINE, lines_of
from fencepost_lab.check.report.timeline import MOST_BARS, page
from fencepost_lab.check.report.verdict import judge, text_of
from tests.support.history_builder import HistoryBuilder


def losing(values: int) -> HistoryBuilder:
    """A zombie's commit, and so many values that are gone."""
    story = HistoryBuilder()
    story.init("old")
    story.begin("t1", "old")
    story.send("a", "t1", process="old")
    story.init("new")
    story.commit("t1", process="old")
    for number in range(values):
        story.send(f"v{number}", process="new")
    story.read("a@0")
    return story


def written(story: HistoryBuilder, folder: Path) -> str:
    path = folder / "history.jsonl"
    path.write_text("\n".join(lines_of(story.recorder.operations)) + "\n")
    return str(path)


def status_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    return int(str(ended.value.code))


def test_anomalies_are_told_with_their_operations_in_their_order() -> None:
    text = text_of(judge(losing(2).history(), 5))
    began, fenced, committed = (text.index(word) for word in ("old  begin", "new  init", "old  commit"))
    assert began < fenced < committed
    assert "zombie_write: old, fenced by new, committed transaction t1" in text
    assert "2 lost_write\n" in text
    assert text.endswith("3 anomalies")


def test_no_more_are_shown_than_asked_for_and_all_are_counted() -> None:
    verdict = judge(losing(50).history(), 3)
    assert verdict.counts == {"lost_write": 50, "zombie_write": 1}
    assert len(verdict.listed) == 4
    assert "50 lost_write, of which 3 are shown" in text_of(verdict)


def test_the_page_is_whole_and_shows_each_operation_of_an_anomaly() -> None:
    story = losing(2 * MOST_BARS)
    verdict = judge(story.history(), 1)
    text = page(verdict, "a <title>")
    assert "http" not in text and "<script" not in text and "a &lt;title&gt;" in text
    for anomaly, picture in zip(verdict.listed, text.split("<svg ")[1:], strict=True):
        drawing = ElementTree.fromstring("<svg " + picture.partition("</svg>")[0] + "</svg>")  # noqa: S314 - our own
        bars = [rectangle for rectangle in drawing.iter("rect") if (rectangle.get("class") or "").startswith("shown ")]
        assert len(bars) == len(anomaly.operations)
        assert len(bars) < len(list(drawing.iter("rect"))) <= MOST_BARS


def test_a_clean_history_is_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = HistoryBuilder()
    story.whole("t1", "ab")
    story.read("a@0 b@1")
    assert status_of(written(story, tmp_path)) == 0
    assert capsys.readouterr().out.endswith("no anomalies\n")


def test_anomalies_are_status_1_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "history.html"
    assert status_of(written(losing(1), tmp_path), "--json", "--html", str(picture)) == 1
    reported = json.loads(capsys.readouterr().out)
    assert reported["counts"] == {"lost_write": 1, "zombie_write": 1}
    assert [operation["f"] for operation in reported["anomalies"][1]["operations"]] == ["begin", "init", "commit"]
    assert picture.read_text().count("<svg") == 2


def test_a_history_in_which_nobody_reads_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = HistoryBuilder()
    story.whole("t1", "ab")
    assert status_of(written(story, tmp_path)) == 1
    assert "nobody read anything" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: the history is empty"),
        (f"{VERSION_LINE}\nnonsense\n".encode(), "line 2: not JSON"),
        (b"\x89PNG\r\n\x1a\n", "line 1: not UTF-8 text: byte 0x89 at column 1"),
        (f'{VERSION_LINE}\n{{"f": "\xe9"}}\n'.encode("latin-1"), "line 2: not UTF-8 text: byte 0xe9 at column 8"),
    ],
)
def test_what_cannot_be_read_is_status_2(
    tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(content)
    assert status_of(str(path)) == 2
    assert f"history.jsonl: {message}" in capsys.readouterr().err
    assert status_of(str(tmp_path / "missing.jsonl")) == 2
    assert "No such file" in capsys.readouterr().err
