"""Gates on the sources: purity, layers, sizes, honesty.

Every gate is first shown a planted fault, then the repository.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import tidy
from tests.support.tidy import ROOT

# Modules that import each other all the same, and why: the errors name the decision's values in annotations only.
CIRCLES = [["fencepost.spark.errors", "fencepost.spark.sink.decision"]]

# The thin shells: the only modules below src/ that may touch clock, sockets, threads, files and randomness.
# A name with a trailing dot covers the package.
SHELLS = (
    "fencepost.process.",
    "fencepost.config_providers",
    "fencepost.properties",
    "fencepost.broker.embedded_control",
    "fencepost.broker.embedded",
    "fencepost.broker.embedded_thread",
    "fencepost.broker.server",
    "fencepost.broker.disk.sync_threads",
    "fencepost.broker.metrics.endpoint",
    "fencepost.broker.metrics.bounded_http",
    "fencepost.broker.network.asyncio_sockets",
    "fencepost.broker.network.certificates",
    "fencepost.broker.network.listening_sockets",
    "fencepost.broker.network.http_reading",
    "fencepost.broker.network.key_source",
    "fencepost.broker.network.native_sockets",
    "fencepost.broker.network.sockets",
    "fencepost.broker.network.tls_sockets",
    "fencepost.broker.disk.directory_checks",
    "fencepost.broker.disk.system_files",
    "fencepost.client.aio.",
    "fencepost.client.blocking.",
    "fencepost.compat.",
    "fencepost.client.net.asyncio_runtime",
    "fencepost.client.net.io_thread",
    "fencepost.client.net.turn",
    "fencepost.client.aws_msk",
    "fencepost.client.azure_imds",
    "fencepost.client.client_assertions",
    "fencepost.client.kerberos",
    "fencepost.client.oauth",
    "fencepost.protocol.records.engine",
    "fencepost.spark.adoption.batch_rows",
    "fencepost.spark.adoption.move",
    "fencepost.spark.sink.checkpoint",
    "fencepost.spark.sink.local.claim_file",
    "fencepost.spark.java",
    "fencepost.spark.source.batch",
    "fencepost.spark.source.reader",
    "fencepost.spark.source.shared",
    "fencepost.spark.sink.writer",
    "fencepost.spark.sink.foreach",
    "fencepost.spark.sink.runner",
    "fencepost.spark.spark_home",
    "fencepost.spark.worker_python",
    "fencepost.spark.sink.decision_store",
    "fencepost.testing.",
    "fencepost.small_files",
    "fencepost.tls",
    "fencepost.cli.",
    "fencepost_lab.cli.",
    "fencepost_lab.demo.",
    "fencepost_lab.torture.",
    "fencepost_lab.benchmark.",
    "pyspark_fencepost",
)


# Cores among the shells.
CORES = tuple(
    f"fencepost.cli.{name}"
    for name in ("diagnosis.cluster_snapshot", "diagnosis.finding_text", "ui.watch", "ui.documents", "ui.web")
)


def is_shell(module: str) -> bool:
    return module not in CORES and any(
        module == name or (name.endswith(".") and f"{module}.".startswith(name)) for name in SHELLS
    )


def of_a_module(check: Callable[..., list[str]]) -> Callable[[Path, str], list[str]]:
    return lambda path, text: check(text, tidy.module_name(path), is_package=path.name == "__init__.py")


def of_a_text(check: Callable[[str], list[str]]) -> Callable[[Path, str], list[str]]:
    return lambda _path, text: check(text)


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Return the findings of each gate in its files. All look at a file in turn, so that it is parsed once."""
    sources, programs = tidy.python_files(*tidy.PACKAGES), tidy.python_files(*tidy.PACKAGES, "tools")
    everything = tidy.python_files(*tidy.SOURCE_FOLDERS)
    cores = [path for path in sources if not is_shell(tidy.module_name(path))]
    parts = tidy.python_files(*(f"src/fencepost/{part.replace('.', '/')}" for part in tidy.ROOMS))
    gates = {
        "impure": (set(cores), of_a_module(tidy.impurities)),
        "imports up": (set(sources), of_a_module(tidy.upward_imports)),
        "imports between rooms": (set(parts), of_a_module(tidy.imports_between_rooms)),
        "asserts": (set(programs), of_a_text(tidy.assert_statements)),
        "unexplained": (set(programs), of_a_text(tidy.unexplained)),
        "swallows": (set(everything), of_a_text(tidy.swallowed_exceptions)),
        "too long": (set(everything), of_a_text(tidy.too_long)),
    }
    assert min(len(paths) for paths, _ in gates.values()) > 200, "a gate looks at next to nothing"
    findings: dict[str, list[str]] = {gate: [] for gate in gates}
    for path in everything:
        text = path.read_text()
        for gate, (paths, check) in gates.items():
            if path in paths:
                findings[gate] += [f"{path.relative_to(ROOT)}:{finding}" for finding in check(path, text)]
    return findings


