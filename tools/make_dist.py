"""Build the distributions of a release from the last commit, and prove them. `make dist` runs it.

It writes to a folder: sdists and wheels of fencepost, fencepost-lab and fencepost-native, a list of components
(CycloneDX) of each environment, and SHA256SUMS. Every file is built twice and must have the same bytes. Then each
wheel is installed into a new environment of each Python, and the README's programs run there.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.release_addresses import AddressError, insert, repository_of

ROOT: Final = Path(__file__).parents[1]
PROJECTS: Final = {"fencepost": ".", "fencepost-lab": "lab", "fencepost-native": "native"}
PYTHONS: Final = tuple(f"python3.{minor}" for minor in range(11, 15))
SUMS: Final = "SHA256SUMS"
SIGNED_AS: Final = "file"  # the namespace of `ssh-keygen -Y sign` for files
SOURCE: Final = Path(tempfile.gettempdir(), "fencepost-dist-source")  # the same for each build
LIMIT_S = 1800.0


class ReleaseError(Exception):
    """The release cannot be made, with the reason."""


def versions(root: Path) -> dict[str, str]:
    """Return the version that each project declares."""
    found = {
        name: str(tomllib.loads((root / folder / "pyproject.toml").read_text())["project"]["version"])
        for name, folder in PROJECTS.items()
    }
    crate = tomllib.loads((root / "native" / "Cargo.toml").read_text())["package"]["version"]
    return {**found, "the crate of fencepost-native": str(crate)}


def the_version(root: Path) -> str:
    """Return the version of all projects. Raises ReleaseError if they differ."""
    found = versions(root)
    if len(set(found.values())) > 1:
        raise ReleaseError(f"versions differ: {', '.join(f'{name} {version}' for name, version in found.items())}")
    return next(iter(found.values()))


def address(root: Path) -> str:
    """Return the public address of the repository, or "" if it has none. Raises ReleaseError."""
    try:
        return repository_of((root / "pyproject.toml").read_text())
    except AddressError as error:
        raise ReleaseError(str(error)) from error


def is_announced(changelog: str, version: str) -> bool:
    """Return true if the changelog has a section of the version with a date."""
    return re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE) is not None


def programs_in(readme: str) -> list[str]:
    """Return the Python programs of the README that need no Spark."""
    programs = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    return [program for program in programs if "pyspark" not in program]


def run(command: Iterable[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a command. Raises ReleaseError if it fails or takes too long, with what it printed."""
    words = [str(word) for word in command]
    variables = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(
            words, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ReleaseError(f"{' '.join(words)} has not ended after {LIMIT_S} s") from error
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(root: Path, target: Path, projects: Iterable[str], source: Path, *, isolated: bool = True) -> list[Path]:
    """Build sdist and wheel of each project from the last commit of the repository at `root`.

    Args:
        root: The repository.
        target: The folder for the files.
        projects: Names in PROJECTS.
        source: A folder for the sources, which is made, and removed at the end. The list of components within the
            native wheel has its name.
        isolated: Build with tools from PyPI, as their projects declare them, instead of the installed ones.

    Returns:
        The files.

    Raises:
        ReleaseError: `source` exists, or a build failed.
    """
    moment = run(["git", "log", "-1", "--format=%ct"], root).strip()
    try:
        source.mkdir(mode=0o700)
    except FileExistsError:
        raise ReleaseError(f"{source} exists: another build runs, or one was killed; then remove the folder") from None
    try:
        archive = source / "source.tar"
        run(["git", "archive", "--output", archive, "HEAD"], root)
        run(["tar", "-xf", archive], source)
        archive.unlink()
        if repository := address(source):
            version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
            insert(source, [PROJECTS[name] for name in projects], repository, version)
        environment = {"SOURCE_DATE_EPOCH": moment, "RUSTFLAGS": f"--remap-path-prefix={source}=/source"}
        options = [] if isolated else ["--no-isolation"]
        builder = [sys.executable, "-m", "build", *options, "--outdir", str(target)]
        for name, form in itertools.product(projects, ("--sdist", "--wheel")):  # both at once: in a random folder
            run([*builder, form, str(source / PROJECTS[name])], source, environment)
    finally:
        shutil.rmtree(source)
    return sorted(path for path in target.iterdir() if path.suffix in (".whl", ".gz"))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(first: Path, second: Path) -> list[str]:
    """Return the names of the files that only one folder has, or that differ."""
    sums = [{path.name: digest(path) for path in folder.iterdir()} for folder in (first, second)]
    return sorted(name for name in sums[0] | sums[1] if sums[0].get(name) != sums[1].get(name))


def write_sums(target: Path) -> Path:
    """Write SHA256SUMS of all files of the folder, in the form of `sha256sum --check`."""
    files = sorted(path for path in target.iterdir() if not path.name.startswith(SUMS))
    sums = target / SUMS
    sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))
    return sums


