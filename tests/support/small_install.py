"""A virtual environment that has what `pip install fencepost` installs, and nothing else; made without a network."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.readme import ROOT

__all__ = ["installed_size", "small_install"]


def small_install(target: Path) -> Path:
    """Its folder of programs. What is declared, and what that declares, is linked from the running interpreter's
    packages; the project is its source."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    (packages,) = target.glob("lib/python*/site-packages")
    for found in _wanted():
        for top in _tops(found):
            link = packages / top.name
            if not link.exists():
                link.symlink_to(top)
    (packages / "project.pth").write_text(f"{ROOT / 'src'}\n")
    script = target / "bin" / "fencepost"
    script.write_text(f"#!{target}/bin/python\nimport sys\nfrom fencepost.cli.main import main\n\nsys.exit(main())\n")
    script.chmod(0o755)
    return target / "bin"


def installed_size(of: Path) -> int:
    """Bytes of the packages in the environment of these programs, the project among them, with the bytecode that this
    interpreter has and no other's."""
    (packages,) = of.parent.glob("lib/python*/site-packages")
    roots = [*packages.iterdir(), ROOT / "src"]
    files = [path for root in roots for path in (root.resolve().rglob("*") if root.is_dir() else [root])]
    bytecode = f".{sys.implementation.cache_tag}.pyc"
    return sum(
        path.stat().st_size
        for path in files
        if path.is_file() and (path.suffix != ".pyc" or path.name.endswith(bytecode))
    )


def _wanted() -> Iterator[Distribution]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting, seen = [Requirement(each) for each in project["dependencies"]], set[str]()
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        waiting += [Requirement(each) for each in found.requires or []]


def _tops(found: Distribution) -> set[Path]:
    """Folders and modules that it has put among the packages."""
    root = Path(str(found.locate_file("")))
    names = {path.parts[0] for path in found.files or [] if path.parts[0] not in ("..", "__pycache__")}
    return {root / name for name in names}
