"""Gates on the group kinds: a kind is one folder and one row in a table, and no other module knows it by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fencepost.broker.coordinator.group.kinds import KINDS
from tests.support import tidy
from tests.support.tidy import ROOT

GROUP = "fencepost.broker.coordinator.group"
NAMES = [kind.name for kind in KINDS]
_WORD = re.compile(
    rf"(?i:(?:^|_)(?:{'|'.join(NAMES)})(?:_|$))|(?:{'|'.join(name.title() for name in NAMES)})(?=[A-Z]|$)"
)
# Kafka's names of the topic and of the members' protocol. They are the same for all kinds.
OF_KAFKA = {"CONSUMER_OFFSETS", "consumer_protocol", "consumer_group_log"}


def own_kind(module: str) -> str:
    """Return the kind in whose folder a module is, or ""."""
    steps = module.removeprefix(f"{GROUP}.").split(".")
    return steps[0] if module.startswith(f"{GROUP}.") and steps[0] in NAMES else ""


def imported_kinds(text: str, module: str) -> set[str]:
    """Return the kinds whose folders a module imports from."""
    return {own_kind(name) for _, name in tidy.imported_modules(text, module, is_package=False)} - {""}


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names and short texts of a module, except for docstrings and comments."""
    for node in tidy.nodes(text):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, ast.arg):
            yield line, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield line, node.name
        elif isinstance(node, ast.ImportFrom):
            yield from ((line, step) for step in (node.module or "").split("."))
            yield from ((line, name.name) for name in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield from ((line, step) for step in node.value.split("."))


def named_kinds(text: str) -> list[str]:
    """Return the kinds that a module names, with the lines."""
    found = ((line, word) for line, word in _words(text) if word not in OF_KAFKA)
    return sorted({f"{line}: {word}" for line, word in found if _WORD.search(word)})


def test_a_named_kind_is_found() -> None:
    source = '"""About the share kind."""\nif x.kind == "streams":\n    classic_groups = find(ShareGroups)\n'
    assert named_kinds(source) == ["2: streams", "3: ShareGroups", "3: classic_groups"]
    assert named_kinds('y = settings.number("group.consumer.max.size")\n') == ["1: consumer"]
    assert named_kinds("from fencepost.broker.topics.internal import CONSUMER_OFFSETS\nshared = 1\n") == []


def test_imported_kinds_are_found() -> None:
    source = f"from {GROUP}.share.group import ShareGroup\nfrom {GROUP}.base.kind import GroupKind\n"
    assert imported_kinds(source, "fencepost.broker.core") == {"share"}


def test_the_coordinator_names_no_kind() -> None:
    paths = tidy.python_files("src/fencepost/broker/coordinator")
    outside = [path for path in paths if not own_kind(tidy.module_name(path)) and path.name != "kinds.py"]
    assert len(outside) > 25
    found = [f"{path.relative_to(ROOT)}:{kind}" for path in outside for kind in named_kinds(path.read_text())]
    assert found == []


def test_a_module_knows_one_kind() -> None:
    """An API of a kind knows this kind. Only the table knows all, and the consumer kind its predecessor."""
    several = {}
    for path in tidy.python_files("src"):
        module = tidy.module_name(path)
        kinds = imported_kinds(path.read_text(), module) | {own_kind(module)} - {""}
        if len(kinds) > 1:
            several[module.removeprefix(f"{GROUP}.")] = kinds
    assert several == {"kinds": set(NAMES), "consumer.membership": {"classic", "consumer"}}


def test_each_kind_is_one_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "src/fencepost/broker/coordinator/group").glob("*/membership.py")}
    assert folders == set(NAMES)
    assert all(kind.__module__.startswith(f"{GROUP}.{kind.name}.") for kind in KINDS)
    numbers = [key for kind in KINDS for key in kind.log.keys]
    assert len(numbers) == len(set(numbers))
