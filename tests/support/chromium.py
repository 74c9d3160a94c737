"""A headless Chromium for tests of the web page, driven by Playwright.

Uses an installed one; as root on Debian it installs the package first. (Playwright's own browsers are not fetched.)
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tests.support.debian import Unavailable, provided

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


@functools.cache
def _program() -> str:
    """Raises Unavailable."""
    if find_spec("playwright") is None:
        raise Unavailable("the package playwright is not installed")
    return provided("chromium", _installed, f"none of {', '.join(NAMES)} is in PATH")


def _installed() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def unavailable_reason() -> str | None:
    """Return the reason why no browser is available, or None."""
    try:
        _program()
    except Unavailable as reason:
        return str(reason)
    return None


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser. While it runs no event loop can be run in this thread. Raises Unavailable."""
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has none
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_program(), args=sandbox)
        try:
            yield browser
        finally:
            browser.close()
