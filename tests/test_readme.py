"""Run the commands of each page, README, docs/ and CONTRIBUTING, in a clean copy of the project, in order.

INDEX says how each command is tried. A command that is not in it fails, so that none is added untried.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.session import jvm_options
from tests.support.readme import ROOT, ConsoleBlock, clean_copy, console_blocks

RUN = "run"  # to its end; it has to succeed, and to print what README shows (numbers and "..." may differ)
SERVE = "serve"  # until it says that it listens, then SIGTERM; it has to end with 0
DRY_RUN = "dry run"  # `make -n`: it would start this very test run, or runs for many minutes
ELSEWHERE = "elsewhere"  # needs the network or root; what it leads to is covered by the test named here

FROM_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "ARGS")
INDEX: tuple[tuple[str, str, str], ...] = (
    (r"make (test|bench|lint)( .*)?", DRY_RUN, ""),
    (r"make (venv|run)( .*)?", RUN, ""),
    (r"git clone .*", ELSEWHERE, "clean_copy below"),
    (r"cd \S+", ELSEWHERE, "clean_copy below"),
    (r"(docker|install|systemctl|python3 -m venv|/opt/fencepost/bin/pip) .*", ELSEWHERE, "test_deploy.py"),
    (r"kafka-client-metrics\.sh .*", ELSEWHERE, "tests/compat/test_kafka_tools.py"),
    (r"(pip|uv pip) install .*", ELSEWHERE, "tools/make_venv.sh, which every run starts with"),
    (r"(\.venv/bin/)?fencepost (broker|ui)\b.*", SERVE, ""),
    (r"((echo|printf) '[^']*' \| )?(\.venv/bin/)?fencepost .*", RUN, ""),
    (r"(\.venv/bin/)?python (-m )?\S+.*", RUN, ""),
)


@dataclass
class Copy:
    folder: Path
    served: list[subprocess.Popen[bytes]]

    @property
    def environ(self) -> dict[str, str]:
        return {
            # A make inside of a make takes its ARGS and options from these.
            **{name: value for name, value in os.environ.items() if name not in FROM_MAKE},
            "PATH": f"{self.folder}/.venv/bin:{os.environ['PATH']}",
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "SPARK_SUBMIT_OPTS": jvm_options(),
        }


def how(command: str) -> str | None:
    return next((way for pattern, way, _where in INDEX if re.fullmatch(pattern, command)), None)


def pages() -> dict[str, list[ConsoleBlock]]:
    """Return the blocks of README.md, docs/ and CONTRIBUTING.md, by page.

    test_docs_tutorial.py runs the tutorial, whose commands need its programs.
    """
    documents = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "tutorial.md"]
    paths = [ROOT / "README.md", *documents, ROOT / "CONTRIBUTING.md"]
    found = {path.name: console_blocks(path.read_text()) for path in paths}
    return {name: blocks for name, blocks in found.items() if blocks}


def test_a_console_block_is_read() -> None:
    text = "a\n```console\n$ make run  # the demo\nhello\n$ fencepost \\\n  topics\n```\n```python\n$ no\n```\n"
    (block,) = console_blocks(text)
    assert block == ConsoleBlock(2, (("make run", ("hello",)), ("fencepost topics", ())))


def test_every_command_has_its_place_in_the_index() -> None:
    found = [command for blocks in pages().values() for block in blocks for command, _ in block.commands]
    assert len(found) > 40
    assert [command for command in found if how(command) is None] == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(clean_copy(tmp_path_factory.mktemp("readme") / "fencepost"), [])


@pytest.fixture
def serving(copy: Copy) -> Iterator[Copy]:
    """Stop the processes of a page at its end: no page needs the brokers of another page."""
    yield copy
    for process in copy.served:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(120) for process in copy.served] == [0] * len(copy.served)
    copy.served.clear()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", pages())
def test_the_commands_of_a_page(page: str, serving: Copy) -> None:
    for block in pages()[page]:
        assert block.commands, f"{page}:{block.line}: a console block without a command"
        for command, output in block.commands:
            follow(command, output, serving)


def follow(command: str, output: tuple[str, ...], copy: Copy) -> None:
    match how(command):
        case "run":
            run_to_its_end(command, output, copy)
        case "serve":
            serve(command, copy)
        case "dry run":
            subprocess.run(["make", "-n", *command.split()[1:]], cwd=copy.folder, check=True, capture_output=True)
        case "elsewhere":
            return
        case _:
            pytest.fail(f"{command!r} is not in INDEX")


def run_to_its_end(command: str, output: tuple[str, ...], copy: Copy) -> None:
    # A session of its own, so that an interrupted or late command can be ended with what it has started there. Ctrl-C
    # comes first: the demo runs its broker in another session, and ends it only when it is asked to end.
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=copy.folder,
        env=copy.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=900)
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    assert process.returncode == 0, f"$ {command}\n{printed[-4000:]}"
    for line in output:
        wanted = [piece for piece in re.split(r"\d+|\.\.\.|…", line) if piece.strip()]
        if wanted:
            pattern = ".*?".join(re.escape(piece.strip()) for piece in wanted)
            assert re.search(pattern, printed), f"$ {command}\nREADME shows {line!r}, not printed:\n{printed[-4000:]}"


def serve(command: str, copy: Copy) -> None:
    """Start it, and leave it running for the commands that follow on the page."""
    log = copy.folder / f"served-{len(copy.served)}.txt"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=copy.folder, env=copy.environ, stdout=file, stderr=subprocess.STDOUT
        )
    copy.served.append(process)
    deadline = time.monotonic() + 120
    while "listening" not in log.read_text():
        assert process.poll() is None, f"$ {command}\n{log.read_text()}"
        assert time.monotonic() < deadline, f"$ {command}\nnever said that it listens:\n{log.read_text()}"
        time.sleep(0.05)