def sign(sums: Path, key: Path) -> None:
    """Sign the checksums with an SSH key: SHA256SUMS.sig. Raises ReleaseError."""
    (sums.parent / f"{SUMS}.sig").unlink(missing_ok=True)
    run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", SIGNED_AS, sums], sums.parent)


def install(python: str, target: Path, folder: Path, names: Iterable[str]) -> Path:
    """Return the Python of a new environment with the wheels of these projects, and what they need from PyPI.

    The wheels are named by file, so that none of the same name comes from PyPI.
    """
    run([python, "-m", "venv", folder], target)
    inside = folder / "bin" / "python"
    wheels = [wheel for name in names for wheel in sorted(target.glob(f"{name.replace('-', '_')}-*.whl"))]
    run([inside, "-m", "pip", "install", "--quiet", *wheels], target)
    return inside


def prove(python: str, target: Path, version: str, *, native: bool) -> str:
    """Install the wheels into new environments of a Python, and run the README's programs. Returns a summary."""
    programs = programs_in((ROOT / "README.md").read_text())
    if not programs:
        raise ReleaseError("README.md has no program to run")
    with tempfile.TemporaryDirectory(prefix="fencepost-dist-") as folder:
        product = ["fencepost", "fencepost-native"] if native else ["fencepost"]
        inside = install(python, target, Path(folder) / "product", product)
        reported = run([inside.parent / "fencepost", "--version"], target)
        if reported != f"fencepost {version}\n":
            raise ReleaseError(f"{python}: fencepost --version prints {reported!r}")
        for program in programs:
            run([inside, "-c", program], Path(folder), {"FENCEPOST_NATIVE": "1" if native else "0"})
        laboratory = install(python, target, Path(folder) / "laboratory", ["fencepost", "fencepost-lab"])
        run([laboratory.parent / "fencepost", "simulate", "--runs", "1"], Path(folder))
        number = run([inside, "-c", "import platform; print(platform.python_version())"], target).strip()
    return f"Python {number}: {len(programs)} programs of the README, and fencepost simulate"