# --- the gates can fail ---


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\n", ["1: imports time"]),
        ("def f():\n    from os import path\n", ["2: imports os"]),
        ("import asyncio.subprocess\n", ["1: imports asyncio"]),
        ("from datetime import datetime\nx = datetime.now()\n", ["2: calls datetime.now()"]),
        ("import datetime\nx = datetime.datetime.now()\n", ["2: calls datetime.datetime.now()"]),
        ("from uuid import UUID, uuid4\nx = uuid4()\n", ["2: calls uuid4()"]),
        ("with open('x') as file:\n    y = 1\n", ["1: calls open()"]),
        ("from random import Random, random\n", ["1: imports random.random"]),
        ("import random\nx = random.Random(1)\ny = random.random()\n", ["3: uses random.random"]),
        ("from random import Random\nx = Random()\n", ["2: calls Random() without a seed"]),
        ("from random import Random\ndef f(random: Random):\n    random.uniform(1, 2)\n", []),
        ("from fencepost.broker import timers\nfiles.open('x')\n", []),
    ],
)
def test_impurities_are_found(source: str, expected: list[str]) -> None:
    assert tidy.impurities(source, "fencepost.broker.core") == expected


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("fencepost.protocol.records.batch", "from fencepost.client import aio\n", ["1: protocol imports client"]),
        ("fencepost.client.aio", "from fencepost import broker\n", ["1: client imports broker"]),
        ("fencepost.broker.core", "from ..client.aio import x\n", ["1: broker imports client"]),
        ("fencepost.spark.sink.decision_store", "from fencepost.broker import log\n", ["1: spark imports broker"]),
        ("fencepost.cli.commands", "from fencepost_lab.cli import check\n", ["1: cli imports lab.cli"]),
        ("fencepost_lab.check.world", "from fencepost_lab.torture import x\n", ["1: lab.check imports lab.torture"]),
        ("fencepost_lab.check.world", "from fencepost.spark import sink\n", []),
        ("fencepost.client.aio", "from . import retry\nfrom ..protocol import batch\n", []),
        ("fencepost.extra.x", "import re\n", ["1: extra has no place in the layers of tests/support/tidy.py"]),
    ],
)
def test_upward_imports_are_found(module: str, source: str, expected: list[str]) -> None:
    assert tidy.upward_imports(source, module) == expected


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        (
            "fencepost.client.producer.sender",
            "from fencepost.client.admin import transactions\n",
            ["1: producer imports admin"],
        ),
        (
            "fencepost.client.net.cluster",
            "if TYPE_CHECKING:\n    from fencepost.client.group.member import Member\n",
            ["2: net imports group"],
        ),
        (
            "fencepost.client.types",
            "def f():\n    from fencepost.client.net import retry\n",
            ["2: client imports net"],
        ),
        ("fencepost.client.consumer.core", "from fencepost.client.group.member import Member\n", []),
        ("fencepost.client.consumer.core", "from fencepost.client.types import K\n", []),
        (
            "fencepost.client.extra.x",
            "import re\n",
            ["1: the room client.extra has no place in tests/support/tidy.py"],
        ),
        (
            "fencepost.broker.topics.catalogue",
            "if TYPE_CHECKING:\n    from fencepost.broker.core import BrokerCore\n",
            ["2: topics imports core"],
        ),
        ("fencepost.broker.core", "from fencepost.broker.topics.topic import Topic\n", []),
        ("fencepost.broker.extra", "import re\n", ["1: the room broker.extra has no place in tests/support/tidy.py"]),
        (
            "fencepost.broker.coordinator.runtime",
            "from fencepost.broker.coordinator.txn.model import Result\n",
            ["1: runtime imports txn"],
        ),
        (
            "fencepost.broker.coordinator.group.coordinator",
            "from fencepost.broker.coordinator.txn import model\n",
            ["1: group imports txn"],
        ),
        (
            "fencepost.broker.coordinator.group.coordinator",
            "from fencepost.broker.coordinator.group.driver import Groups\n",
            ["1: group imports group.driver"],
        ),
        (
            "fencepost.broker.coordinator.group.coordinator",
            "from fencepost.broker.coordinator.group.share.group import ShareGroup\n",
            ["1: group imports group.share"],
        ),
        (
            "fencepost.broker.coordinator.group.classic.membership",
            "from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup\n",
            ["1: group.classic imports group.consumer"],
        ),
        (
            "fencepost.broker.coordinator.group.base.kind",
            "from fencepost.broker.coordinator.group.kinds import KINDS\n",
            ["1: group.base imports group.kinds"],
        ),
        ("fencepost.broker.coordinator.group.driver", "from fencepost.broker.coordinator import runtime\n", []),
    ],
)
def test_imports_between_rooms_are_found(module: str, source: str, expected: list[str]) -> None:
    assert tidy.imports_between_rooms(source, module) == expected


