"""axe-core in a tab: the rules of accessibility that a page breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pytest

from tools.npm import NpmError, NpmFile, fetched

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

AXE: Final = NpmFile(
    "axe-core",
    "4.10.3",
    "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg==",
    "axe.min.js",
)
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
"""The tags of the rules of WCAG 2.2 up to AA. Others are of axe-core's own choice."""

RUN = """async (tags) => {
  const found = await axe.run(document, tags ? { runOnly: tags } : {});
  return found.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}`));
}"""


def violations(tab: Tab, tags: Sequence[str] | None = None) -> list[str]:
    """Return the broken rules with their elements, of all rules or of those with one of the tags.

    Skips the test where axe-core cannot be had.
    """
    if tab.evaluate("() => typeof axe") == "undefined":
        try:
            source = fetched(AXE).read_text()
        except NpmError as error:
            pytest.skip(str(error))
        tab.evaluate(f"() => {{ {source} }}")
    found: list[str] = tab.evaluate(RUN, tags and list(tags))
    return found
