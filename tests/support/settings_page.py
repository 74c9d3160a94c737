"""The generated section of docs/migration.md: what becomes of every setting of the other clients.

`python -m tests.support.settings_page` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from fencepost.foreign_settings import BOUND, WITHOUT_EFFECT
from tests.support.peer_settings import Treatment, all_of_them, field_of, treatment_of
from tests.support.readme import ROOT

PAGE: Final = ROOT / "docs" / "migration.md"
BEGIN: Final = "<!-- settings of other clients: python -m tests.support.settings_page -->"
END: Final = "<!-- end of the settings of other clients -->"


def section() -> str:
    """The section with its marks."""
    peers = all_of_them()
    of: dict[Treatment, set[str]] = {treatment: set() for treatment in Treatment}
    for peer in peers:
        of[treatment_of(peer.name, peer.config)].add(peer.name)
    usable = of[Treatment.SAME] | of[Treatment.RENAMED]
    ignored = {name for name in of[Treatment.NO_EFFECT] if name not in usable}
    of_roles = sorted(name for name in ignored if _under(name) not in WITHOUT_EFFECT)
    return "\n".join(
        (
            BEGIN,
            "",
            f"**These {len(of[Treatment.SAME])} settings work under their names:**",
            ", ".join(f"`{name}`" for name in sorted(of[Treatment.SAME])) + ".",
            "",
            "**These settings work, and have another name here:**",
            "",
            "| setting | here |",
            "|---|---|",
            *(f"| `{name}` | `{field_of(name)}` |" for name in sorted(of[Treatment.RENAMED])),
            "",
            "**These settings are accepted with a warning, because they have no effect here:**",
            "",
            "| setting | use instead |",
            "|---|---|",
            *_grouped((name, WITHOUT_EFFECT[_under(name)]) for name in sorted(ignored - set(of_roles))),
            *([f"| {', '.join(f'`{name}`' for name in of_roles)} | settings of another role |"] if of_roles else []),
            "",
            "**These settings are refused with advice, but for some values:**",
            "",
            "| setting | possible values | use instead |",
            "|---|---|---|",
            *(_bound_row(name) for name in sorted(of[Treatment.BOUND])),
            "",
            END,
        )
    )


def _under(name: str) -> str:
    return name.replace(".", "_")


def _grouped(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Rows of settings that have the same replacement."""
    by_replacement: dict[str, list[str]] = {}
    for name, instead in rows:
        by_replacement.setdefault(instead, []).append(name)
    return [
        f"| {', '.join(f'`{name}`' for name in names)} | {instead or 'nothing'} |"
        for instead, names in sorted(by_replacement.items())
    ]


def _bound_row(name: str) -> str:
    possible, instead = BOUND[_under(name)]
    return f"| `{name}` | {', '.join(f'`{value}`' for value in possible) or 'none'} | {instead} |"


def write() -> None:
    """Replace the section of the page."""
    text = PAGE.read_text()
    marked = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    PAGE.write_text(marked.sub(lambda _: section(), text))


if __name__ == "__main__":
    write()
