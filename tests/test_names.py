"""Gate for names: a name says what its value is, and no name is a word that fits every value.

The words are those of CONTRIBUTING. As a whole name they are nowhere; as a part of a name they are in no folder but the
tests, whose functions may be named by a sentence.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.support import tidy
from tests.support.tidy import ROOT

WORDS = frozenset("one place thing told kept made fate tale stranger desk rot".split())
STAY = {
    "Int16OrMinusOne": "-1 is a value of Kafka's protocol",
    "Int32OrMinusOne": "-1 is a value of Kafka's protocol",
    "OrMinusOne": "-1 is a value of Kafka's protocol",
    "_ONE_BYTE": "a number of bytes",
    "_is_in_place": "in place: in its location",
    "_read_in_place": "in place: without a call",
    "connection_made": "a method of asyncio.Protocol",
    "in_place": "in place: without a call",
    "is_kept": "the transaction that KeepPreparedTxn of KIP-939 leaves open",
    "is_one_way": "requests arrive, answers do not",
    "min_one": "at least one batch, Kafka's minOneMessage",
    "one_by_one": "one after the other",
    "seal_in_place": "in place: without a copy",
    "KEPT_PREPARED": "the event of KeepPreparedTxn of KIP-939",
    "ONE_PHASE": "the opposite of two-phase",
}
"""Names of which a word is a part, each with its reason."""


def assigned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of all that gets a name, but not the functions of planted defects, which commands show."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(func=ast.Name(id="plant")), *_]):
                continue
            case ast.Name(id=text, ctx=ast.Store()) | ast.Attribute(attr=text, ctx=ast.Store()) | ast.arg(arg=text):
                yield node.lineno, text
            case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
                yield node.lineno, text
            case ast.ExceptHandler(name=str(text)) | ast.MatchAs(name=str(text)) | ast.MatchStar(name=str(text)):
                yield node.lineno, text
            case ast.alias(asname=str(text)):
                yield node.lineno, text


@functools.cache
def assigned_in(folder: str) -> list[tuple[str, int, str]]:
    """Return path, line and name of all that gets a name in a folder, without generated modules."""
    return [
        (str(path.relative_to(ROOT)), line, name)
        for path in tidy.python_files(folder)
        if path.parent.name != "messages"
        for line, name in assigned(ast.parse(path.read_text()))
    ]


def is_whole(name: str) -> bool:
    """Return true if the name, without underscores at its ends, is such a word."""
    return name.strip("_").lower() in WORDS


def has_part(name: str) -> bool:
    """Return true if such a word is a part of the name, between underscores or capitals."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return name not in STAY and any(part.lower() in WORDS for part in parts)


def is_refused(name: str, *, parts: bool) -> bool:
    """Return true if the name breaks the rule for whole names, or with `parts` that for parts of names."""
    return is_whole(name) or (parts and has_part(name))


def violations(source: str, *, parts: bool) -> list[str]:
    """Return the names of a source that break the rule, as "line: name"."""
    return [f"{line}: {name}" for line, name in assigned(ast.parse(source)) if is_refused(name, parts=parts)]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("made = f()\n", "made"),
        ("for one in range(3):\n    pass\n", "one"),
        ("a = [one for one in b]\n", "one"),
        ("a = lambda told: told\n", "told"),
        ("def f(*, kept: int) -> None: ...\n", "kept"),
        ("async def _place() -> None: ...\n", "_place"),
        ("class Stranger: ...\n", "Stranger"),
        ("KEPT: int = 2\n", "KEPT"),
        ("self._told, a = 1, 2\n", "_told"),
        ("with f() as thing:\n    pass\n", "thing"),
        ("try:\n    pass\nexcept OSError as one:\n    pass\n", "one"),
        ("match a:\n    case [one]:\n        pass\n", "one"),
        ("import fate as tale\n", "tale"),
        ("if (one := f()):\n    pass\n", "one"),
        ("@fixture\ndef made(): ...\n", "made"),
    ],
)
def test_a_word_as_a_name_is_found(source: str, name: str) -> None:
    for parts in (True, False):
        (found,) = violations(source, parts=parts)
        assert found.endswith(f": {name}")


@pytest.mark.parametrize("name", ["records_kept", "_until_made", "NAMES_TOLD", "_OneLine", "next_one"])
def test_a_word_in_a_name_is_found(name: str) -> None:
    assert violations(f"{name} = 1\n", parts=True) == [f"1: {name}"]
    assert violations(f"{name} = 1\n", parts=False) == []


def test_other_names_pass() -> None:
    source = 'nones, placed, options = f(made=1).kept\n@plant("clients")\ndef offsets_kept(): ...\nseal_in_place = 1\n'
    assert violations(source, parts=True) == []


@pytest.mark.parametrize("folder", tidy.SOURCE_FOLDERS)
def test_names_say_what_their_values_are(folder: str) -> None:
    names = assigned_in(folder)
    assert names
    parts = folder != "tests"
    assert [f"{path}:{line}: {name}" for path, line, name in names if is_refused(name, parts=parts)] == []


def test_every_name_that_stays_is_in_use() -> None:
    names = {name for folder in tidy.SOURCE_FOLDERS if folder != "tests" for _, _, name in assigned_in(folder)}
    assert sorted(STAY.keys() - names) == []
