"""Print the file map: each module of src and lab/src with the first sentence of its docstring.

Tests, tools and the like are one line each, kept here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = (ROOT / "src", ROOT / "lab" / "src")
GENERATED = "src/fencepost/protocol/messages/"
ELSEWHERE = (
    ("tests/unit/", "one module or package at a time, with a virtual clock, no sockets"),
    ("tests/property/", "random inputs and histories against models"),
    ("tests/golden/", "bytes captured from Apache Kafka and its clients"),
    ("tests/conformance/", "one body, two arms: our broker and an Apache Kafka"),
    ("tests/compat/", "other people's clients against our broker"),
    ("tests/sim/", "the simulated world: seeds, replays, planted defects"),
    ("tests/spark/", "PySpark with real processes, killed at the steps of the protocol"),
    ("tests/support/", "the Apache Kafka fixture, raw clients, gates"),
    ("bench/", "benchmarks, side by side with the peer"),
    ("tools/", "generators and set-up"),
)


def summary(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[^.])\.(?:\s|$)", first, maxsplit=1)[0].rstrip(".")


def has_code(path: Path) -> bool:
    """Return true if the file contains more than its docstring."""
    return bool(ast.parse(path.read_text()).body[1:])


def _modules() -> Iterator[tuple[Path, Path]]:
    for root in PACKAGES:
        for path in sorted(root.rglob("*.py"), key=lambda found: (found.parent, found.name)):
            yield root, path


def render() -> str:
    """The whole map, a line for each module."""
    lines: list[str] = []
    folder = ""
    for root, path in _modules():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(GENERATED) or (path.name == "__init__.py" and not has_code(path)):
            continue
        if (here := path.parent.relative_to(root).as_posix()) != folder:
            folder = here
            lines += ["", f"**{folder.replace('/', '.')}**", ""]
            if folder == "fencepost/protocol":
                lines.append(f"- `{GENERATED}` one typed class per message, written by tools/gen_messages.py")
        lines.append(f"- `{name}` {summary(path)}")
    lines += ["", "**elsewhere**", ""]
    lines += [f"- `{name}` {what}" for name, what in ELSEWHERE if (ROOT / name).is_dir()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).lstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
