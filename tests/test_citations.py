"""Gate for citations: each names a numbered fact of docs/observed.md, an existing file, or a document's section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tidy import PACKAGES, python_files

ROOT = Path(__file__).parent.parent
FACTS = ROOT / "docs" / "observed.md"
CITED = re.compile(r"(?<![\w.\"'-])([KC]\d{2,3}|R\d)(?: to ([KC]\d{2,3}|R\d))?(?![\w\"'-])")
DOCUMENT = re.compile(r"(?<![\w/.-])((?:docs/)?[\w.-]+\.md)\b")
ELSEWHERE = re.compile(r"\b(?:[Ss]ections? \d+|§ ?\d)|\b[Dd]esign \d")
"""A section's number says nothing without the document: a KIP or an RFC on the same line names one."""
NAMED = re.compile(r"KIP-\d+|RFC ?\d+")


def numbers(text: str) -> list[str]:
    """The facts that are told in ``text``, in its order."""
    return re.findall(r"\*\*([KCR]\d+)\b", text)


def cited_in(text: str) -> Iterator[str]:
    """The facts that ``text`` names, both ends of a range. A heading names the numbers of its block, used or not."""
    for line in text.splitlines():
        if "noqa" not in line and not line.startswith("#"):
            for match in CITED.finditer(line):
                yield from filter(None, match.groups())


def problems(path: Path, facts: set[str]) -> list[str]:
    text = path.read_text()
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    found = [f"{where}: no fact {fact}" for fact in cited_in(text) if fact not in facts]
    for number, line in enumerate(text.splitlines(), 1):
        if ELSEWHERE.search(line) and not NAMED.search(line):
            found.append(f"{where}:{number}: a section of what? {line.strip()}")
        for name in DOCUMENT.findall(line):
            if not any((folder / name).exists() for folder in (ROOT, ROOT / "docs", path.parent)):
                found.append(f"{where}:{number}: there is no {name}")
    return found


def sources() -> list[Path]:
    return [
        *python_files(*PACKAGES),
        *(path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)),
        *sorted((ROOT / "docs").rglob("*.md")),
        *(ROOT / name for name in ("DESIGN.md", "CONTRIBUTING.md", "SECURITY.md")),
    ]


def test_every_fact_has_one_number() -> None:
    facts = numbers(FACTS.read_text())
    assert len(facts) > 60
    assert len(facts) == len(set(facts))


def test_what_is_cited_is_there() -> None:
    facts = set(numbers(FACTS.read_text()))
    files = sources()
    assert len(files) > 300
    assert [problem for path in files for problem in problems(path, facts)] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("K21 and K999 of docs/observed.md", "no fact K999"),
        ("docs/observed.md, K10 to K888", "no fact K888"),
        ("# See notes-of-mine.md.", "there is no notes-of-mine.md"),
        ("# Observed, section 4.", "a section of what?"),
    ],
)
def test_a_citation_of_nothing_is_found(tmp_path: Path, line: str, expected: str) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(f"{line}\n")
    assert [problem for problem in problems(planted, {"K10", "K21"}) if expected in problem]


def test_what_names_its_document_passes(tmp_path: Path) -> None:
    fine = tmp_path / "fine.py"
    fine.write_text("K21, R2 and docs/observed.md; RFC 7677, section 3; KIP-939, section 2.\n")
    assert problems(fine, {"K21", "R2"}) == []
