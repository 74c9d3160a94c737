"""docs/at-night.md: a section for each finding, with what the finding says, and commands that run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.cli.cluster.doctor import doctor
from fencepost.cli.diagnosis.finding_text import as_value, lines_of
from fencepost.cli.main import main
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.diagnosis.findings import (
    CODES,
    OBSERVED,
    PAGE,
    Finding,
    ObjectKind,
    Severity,
    exit_status,
    page_of,
)
from fencepost.client.diagnosis.limits import Limits
from tests.support.readme import ROOT
from tests.support.tidy import PACKAGES, python_files
from tests.unit.client.diagnosis.test_findings import CASES

TEXT = (ROOT / PAGE).read_text()
ROWS = ("looks like", "ask", "it says", "do", "cost")


def sections(text: str) -> dict[str, dict[str, str]]:
    """By code: the title, and the rows of the table."""
    found = {}
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        code, _, rest = part.partition("\n")
        rest = rest.partition("\n## ")[0]
        title = re.search(r"^\*\*(.*)\*\*$", rest, re.MULTILINE)
        rows = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", rest, re.MULTILINE))
        found[code] = {"title": title[1] if title else "", **rows}
    return found


SECTIONS = sections(TEXT)


def commands(text: str) -> list[str]:
    return re.findall(r"`(fencepost [^`]*)`", text)


ALL_COMMANDS = sorted(
    {command for section in SECTIONS.values() for row in section.values() for command in commands(row)}
)


def test_sections_are_read() -> None:
    text = "### FP1\n\n**error: a title**\n\n| | |\n|---|---|\n| ask | `fencepost x` |\n\n## Next\n\n| ask | no |\n"
    assert sections(text) == {"FP1": {"title": "error: a title", "ask": "`fencepost x`"}}


def test_each_finding_has_its_section_and_each_section_its_finding() -> None:
    assert list(SECTIONS) == list(CODES)
    assert {code: section["title"] for code, section in SECTIONS.items()} == {
        code: f"{each.severity.value}: {each.title}" for code, each in CODES.items()
    }
    assert [code for code, section in SECTIONS.items() if tuple(section)[1:] != ROWS] == []


@pytest.mark.parametrize("code", CODES)
def test_a_section_quotes_what_the_finding_says(code: str) -> None:
    """ "..." stands for names and numbers; TOPIC is the topic of the cases."""
    quoted = SECTIONS[code]["it says"].strip("`").replace("TOPIC", "orders")
    pattern = re.compile(".*".join(re.escape(piece) for piece in quoted.split("...")), re.DOTALL)
    said = [each.words for name, sick, _, _ in CASES if name == code for each in diagnose(sick) if each.code == code]
    reported = said + [words.replace("the reason", "CLUSTER_AUTHORIZATION_FAILED (31)") for words in said]
    parts = {"FP002": "disks of broker 1", "FP003": "clock", "FP004": "transactions", "FP001": "topics"}
    if code in parts:  # the part differs, the words around it do not
        state = "not everything was asked" if code == "FP004" else "not known"
        pattern = re.compile(rf"[a-z0-9 ]+: {state}: .*", re.DOTALL)
        assert quoted.partition(": ")[2].startswith(f"{state}: ")
    assert any(pattern.match(words) for words in reported), (quoted, reported)


def test_the_actions_of_findings_are_in_their_sections() -> None:
    """A command that a finding recommends is one that its section names, but for names and options."""
    wrong = []
    for code, sick, _, _ in CASES:
        for each in diagnose(sick):
            recommended = re.search(r"fencepost ([a-z]+(?: [a-z-]+)?)", each.action) if each.code == code else None
            if recommended and recommended[1] != "doctor asks":
                known = {" ".join(command.split()[1:3]) for row in SECTIONS[code].values() for command in commands(row)}
                if not any(name.startswith(recommended[1].split()[0]) for name in known):
                    wrong.append((code, each.action))
    assert wrong == []


def test_the_symptoms_lead_to_every_section() -> None:
    head = TEXT.partition("\n## ")[0]
    assert set(re.findall(r"\[(FP\d+)\]\(#(?:fp\d+)\)", head)) == set(CODES) - {"FP109"}
    assert [(a, b) for a, b in re.findall(r"\[(FP\d+)\]\(#(fp\d+)\)", TEXT) if a.lower() != b] == []


def test_a_finding_leads_to_its_section() -> None:
    assert page_of("FP401") == "docs/at-night.md#fp401"
    assert as_value(Finding("FP401", ObjectKind.PARTITION, "t-0", "w"))["page"] == "docs/at-night.md#fp401"


def test_the_statuses_and_limits_are_the_doctors() -> None:
    rows = dict(re.findall(r"^\| (\d) \| (?:an? )?([a-z]+)", TEXT.partition("\n## ")[0], re.MULTILINE))
    words = {Severity.ERROR: "error", Severity.UNKNOWN: "question", Severity.WARNING: "warning", Severity.NOTE: "none"}
    expected = {str(exit_status([])): "none"}
    for code, each in CODES.items():
        expected[str(exit_status([Finding(code, ObjectKind.CLUSTER, "x", "w")]))] = words[each.severity]
    assert rows == expected
    defaults = dict(zip(("probe", "older_than", "watch", "timeout"), doctor.__defaults__ or (), strict=False))
    assert f"`--watch` seconds ({defaults['watch']:g})" in TEXT
    assert f"`--older-than` ({defaults['older_than']:g} s)" in TEXT
    assert f"`--timeout` ({defaults['timeout']:g} s)" in TEXT
    assert Limits().open_ms == defaults["older_than"] * 1000
    assert Limits().stalled_ms == 60_000


def test_the_time_of_the_first_look_is_not_told_as_the_beginning() -> None:
    for code, label in (("FP502", "seen since"), ("FP403", "since")):
        finding = Finding(code, ObjectKind.GROUP, "billing", "w", since_ms=0)
        assert lines_of(finding, 5_000)[1] == f"  {label}: 1970-01-01T00:00:00Z (5 s)"
    assert all(
        f"[{code}](#{code.lower()})" in TEXT.partition("`seen since`")[2].partition("\n\n")[0] for code in OBSERVED
    )


@pytest.fixture(scope="module")
def broker() -> Any:
    with fencepost.Broker() as running:
        with (
            fencepost.Admin(running.bootstrap_servers) as admin,
            fencepost.Producer(running.bootstrap_servers, transactional_id="ID") as producer,
        ):
            admin.create_topic("TOPIC", 1)
            admin.alter_group_offsets("GROUP", {("TOPIC", 0): 0})
            producer.init_transactions()
        yield running


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_a_command_runs(command: str, broker: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With the names of the page. A name that is not there is status 1; a command that is wrong is status 2."""
    words = shlex.split(command.replace("PREPARED", "1:0"))[1:]
    if words == ["repair"]:
        words += ["--data-dir", str(tmp_path)]
    else:
        words += ["-b", broker.bootstrap_servers]
    confirming = {"abort", "delete"} & set(words[:2]) or "--abort" in words or "reset-offsets" in words
    with pytest.raises(SystemExit) as ended:
        main([*words, *(["--yes"] if confirming else [])])
    reported = capsys.readouterr()
    assert ended.value.code in (0, 1, 3, 4), f"{command}\n{reported.out}\n{reported.err}"
    assert "Usage:" not in reported.err


