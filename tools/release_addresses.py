"""Addresses in a release: links of the READMEs and URLs of the metadata, from one setting. `make dist` inserts them.

A README on an index of packages has no files beside it, so its links must be absolute. The sources of the repository
keep relative links, which work in every copy.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

__all__ = ["AddressError", "insert", "repository_of", "with_absolute_links", "with_urls"]

# A link or a picture in Markdown whose target has no scheme and is no place in the same page.
_LINK: Final = re.compile(r"(?P<picture>!?)(?P<words>\[[^\]]*\])\((?![a-z]+:|#)(?P<target>[^)\s]+)\)")


class AddressError(Exception):
    """The setting cannot be used, with the reason."""


def repository_of(pyproject: str) -> str:
    """Return `tool.fencepost.repository`, or "" if it is not set. Raises AddressError if it is no https address."""
    address = str(tomllib.loads(pyproject).get("tool", {}).get("fencepost", {}).get("repository", ""))
    parts = urlsplit(address)
    if address and (parts.scheme != "https" or not parts.netloc or not parts.path.strip("/") or parts.query):
        raise AddressError(f"tool.fencepost.repository: {address!r} is not of the form https://code.example/OWNER/NAME")
    return address.rstrip("/")


def with_absolute_links(readme: str, repository: str, tag: str, folder: str = ".") -> str:
    """Return a README with links to the files of a tag. `folder` has the README, relative to the repository."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        path = posixpath.normpath(posixpath.join(folder, link["target"]))
        return f"{link['picture']}{link['words']}({repository}/{kind}/{tag}/{path})"

    return _LINK.sub(absolute, readme)


def with_urls(pyproject: str, repository: str, tag: str) -> str:
    """Return a pyproject.toml with project.urls."""
    urls = {
        "Repository": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = "".join(f'{name} = "{address}"\n' for name, address in urls.items())
    return f"{pyproject.rstrip()}\n\n[project.urls]\n{lines}"


def insert(source: Path, folders: Iterable[str], repository: str, version: str) -> None:
    """Insert the addresses into the READMEs and pyproject.toml of these folders of the sources."""
    for folder in folders:
        readme, pyproject = source / folder / "README.md", source / folder / "pyproject.toml"
        readme.write_text(with_absolute_links(readme.read_text(), repository, f"v{version}", folder))
        pyproject.write_text(with_urls(pyproject.read_text(), repository, f"v{version}"))
