"""Gate for plain words: form of docstrings and comments in src.

A docstring begins with an imperative or a noun phrase. Its first line is a sentence of limited length.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.support import tidy
from tests.support.tidy import ROOT

MOST_WORDS = 25

UNFINISHED: tuple[str, ...] = ("cli/ui",)
"""Folders and files that do not keep the rules yet, below src/fencepost. This list may only become shorter."""

QUESTION = re.compile(r"(?:What|Whether|Who|Whose|How|Where|Why)\b", re.IGNORECASE)
NOTE = re.compile(r"noqa|type:|pragma", re.IGNORECASE)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment. Lines that continue a comment of whole lines are left out."""
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, text = token.start[0], token.string.lstrip("# ")
            is_whole = token.line.lstrip().startswith("#")
            if not (is_whole and line == last + 1) and not NOTE.match(text):
                yield line, text
            last = line if is_whole else -1


def violations(source: str) -> list[str]:
    """Return the violations in a file as "line: text"."""
    found = []
    for line, text in docstrings(ast.parse(source)):
        first = text.split("\n")[0]
        if QUESTION.match(text):
            found.append(f"{line}: begins with a question word: {first}")
        if not first.endswith("."):
            found.append(f"{line}: the first line must be a sentence with a full stop: {first}")
        if len(first.split()) > MOST_WORDS:
            found.append(f"{line}: the first line has more than {MOST_WORDS} words: {first}")
    found += [f"{line}: begins with a question word: {text}" for line, text in comments(source) if QUESTION.match(text)]
    return found


@functools.cache
def by_file() -> dict[str, list[str]]:
    """Return the violations of each file below src/fencepost, by its path there."""
    root = ROOT / "src" / "fencepost"
    paths = [path for path in tidy.python_files("src") if path.is_relative_to(root) and path.parent.name != "messages"]
    return {path.relative_to(root).as_posix(): violations(path.read_text()) for path in paths}


def is_below(path: str, name: str) -> bool:
    """Return true for the file of this name, and for files below the folder of this name."""
    return path == name or path.startswith(f"{name}/")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f():\n    """Whether it is so."""\n', "2: begins with a question word"),
        ('"""What is written here."""\n', "1: begins with a question word"),
        ('class A:\n    """A thing\n    that goes on."""\n', "2: the first line must be a sentence"),
        (f'"""{"word " * 26}."""\n', "1: the first line has more than 25 words"),
        ("a = 1  # who reads this\n", "1: begins with a question word"),
    ],
)
def test_a_violation_is_found(source: str, expected: str) -> None:
    assert any(found.startswith(expected) for found in violations(source))


def test_plain_text_has_no_violation() -> None:
    source = '"""Return the last stable offset.\n\nWhat follows is free.\n"""\n# a comment\n# where it goes on\na = 1\n'
    assert violations(source) == []


def test_docstrings_and_comments_of_finished_files_are_plain() -> None:
    found = by_file()
    assert len(found) > 500
    finished = {path: each for path, each in found.items() if not any(is_below(path, name) for name in UNFINISHED)}
    assert len(finished) > 200
    assert [f"{path}:{each}" for path, several in finished.items() for each in several] == []


def test_unfinished_files_have_violations() -> None:
    """A file or folder without violations must be removed from the list."""
    found = by_file()
    assert UNFINISHED
    keeps = [name for name in UNFINISHED if not any(found[path] for path in found if is_below(path, name))]
    assert keeps == []


def test_the_list_names_nothing_twice() -> None:
    names = sorted(UNFINISHED)
    assert [name for name in names if any(other != name and is_below(name, other) for other in names)] == []
    assert len(set(names)) == len(names)
