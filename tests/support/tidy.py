"""The checks of tests/test_tidy.py: functions from source text to findings, so that each can be shown to fail."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("src", "lab/src")
SOURCE_FOLDERS = (*PACKAGES, "tests", "tools", "bench", "examples")
TEXT_FOLDERS = ("src", "lab", "tests", "tools", "bench", "examples", "docs", ".ci")
LINES_IN_A_FILE = 600
LINES_IN_A_FUNCTION = 70

# Modules of the operating system's side of the world. A pure core imports none of them.
IMPURE_MODULES = frozenset(
    "asyncio socket time os threading multiprocessing subprocess selectors select signal queue secrets "
    "tempfile shutil glob uvloop concurrent".split()
)
IMPURE_CALLS = frozenset(
    {"datetime.now", "datetime.utcnow", "date.today", "uuid4", "uuid1", "uuid.uuid4", "uuid.uuid1"}
)

# Randomness may be handed in as a seeded random.Random; drawing from the module's own generator may not happen.
SEEDED_RANDOM = "Random"

# Who may import whom, by the first package below fencepost, or "lab." and the first below fencepost_lab. An import only
# points down, so the product knows nothing of the laboratory.
BELOW: dict[str, frozenset[str]] = {
    "protocol": frozenset({"values"}),
    "process": frozenset(),
    "on_first_use": frozenset({"extras"}),
    "states": frozenset(),
    "values": frozenset(),
    "counted": frozenset(),
    "foreign_settings": frozenset(),
    "tls": frozenset(),
    "properties": frozenset({"small_files"}),
    "small_files": frozenset(),
    "jaas": frozenset(),
    "errors": frozenset({"protocol"}),
    "arguments": frozenset({"errors", "protocol"}),
    "topic_partition": frozenset({"arguments"}),
    "extras": frozenset({"errors"}),
    "config_providers": frozenset({"errors", "properties", "small_files"}),
    "setting": frozenset({"arguments", "errors"}),
    "sasl_settings": frozenset({"errors", "jaas"}),
    "common_config": frozenset(
        {"arguments", "config_providers", "errors", "foreign_settings", "protocol", "sasl_settings", "setting"}
    ),
    "config": frozenset({"arguments", "common_config", "errors", "foreign_settings", "protocol", "setting"}),
    "broker": frozenset(
        {
            "arguments",
            "config",
            "counted",
            "errors",
            "jaas",
            "process",
            "protocol",
            "small_files",
            "states",
            "tls",
            "topic_partition",
            "values",
        }
    ),
    "client": frozenset(
        {
            "arguments",
            "config",
            "counted",
            "errors",
            "extras",
            "sasl_settings",
            "on_first_use",
            "process",
            "protocol",
            "small_files",
            "states",
            "tls",
            "topic_partition",
            "values",
        }
    ),
    "schemas": frozenset({"client", "errors"}),
    "compat": frozenset(
        {
            "arguments",
            "client",
            "common_config",
            "config",
            "counted",
            "errors",
            "extras",
            "process",
            "protocol",
            "setting",
        }
    ),
    "spark": frozenset(
        {
            "arguments",
            "schemas",
            "client",
            "config",
            "config_providers",
            "counted",
            "errors",
            "extras",
            "common_config",
            "on_first_use",
            "process",
            "protocol",
            "setting",
            "small_files",
            "values",
        }
    ),
    "testing": frozenset({"arguments", "client", "broker", "config", "errors", "protocol"}),
    "cli": frozenset(
        {
            "arguments",
            "testing",
            "spark",
            "client",
            "broker",
            "config",
            "errors",
            "extras",
            "common_config",
            "counted",
            "process",
            "properties",
            "protocol",
            "schemas",
            "small_files",
        }
    ),
    "lab.check": frozenset({"spark", "client", "broker", "config", "counted", "errors", "protocol"}),
    "lab.torture": frozenset(
        {"lab.check", "client", "config", "config_providers", "errors", "protocol", "small_files"}
    ),
    "lab.benchmark": frozenset({"lab.torture", "client", "config", "counted", "errors"}),
    "lab.demo": frozenset(
        {"lab.torture", "lab.check", "spark", "client", "broker", "config", "counted", "errors", "protocol"}
    ),
    "lab.cli": frozenset(
        {
            "lab.check",
            "lab.torture",
            "lab.benchmark",
            "lab.demo",
            "arguments",
            "cli",
            "spark",
            "client",
            "broker",
            "config",
            "counted",
            "errors",
            "extras",
            "protocol",
            "small_files",
        }
    ),
}


def _storeys(*storeys: str) -> dict[str, frozenset[str]]:
    """Rooms from the ground up, by storeys: each may import from all storeys below its own."""
    below: dict[str, frozenset[str]] = {}
    for storey in storeys:
        below |= dict.fromkeys(storey.split(), frozenset(below))
    return below


# The rooms of a part: its folders, and which of them each may import from, besides itself. "" is what lies in the
# part's own folder and is shared by all; a module of that folder can be a room of its own.
ROOMS: dict[str, dict[str, frozenset[str]]] = {
    "client": {
        "": frozenset(),
        "net": frozenset({""}),
        "telemetry": frozenset({"", "net"}),
        "group": frozenset({"", "net"}),
        "consumer": frozenset({"", "net", "group", "telemetry"}),
        "share": frozenset({"", "net", "group", "telemetry"}),
        "producer": frozenset({"", "net", "telemetry"}),
        "admin": frozenset({"", "net", "group", "telemetry"}),
        "diagnosis": frozenset({"", "net", "admin"}),
        "aio": frozenset({"", "net", "group", "consumer", "share", "producer", "admin"}),
        "blocking": frozenset({"", "net", "group", "consumer", "share", "producer", "admin"}),
    },
    "broker": _storeys(
        "disk metrics timing",
        "clock_watch effects faults log settings",
        "security topics",
        "client_instances coordinator fetch_sessions throttling",
        "share",
        "parts",
        "connection",
        "api",
        "topic_gauges",
        "core gauges",
        "network",
        "server",
        "embedded_control embedded_thread",
        "embedded",
    ),
    # The runtime and the coordinators do not know each other. The drivers connect them. A group kind imports what all
    # kinds share. Only the consumer kind imports another one, because its groups can become classic ones.
    "broker.coordinator": _storeys(
        "corruption_guard",
        "runtime group.base txn",
        "group.classic group.share group.streams",
        "group.consumer",
        "group.kinds",
        "group",
        "txn.snapshot_files",
        "group.driver txn.driver",
    ),
}

ROOMS["broker.coordinator"] |= {
    "group.share": frozenset({"group.base"}),
    "group.streams": frozenset({"group.base"}),
    "group.consumer": frozenset({"group.base", "group.classic"}),
    "group": frozenset({"group.base", "group.kinds"}),
}

# The only hosts that texts may name, so that no mirror or private registry slips in.
PUBLIC_HOSTS = frozenset(
    "127.0.0.1 169.254.169.254 localhost maven.apache.org kafka.apache.org cwiki.apache.org spark.apache.org "
    "www.apache.org issues.apache.org github.com docs.astral.sh keepachangelog.com semver.org docs.python.org "
    "peps.python.org jepsen.io docs.pytest.org www.w3.org".split()
)

# Paths of somebody's machine. Put together here, so that this line is not found by its own search.
MACHINE_PATHS = tuple("/" + name + "/" for name in ("work", "root", "home", "Users"))


def python_files(*folders: str) -> list[Path]:
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts
    )


def text_files() -> list[Path]:
    """Everything that a reader of the repository may read, binary captures included."""
    top = [path for path in ROOT.iterdir() if path.is_file() and path.name not in {".git", ".venv.lock"}]
    below = [path for folder in TEXT_FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in top + below if "__pycache__" not in path.parts and path.suffix != ".pyc")


def is_generated(text: str) -> bool:
    """The head line says so."""
    return "Generated by tools/" in text.partition("\n")[0]


def module_name(path: Path) -> str:
    (root,) = [ROOT / folder for folder in PACKAGES if path.is_relative_to(ROOT / folder)]
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.lru_cache(maxsize=1)
def nodes(text: str) -> tuple[ast.AST, ...]:
    """Everything in a file, the module first. The last file is kept, for one check after the other to look at."""
    return tuple(ast.walk(ast.parse(text)))


@functools.cache
def imported_modules(text: str, module: str, *, is_package: bool) -> tuple[tuple[int, str], ...]:
    """(line, full dotted name) of every import anywhere in the file, relative ones resolved."""
    return tuple(_imported_modules(text, module, is_package=is_package))


def _imported_modules(text: str, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    for node in nodes(text):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, base] if base else package)
            yield node.lineno, base
            for name in node.names:
                yield node.lineno, f"{base}.{name.name}"


def impurities(text: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports of, and calls to, the outside world."""
    found = {
        f"{line}: imports {name.split('.')[0]}"
        for line, name in imported_modules(text, module, is_package=is_package)
        if name.split(".")[0] in IMPURE_MODULES
    }
    whole_random_module = any(
        isinstance(node, ast.Import) and any(name.name == "random" for name in node.names) for node in nodes(text)
    )
    for node in nodes(text):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            found |= {
                f"{node.lineno}: imports random.{alias.name}" for alias in node.names if alias.name != SEEDED_RANDOM
            }
        elif isinstance(node, ast.Attribute) and whole_random_module and ast.unparse(node.value) == "random":
            if node.attr != SEEDED_RANDOM:
                found.add(f"{node.lineno}: uses random.{node.attr}")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if not node.args and called in {"Random", "random.Random"}:
                found.add(f"{node.lineno}: calls Random() without a seed")
            elif called in IMPURE_CALLS or called.removeprefix("datetime.") in IMPURE_CALLS or called == "open":
                found.add(f"{node.lineno}: calls {called}()")
    return sorted(found)


