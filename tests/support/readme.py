"""README's commands, and a clean copy of the project in which to run them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "lab", "tests", "tools", "bench", "examples", "docs", "deploy", "native", ".ci")
COMPILED = ".pyc"


@dataclass(frozen=True, slots=True)
class ConsoleBlock:
    """One ```console block: the line it starts at, and its commands with the output shown below each."""

    line: int
    commands: tuple[tuple[str, tuple[str, ...]], ...]


def console_blocks(markdown: str) -> list[ConsoleBlock]:
    """Lines that begin with "$ " are commands (a trailing backslash continues them), the others their output."""
    blocks = []
    for match in re.finditer(r"^```console\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL):
        commands: list[tuple[str, list[str]]] = []
        for line in match.group(1).replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                commands.append((" ".join(line[2:].split("  #")[0].split()), []))
            elif commands:
                commands[-1][1].append(line)
        start = markdown.count("\n", 0, match.start()) + 1
        blocks.append(ConsoleBlock(start, tuple((command, tuple(output)) for command, output in commands)))
    return blocks


def clean_copy(target: Path) -> Path:
    """The project's files without what was built, and a .venv of its own that runs the copy's source.

    The .venv borrows the installed dependencies of the running interpreter instead of downloading a gigabyte; it is
    stamped as `make venv` would, so that the commands go the way they go for a user whose set-up is done. With what is
    compiled of the sources, which is as good there: Python goes by a source's time and size.
    """
    shutil.copytree(ROOT, target, ignore=_only_sources, symlinks=True)
    venv = target / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    (Path(packages) / "copy.pth").write_text(
        f"{target / 'src'}\n{target / 'lab' / 'src'}\n{sysconfig.get_path('purelib')}\n"
    )
    script = venv / "bin" / "fencepost"
    script.write_text(f"#!{python}\nimport sys\nfrom fencepost.cli.main import main\n\nsys.exit(main())\n")
    script.chmod(0o755)
    for name, option in (("fencepost", "--stamp"), ("fencepost-native", "--native-stamp")):
        stamp = subprocess.run(["tools/make_venv.sh", option], cwd=target, capture_output=True, check=True)
        (venv / f".{name}-stamp").write_bytes(stamp.stdout)
    return target


def _only_sources(folder: str, names: list[str]) -> set[str]:
    if Path(folder) == ROOT:
        return {name for name in names if name not in COPIED and not (ROOT / name).is_file()}
    if Path(folder).name == "__pycache__":  # what somebody is writing has another ending, and soon another name
        return {name for name in names if not name.endswith(COMPILED)}
    if Path(folder) == ROOT / "native":
        return {"target"}
    sources = (ROOT / "src", ROOT / "lab")
    return (
        set() if any(map(Path(folder).is_relative_to, sources)) else {name for name in names if name == "__pycache__"}
    )