def test_circles_are_found() -> None:
    texts = {
        "p.a": "from p import b\n",
        "p.b": "if TYPE_CHECKING:\n    from p.c import X\n",
        "p.c": "def f():\n    from p.a import Y\n",
        "p.d": "from p.a import Y\n",
    }
    assert tidy.circles(texts) == [["p.a", "p.b", "p.c"]]
    assert tidy.circles(texts | {"p.c": "import re\n"}) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("try:\n    x()\nexcept OSError:\n    pass\n", ["3: the exception is swallowed"]),
        ("try:\n    x()\nexcept OSError:\n    ...\n", ["3: the exception is swallowed"]),
        (
            "try:\n    x()\nexcept Exception:\n    y = 1\n",
            ["3: a broad except neither raises nor uses the exception"],
        ),
        ("with suppress(Exception):\n    x()\n", ["1: everything is suppressed"]),
        ("try:\n    x()\nexcept Exception as e:\n    future.set_exception(e)\n", []),
        ("try:\n    x()\nexcept Exception:\n    log.exception('x')\n", []),
        ("try:\n    x()\nexcept KeyError:\n    y = 1\n", []),
    ],
)
def test_swallowed_exceptions_are_found(source: str, expected: list[str]) -> None:
    assert tidy.swallowed_exceptions(source) == expected


def test_sizes_are_measured() -> None:
    function = "def f() -> None:\n" + "    x = 1\n" * 70
    assert tidy.too_long(function) == ["1: 71 lines in f()"]
    assert tidy.too_long(function.replace("    x = 1\n", "", 1)) == []
    assert tidy.too_long("x = 1\n" * 601) == ["1: 601 lines in the file"]
    assert tidy.too_long("x = 1\n" * 600) == []
    assert tidy.too_long('"""Generated by tools/gen_messages.py"""\n' + "x = 1\n" * 601) == []


def test_modules_without_a_word_are_found() -> None:
    assert tidy.unexplained("x = 1\n") == ["1: no module docstring"]
    assert tidy.unexplained('"""What x is."""\nx = 1\n') == tidy.unexplained("") == []


def test_asserts_are_found() -> None:
    assert tidy.assert_statements("def f(x):\n    assert x\n") == ["2: assert"]


def test_banned_words_are_found() -> None:
    machine = "/" + "work/"
    assert tidy.banned_words(f"x\nsee {machine}main".encode()) == [f"2: {machine}"]
    assert tidy.banned_words(f"docs{machine}main".encode()) == []
    scheme = "https:" + "//"
    assert tidy.banned_words(f"{scheme}mirror.internal/simple".encode()) == ["1: host mirror.internal"]
    assert tidy.banned_words(f"{scheme}a:b@mirror.internal/simple".encode()) == ["1: host mirror.internal"]
    assert tidy.banned_words(b"https://kafka.apache.org/documentation") == []
    assert tidy.banned_words(f"{scheme}alice:s3cret@login.example.com".encode()) == []


# --- the repository ---


def test_cores_are_pure(found: dict[str, list[str]]) -> None:
    assert found["impure"] == []


def test_imports_point_down(found: dict[str, list[str]]) -> None:
    assert found["imports up"] == []


def test_rooms_import_from_lower_rooms_only(found: dict[str, list[str]]) -> None:
    assert found["imports between rooms"] == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    paths = [path for path in tidy.python_files(*tidy.PACKAGES) if path.name != "__init__.py"]
    assert len(paths) > 400
    assert tidy.circles({tidy.module_name(path): path.read_text() for path in paths}) == CIRCLES


def test_no_assert_guards_the_product(found: dict[str, list[str]]) -> None:
    assert found["asserts"] == []


def test_no_exception_is_swallowed(found: dict[str, list[str]]) -> None:
    assert found["swallows"] == []


def test_files_and_functions_fit_a_reader(found: dict[str, list[str]]) -> None:
    assert found["too long"] == []


def test_every_module_says_what_it_is_for(found: dict[str, list[str]]) -> None:
    assert found["unexplained"] == []


def test_no_word_of_this_machine() -> None:
    paths = tidy.text_files()
    assert paths
    found = [f"{path.relative_to(ROOT)}:{word}" for path in paths for word in tidy.banned_words(path.read_bytes())]
    assert found == []


def test_the_file_map_names_every_module() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "file_map.py")], capture_output=True, text=True, check=True
    )
    named = re.findall(r"^- `((?:lab/)?src/\S+\.py)` \S", done.stdout, re.MULTILINE)
    messages = ROOT / "src" / "fencepost" / "protocol" / "messages"
    tree = [
        path.relative_to(ROOT).as_posix()
        for path in tidy.python_files(*tidy.PACKAGES)
        if not path.is_relative_to(messages)
        and (path.name != "__init__.py" or ast.parse(path.read_text()).body[1:])  # more than a docstring
    ]
    assert len(tree) > 100
    assert sorted(named) == sorted(tree)