def test_texts_lead_to_sections_that_there_are() -> None:
    """Error texts and log lines outside of the diagnosis that name a code."""
    own = ROOT / "src" / "fencepost" / "client" / "diagnosis"
    found = {
        (path.name, code)
        for path in python_files(*PACKAGES)
        if not path.is_relative_to(own)
        for code in re.findall(r"\b(FP\d{3})\b", path.read_text())
    }
    assert {("certificates.py", "FP107"), ("parts.py", "FP104"), ("cluster_settings.py", "FP101")} <= found
    assert {code for _, code in found} <= set(CODES)


def test_a_section_asks_a_command_that_reports_its_finding() -> None:
    """One look cannot show that a state lasts, as `transactions list` and `groups describe` take."""
    one_look = {
        "fencepost transactions list": ("FP401", "FP402", "FP403"),
        "fencepost groups describe GROUP": ("FP502", "FP503", "FP505"),
    }
    for code, section in SECTIONS.items():
        (command,) = commands(section["ask"])
        if not command.startswith("fencepost doctor"):
            assert any(command.startswith(name) and code in codes for name, codes in one_look.items()), code
    assert SECTIONS["FP504"]["ask"] == "`fencepost doctor --no-probe --watch 60`"


def test_there_are_commands_for_all() -> None:
    assert len(ALL_COMMANDS) > 15
    assert [code for code, section in SECTIONS.items() if not commands(section["ask"])] == []