def _part(module: str) -> str:
    """Return the part of the product, or of the laboratory, to which a module belongs."""
    package, _, rest = module.partition(".")
    own = rest.partition(".")[0]
    return {"fencepost": own, "fencepost_lab": f"lab.{own}"}.get(package, "")


def upward_imports(text: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports between fencepost's parts that do not point down."""
    if "." not in module and module != "pyspark_fencepost":
        return []  # the public face gathers names from everywhere
    own = (
        "cli"
        if module.split(".", maxsplit=1)[0] == "pyspark_fencepost" or module == "fencepost.__main__"
        else _part(module)
    )
    if own not in BELOW:
        return [f"1: {own} has no place in the layers of tests/support/tidy.py"]
    found = set()
    for line, name in imported_modules(text, module, is_package=is_package):
        imported = _part(name)
        if imported in BELOW and imported != own and imported not in BELOW[own]:
            found.add(f"{line}: {own} imports {imported}")
    return sorted(found)


def _room(part: str, steps: list[str]) -> str:
    """The innermost room in `part` of what lies in it at `steps`."""
    prefixes = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    return next((prefix for prefix in prefixes if prefix in ROOMS[part]), "")


def imports_between_rooms(text: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports within a part from a room that is not below; those for types only count as well."""
    found = set()
    for part, rooms in ROOMS.items():
        home = f"fencepost.{part}."
        if not f"{module}.".startswith(home):
            continue
        steps = module.removeprefix(home).split(".") if module.startswith(home) else []
        own = _room(part, steps)
        if own == "" and (len(steps) > 1 or (steps and "" not in rooms)):
            return [f"1: the room {part}.{steps[0]} has no place in tests/support/tidy.py"]
        for line, name in imported_modules(text, module, is_package=is_package):
            target = _room(part, name.removeprefix(home).split(".")) if name.startswith(home) else own
            if target not in rooms.get(own, frozenset()) | {own}:
                found.add(f"{line}: {own or part} imports {target}")
    return sorted(found)


def circles(texts: dict[str, str]) -> list[list[str]]:
    """Modules that import each other, directly or around corners; for types only, or in a function, counts as well."""
    imported = {
        module: {name for _, name in imported_modules(text, module, is_package=False) if name in texts} - {module}
        for module, text in texts.items()
    }
    reached: dict[str, set[str]] = {}
    for module in texts:
        seen: set[str] = set()
        ahead = list(imported[module])
        while ahead:
            if (name := ahead.pop()) not in seen:
                seen.add(name)
                ahead += imported[name]
        reached[module] = seen
    found = {
        tuple(sorted(other for other in seen if module in reached[other]))
        for module, seen in reached.items()
        if module in seen
    }
    return [list(circle) for circle in sorted(found)]


def unexplained(text: str) -> list[str]:
    """A module that does not say what it is for; one without a statement need not."""
    (module,) = [node for node in nodes(text) if isinstance(node, ast.Module)]
    return ["1: no module docstring"] if module.body and ast.get_docstring(module) is None else []


def assert_statements(text: str) -> list[str]:
    """`python -O` removes them, so they guard nothing."""
    return [f"{node.lineno}: assert" for node in nodes(text) if isinstance(node, ast.Assert)]


def swallowed_exceptions(text: str) -> list[str]:
    """Handlers that do nothing, and broad ones that neither raise nor use what they caught."""
    found = []
    for node in nodes(text):
        if isinstance(node, ast.ExceptHandler):
            if all(isinstance(step, ast.Pass) or _is_constant(step) for step in node.body):
                found.append(f"{node.lineno}: the exception is swallowed")
            elif _is_broad(node.type) and not _raises_or_uses(node):
                found.append(f"{node.lineno}: a broad except neither raises nor uses the exception")
        elif isinstance(node, ast.Call) and _suppresses_everything(node):
            found.append(f"{node.lineno}: everything is suppressed")
    return found


def _suppresses_everything(call: ast.Call) -> bool:
    last = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return last == "suppress" and any(_is_broad(argument) for argument in call.args)


def _is_constant(step: ast.stmt) -> bool:
    return isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)


def _is_broad(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(ast.unparse(name) in {"Exception", "BaseException"} for name in names)


def _raises_or_uses(handler: ast.ExceptHandler) -> bool:
    inside = [node for step in handler.body for node in ast.walk(step)]
    uses = any(isinstance(node, ast.Name) and node.id == handler.name for node in inside)
    logs = any(isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".exception") for node in inside)
    return uses or logs or any(isinstance(node, ast.Raise) for node in inside)


def too_long(text: str) -> list[str]:
    """Files and functions that outgrow a reader."""
    if is_generated(text):
        return []
    found = []
    lines = text.count("\n")
    if lines > LINES_IN_A_FILE:
        found.append(f"1: {lines} lines in the file")
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LINES_IN_A_FUNCTION:
                found.append(f"{node.lineno}: {length} lines in {node.name}()")
    return found


def banned_words(data: bytes) -> list[str]:
    """Paths of a machine and hosts that are not public ones."""
    text = data.decode("utf-8", errors="replace")
    found = [f"{_line(text, position)}: {path}" for path in MACHINE_PATHS for position in _positions(text, path)]
    for match in re.finditer(r"https?://(?:[^/@\s\"']*@)?([A-Za-z0-9.-]+)", text):
        host = match.group(1).rstrip(".")
        if host not in PUBLIC_HOSTS and not host.endswith((".example", "example.com", "example.org")):
            found.append(f"{_line(text, match.start())}: host {host}")
    return found


def _positions(text: str, path: str) -> Iterator[int]:
    # Only where a path begins: "src/home/x" is not one of a machine.
    yield from (match.start() for match in re.finditer(rf"(?<![\w./-]){re.escape(path)}", text))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
