"""Packages of the npm registry by name, version and hash: for the documentation site, and for tests of web pages."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fencepost" / "npm"
PATIENCE_S: Final = 120


class NpmFile(NamedTuple):
    """A file in a package, and the package's SHA-512 in base64, as `npm view NAME@VERSION dist.integrity` has it."""

    package: str
    version: str
    sha512: str
    path: str


class NpmError(Exception):
    """The package cannot be had here."""


MERMAID: Final = NpmFile(
    "mermaid",
    "11.12.0",
    "ZudVx73BwrMJfCFmSSJT84y6u5brEoV8DOItdHomNLz32uBjNrelm7mg95X7g+C6UoQH/W6mBLGDEDv73JdxBg==",
    "dist/mermaid.min.js",
)
IFRAME_WORKER: Final = NpmFile(
    "iframe-worker",
    "1.0.4",
    "roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q==",
    "shim/index.js",
)


def fetched(file: NpmFile, cache: Path = CACHE) -> Path:
    """Return the path of a file, from the cache or else through `npm pack`. Raises NpmError."""
    cached = cache / f"{file.package}-{file.version}" / Path(file.path).name
    if cached.exists():
        return cached
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-npm-") as folder,
        tarfile.open(packed(file, Path(folder))) as archive,
    ):
        member = archive.extractfile(f"package/{file.path}")
        if member is None:
            raise NpmError(f"{file.package} {file.version} has no file {file.path}")
        content = member.read()
    cached.parent.mkdir(parents=True, exist_ok=True)
    part = cached.with_suffix(f".{os.getpid()}.part")  # several processes may fetch it at once
    part.write_bytes(content)
    part.replace(cached)
    return cached


def packed(file: NpmFile, folder: Path) -> Path:
    """Fetch the archive of the file's package into a folder, and return its path. Raises NpmError."""
    if shutil.which("npm") is None:
        raise NpmError(f"{file.package} {file.version} comes from npm, which is not in PATH; install Node.js")
    done = subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", folder, f"{file.package}@{file.version}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        raise NpmError(f"npm pack {file.package}@{file.version}: status {done.returncode}: {done.stderr[-500:]}")
    check_hash(file, archives[0].read_bytes())
    return archives[0]


def check_hash(file: NpmFile, archive: bytes) -> None:
    """Raise NpmError if the archive is another than the hash says."""
    found = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != file.sha512:
        raise NpmError(f"{file.package} {file.version}: the archive's SHA-512 is {found}, not {file.sha512}")