def list_components(target: Path, version: str) -> list[Path]:
    """Write the components of `pip install fencepost` and `fencepost-lab` as CycloneDX documents."""
    listed = []
    with tempfile.TemporaryDirectory(prefix="fencepost-dist-") as folder:
        run([sys.executable, "-m", "venv", Path(folder) / "lister"], target)
        lister = Path(folder) / "lister" / "bin" / "python"
        run([lister, "-m", "pip", "install", "--quiet", "cyclonedx-bom>=7,<8"], target)
        for names in (["fencepost"], ["fencepost", "fencepost-lab"]):
            name = names[-1]
            inside = install(sys.executable, target, Path(folder) / name, names)
            run([inside, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"], target)
            listed.append(target / f"{name}-{version}.cdx.json")
            options: list[str | Path] = [
                "--output-reproducible",
                "--output-format",
                "JSON",
                "--output-file",
                listed[-1],
            ]
            run([lister, "-m", "cyclonedx_py", "environment", *options, inside], target)
    return listed


def present(pythons: Iterable[str], folders: Iterable[Path] | None = None) -> Iterator[str]:
    """Yield the Pythons that start here, and say which do not.

    Args:
        pythons: Names or paths.
        folders: Where names are looked for that PATH does not have; None: `interpreter_folders`.
    """
    searched = list(interpreter_folders() if folders is None else folders)
    for name in pythons:
        path = next(filter(starts, [shutil.which(name), *(shutil.which(name, path=each) for each in searched)]), None)
        if path is not None:
            yield path
        else:
            say(f"{name} is not installed here: the wheels are not tried with it")


def interpreter_folders() -> list[Path]:
    """Return the folders in which pyenv and uv install interpreters, and those of /opt, the newest versions first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python")
    found = [folder for parent in (pyenv, uv, Path("/opt")) for folder in parent.glob("*/bin") if folder.is_dir()]
    return sorted(
        found, key=lambda folder: [int(part) for part in re.findall(r"\d+", folder.parent.name)], reverse=True
    )


def starts(path: str | None) -> bool:
    """Return true if this Python starts. A shim of pyenv does not, if its version is not chosen."""
    return path is not None and not subprocess.run([path, "--version"], capture_output=True, check=False).returncode


def say(words: str) -> None:
    """Print progress to standard error."""
    print(f"==> {words}", file=sys.stderr, flush=True)


def make(
    target: Path, *, snapshot: bool, key: Path | None, projects: tuple[str, ...], pythons: tuple[str, ...]
) -> None:
    """Carry out all steps. Raises ReleaseError at the first one that fails."""
    version = the_version(ROOT)
    if run(["git", "status", "--porcelain"], ROOT):
        raise ReleaseError("the working copy has changes that are not committed")
    if not snapshot and not is_announced((ROOT / "CHANGELOG.md").read_text(), version):
        raise ReleaseError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' (--snapshot does without)")
    if not snapshot and not address(ROOT):
        raise ReleaseError(
            "tool.fencepost.repository in pyproject.toml is empty: links of the README on an index of packages would "
            "lead nowhere (--snapshot does without)"
        )
    if target.exists() and any(target.iterdir()):
        raise ReleaseError(f"{target} is not empty")
    target.mkdir(parents=True, exist_ok=True)
    say(f"building {', '.join(projects)} {version}")
    files = build(ROOT, target, projects, SOURCE)
    say("building them again")
    with tempfile.TemporaryDirectory(prefix="fencepost-dist-") as folder:
        build(ROOT, Path(folder), projects, SOURCE)
        if different := differences(target, Path(folder)):
            raise ReleaseError(f"a second build has other bytes: {', '.join(different)}")
    for python in present(pythons):
        say(prove(python, target, version, native="fencepost-native" in projects))
    say("listing components")
    files += list_components(target, version)
    sums = write_sums(target)
    if key is not None:
        sign(sums, key)
    for path in [*files, *sorted(target.glob(f"{SUMS}*"))]:
        print(f"{path.stat().st_size:>10,}  {path}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="an empty or new folder (default: dist)")
    parser.add_argument(
        "--snapshot",
        action="store_true",
        help="do not ask for a date in CHANGELOG.md, and for the address of the repository",
    )
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign SHA256SUMS with this SSH key")
    parser.add_argument("--without-native", action="store_true", help="do not build fencepost-native (needs no Rust)")
    parser.add_argument(
        "--python",
        action="append",
        metavar="PATH",
        help=f"try the wheels with it; may be repeated ({', '.join(PYTHONS)})",
    )
    given = parser.parse_args(arguments)
    projects = tuple(name for name in PROJECTS if name != "fencepost-native" or not given.without_native)
    try:
        make(
            given.into.absolute(),
            snapshot=given.snapshot,
            key=given.sign,
            projects=projects,
            pythons=tuple(given.python or PYTHONS),
        )
    except (ReleaseError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
