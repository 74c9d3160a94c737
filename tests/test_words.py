"""Gate for plain words: form of docstrings, comments, and error, log and help texts in src and lab.

The docstring of a function begins with an imperative, that of another object may begin with a noun. Its first line is a
sentence of limited length. No text begins with a question word. In the other folders, no docstring does.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.support import tidy
from tests.support.tidy import ROOT

MOST_WORDS = 25

QUESTION = re.compile(r"(?:What|Whatever|Whether|Who|Whoever|Whose|How|Where|Wherever|Why)\b", re.IGNORECASE)
NO_VERBS = frozenset(
    """
    A Above After All Also An Anything As At Back Before Behind Below Beside Both By Called Each Either Else Enough
    Every Everybody Everything First For From He Here If In It Its Last Later Like More Most Neither Next No Nobody
    None Not Nothing Now Of On One Only Others Several She So Some Somebody Something Such That The Their Then There
    These They This Those To Two Under Until When While With Within Without You
    """.split()
)
"""First words that are no verb. Ruff's D401 finds verbs in another form, and knows no other words."""
SUMMARIES = frozenset({"property", "cached_property", "setter", "plant"})
"""Decorators of functions whose docstring describes a value, or the defect that the function plants."""
LOGGED = frozenset({"debug", "info", "warning", "error", "exception", "critical", "failed"})
"""Methods whose first argument is logged: those of loggers, and `FailureGuard.failed`."""

NOTE = re.compile(r"noqa|type:|pragma", re.IGNORECASE)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and first word of the docstring of each function that has no decorator of SUMMARIES."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in decorators}
            if text and not names & SUMMARIES:
                yield node.body[0].lineno, text.split()[0]


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


def beginning(node: ast.expr) -> str | None:
    """Return the literal text at the beginning of an expression, None if there is none."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return beginning(node.left)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and beginning of each text that is raised, logged or shown by --help."""
    for node in ast.walk(tree):
        shown: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            shown = list(node.exc.args)
        elif isinstance(node, ast.Call):
            shown = [each.value for each in node.keywords if each.arg in ("help", "epilog", "short_help")]
            if isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
                shown += node.args[:1]
        for each in shown:
            text = beginning(each)
            if text is not None:
                yield each.lineno, text


def questions(texts: Iterable[tuple[int, str]]) -> list[str]:
    """Return as "line: text" those of the texts that begin with a question word."""
    found = [(line, text.split("\n")[0]) for line, text in texts if QUESTION.match(text)]
    return [f"{line}: begins with a question word: {first}" for line, first in found]


def violations(source: str) -> list[str]:
    """Return the violations in a file of src or lab as "line: text"."""
    tree = ast.parse(source)
    found = questions([*docstrings(tree), *comments(source), *messages(tree)])
    for line, text in docstrings(tree):
        first = text.split("\n")[0]
        if not first.endswith("."):
            found.append(f"{line}: the first line must be a sentence with a full stop: {first}")
        if len(first.split()) > MOST_WORDS:
            found.append(f"{line}: the first line has more than {MOST_WORDS} words: {first}")
    for line, word in functions(tree):
        if word.strip(",.:;") in NO_VERBS or not word[0].isalpha():
            found.append(f"{line}: a function's docstring begins with an imperative, not with {word}")
    return found


def violations_elsewhere(source: str) -> list[str]:
    """Return the violations in a file of another folder as "line: text"."""
    return questions(docstrings(ast.parse(source)))


def found_in(paths: list[Path], check: Callable[[str], list[str]]) -> list[str]:
    """Return the violations in these files as "path:line: text"."""
    assert len(paths) > 500
    return [f"{path.relative_to(ROOT)}:{each}" for path in paths for each in check(path.read_text())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f():\n    """Whether it is so."""\n', "2: begins with a question word"),
        ('"""What is written here."""\n', "1: begins with a question word"),
        ('class A:\n    """A thing\n    that goes on."""\n', "2: the first line must be a sentence"),
        (f'"""{"word " * 26}."""\n', "1: the first line has more than 25 words"),
        ('def f():\n    """The next one."""\n', "2: a function's docstring begins with an imperative"),
        ('class A:\n    def f(self):\n        """`a` is set."""\n', "3: a function's docstring begins with"),
        ("a = 1  # who reads this\n", "1: begins with a question word"),
        ('raise OSError(f"what {a} wrote is lost")\n', "1: begins with a question word"),
        ('log.error("what was written is lost: %s", a)\n', "1: begins with a question word"),
        ('typer.Option(help="Where to listen.")\n', "1: begins with a question word"),
    ],
)
def test_a_violation_is_found(source: str, expected: str) -> None:
    assert any(found.startswith(expected) for found in violations(source))


def test_a_property_is_described_by_a_noun() -> None:
    assert violations('class A:\n    @property\n    def size(self) -> int:\n        """The size."""\n') == []


def test_plain_text_has_no_violation() -> None:
    source = '"""Return the last stable offset.\n\nWhat follows is free.\n"""\n# a comment\n# where it goes on\na = 1\n'
    assert violations(source) == []


def test_docstrings_comments_and_messages_are_plain() -> None:
    paths = tidy.python_files(*tidy.PACKAGES)
    assert found_in([path for path in paths if path.parent.name != "messages"], violations) == []


@pytest.mark.parametrize("template", ["{}", "class A:\n    {}", "def f():\n    {}", "async def f():\n    {}"])
def test_a_violation_elsewhere_is_found(template: str) -> None:
    (found,) = violations_elsewhere(template.format('"""Whether it is so."""'))
    assert found.endswith(": begins with a question word: Whether it is so.")
    assert violations_elsewhere(template.format('"""The next record"""') + "  # where it goes") == []


def test_docstrings_elsewhere_begin_with_no_question_word() -> None:
    folders = set(tidy.SOURCE_FOLDERS) - set(tidy.PACKAGES)
    assert found_in(tidy.python_files(*folders), violations_elsewhere) == []
