"""Gates on the shape of the house: files in a folder, files that grow, names that are defined twice.

Every gate is first shown a planted fault, then the repository. What stands in a table here may shrink and not grow.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support import tidy
from tests.support.tidy import ROOT

MOST_FILES = 20
MORE_FILES = {
    "src/fencepost/protocol/messages": 70,  # generated, one module per API
    "src/fencepost/client/net": 21,
    "src/fencepost/client/producer": 21,
}
MANY_LINES = 420  # of code: docstrings, comments and empty lines do not count
MORE_LINES = {
    "src/fencepost/broker/log/partition.py": 475,
    "src/fencepost/broker/settings/table.py": 509,
    "src/fencepost/client/consumer/core.py": 427,
    "src/fencepost/client/producer/transactions.py": 482,
}
# Folders that import each other. A face gathers names from everywhere, a folder is put together of those within it.
BOTH_WAYS = [
    ". and broker",
    ". and cli",
    ". and client",
    ". and client/aio",
    ". and client/blocking",
    "broker and broker/api",
    "broker and broker/network",
    "broker/log and broker/log/cleaning",
    "broker/log and broker/log/producers",
    "lab/check and lab/check/actors",
    "protocol and protocol/messages",
    "spark and spark/sink",
    "spark and spark/source",
    "spark/sink and spark/sink/local",
]

COMPAT = ROOT / "src" / "fencepost" / "compat"


def grown(measured: dict[str, int], most: int, exceptions: dict[str, int]) -> list[str]:
    """Return the names above ``most`` or above their row of exceptions, and the rows that are not needed."""
    return [
        *(
            f"{name}: {count} of at most {exceptions.get(name, most)}"
            for name, count in sorted(measured.items())
            if count > exceptions.get(name, most)
        ),
        *(f"{name}: its row is not needed" for name in sorted(exceptions) if measured.get(name, 0) <= most),
    ]


def code_lines(text: str) -> int:
    """Return the number of lines that are not empty and not part of a docstring or comment."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return sum(bool(line) and not line.startswith("#") and number not in documented for number, line in lines)


@functools.cache
def aliases(text: str) -> list[str]:
    """The types that a module gives a name: ``Buffer = bytes | memoryview``."""
    return [
        f"{statement.targets[0].id} = {ast.unparse(statement.value)}"
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id.isidentifier()
        and not statement.targets[0].id.isupper()
        and isinstance(statement.value, ast.BinOp | ast.Subscript)
    ]


def defined_twice(sources: Iterable[tuple[str, str]]) -> list[str]:
    """Aliases that several of the (name, text) modules define, with the modules."""
    modules = defaultdict(list)
    for name, text in sources:
        for alias in aliases(text):
            modules[alias].append(name)
    return [f"{alias} in {', '.join(found)}" for alias, found in sorted(modules.items()) if len(found) > 1]


def classes_defined_twice(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the class names that several of the (name, text) modules define at their top level, with the modules."""
    modules = defaultdict(list)
    for name, text in sources:
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.ClassDef):
                modules[statement.name].append(name)
    return {name: found for name, found in sorted(modules.items()) if len(found) > 1}


def both_ways(arrows: Iterable[tuple[str, str]]) -> list[str]:
    """The pairs of places with arrows, from (importing) to (imported), in both directions."""
    all_arrows = set(arrows)
    return sorted(f"{here} and {there}" for here, there in all_arrows if here < there and (there, here) in all_arrows)


def folder_arrows() -> Iterator[tuple[str, str]]:
    """(importing, imported) folder of every import within a package, those for types only as well."""
    packages = {ROOT / "src" / "fencepost": "", ROOT / "lab" / "src" / "fencepost_lab": "lab/"}
    for package, prefix in packages.items():
        paths = tidy.python_files(in_the_project(package))
        folders = {tidy.module_name(path): prefix + path.parent.relative_to(package).as_posix() for path in paths}
        for path in paths:
            module = tidy.module_name(path)
            is_package = path.name == "__init__.py"
            for _, name in tidy.imported_modules(path.read_text(), module, is_package=is_package):
                if name in folders and folders[name] != folders[module]:
                    yield folders[module], folders[name]


def in_the_project(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_growth_is_found() -> None:
    assert grown({"a": 20, "b": 21, "c": 30}, 20, {"c": 30}) == ["b: 21 of at most 20"]
    assert grown({"c": 31}, 20, {"c": 30}) == ["c: 31 of at most 30"]
    assert grown({"c": 20}, 20, {"c": 30, "d": 30}) == ["c: its row is not needed", "d: its row is not needed"]


def test_a_second_definition_is_found() -> None:
    module = "Buffer = bytes | memoryview\nLIMIT = 1 | 2\n"
    assert defined_twice([("a", module), ("b", module)]) == ["Buffer = bytes | memoryview in a, b"]
    assert defined_twice([("a", "Pair = tuple[int, int]\n"), ("b", "Pair = tuple[int, str]\n")]) == []


def test_folders_can_be_taken_in() -> None:
    counted = Counter(in_the_project(path.parent) for path in tidy.python_files(*tidy.PACKAGES))
    assert len(counted) > 20
    assert grown(counted, MOST_FILES, MORE_FILES) == []


def test_lines_of_code_are_counted() -> None:
    text = (
        '"""Doc.\n\nMore.\n"""\n\na = 1  # one\n# a comment\nb = """text\nin a value"""\n\n\ndef f():\n    """Doc."""\n'
    )
    assert code_lines(text) == 4


def test_long_files_do_not_grow() -> None:
    lines = {
        in_the_project(path): code_lines(path.read_text())
        for path in tidy.python_files(*tidy.PACKAGES)
        if path.parent.name != "messages"
    }
    assert len(lines) > 200
    assert grown(lines, MANY_LINES, MORE_LINES) == []


def test_a_way_back_is_found() -> None:
    assert both_ways([("a", "b"), ("b", "c"), ("c", "b"), ("a", "b")]) == ["b and c"]


def test_folders_that_import_each_other_become_fewer() -> None:
    arrows = set(folder_arrows())
    assert len(arrows) > 200
    assert both_ways(arrows) == BOTH_WAYS


def test_a_type_gets_its_name_once() -> None:
    sources = [(in_the_project(path), path.read_text()) for path in tidy.python_files(*tidy.PACKAGES)]
    assert sum(len(aliases(text)) for _, text in sources) > 20
    assert defined_twice(sources) == []


def test_a_class_name_of_two_modules_is_found() -> None:
    first, second = "class A: ...\nclass B: ...\n", "class A: ...\nclass C:\n    class B: ...\n"
    assert classes_defined_twice([("one.py", first), ("other.py", second)]) == {"A": ["one.py", "other.py"]}


def test_a_class_name_means_one_thing() -> None:
    """Generated messages are named by Kafka, and the classes in compat by other clients: these are excluded."""
    paths = [path for path in tidy.python_files(*tidy.PACKAGES) if path.parent.name != "messages"]
    texts = [(in_the_project(path), path.read_text()) for path in paths if not path.is_relative_to(COMPAT)]
    assert len(texts) > 400
    assert classes_defined_twice(texts) == {}
