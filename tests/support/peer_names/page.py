"""The generated sections of docs/names-of-other-clients.md.

`python -m tests.support.peer_names.page` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tests.support.peer_names.tables import NOWHERE, PEERS, Peer, Row, rows_of
from tests.support.readme import ROOT

PAGE: Final = ROOT / "docs" / "names-of-other-clients.md"
BEGIN: Final = "<!-- names of other clients: python -m tests.support.peer_names.page -->"


def sections() -> str:
    """The mark and a section for each client."""
    return "\n".join((BEGIN, *(line for peer in PEERS for line in _section(peer))))


def _section(peer: Peer) -> Iterator[str]:
    yield from ("", f"## {peer.title}", "", f"| {peer.title.split()[0]} | Fencepost | difference |", "|---|---|---|")
    rows = rows_of(peer)
    methods = dict.fromkeys(row.theirs.partition("(")[0] for row in rows)
    of: dict[str, list[Row]] = {method: [] for method in methods}
    for row in rows:
        of[row.theirs.partition("(")[0]].append(row)
    for method, (first, *parameters) in of.items():
        same = [row for row in parameters if row.here == (_short(row.theirs),) and not row.note]
        yield _line(method, first, same)
        yield from (_line(f"{method}({_short(row.theirs)})", row, ()) for row in parameters if row not in same)


def _short(parameter: str) -> str:
    return parameter.rpartition("(")[2].rstrip(")")


def _line(theirs: str, row: Row, same: Iterable[Row]) -> str:
    here = ", ".join(f"`{name}`" for name in row.here) or NOWHERE
    notes = [row.note] if row.note else []
    if names := [f"`{_short(each.theirs)}`" for each in same]:
        notes.append(f"same: {', '.join(names)}")
    if not notes:
        notes.append("same name" if theirs.rpartition(".")[2] == row.here[0].rpartition(".")[2] else "other name")
    return f"| `{theirs}` | {here} | {'; '.join(notes)} |"


def written() -> str:
    """The sections as the page has them."""
    _, begin, rest = PAGE.read_text().partition(BEGIN)
    return (begin + rest).rstrip("\n")


def write() -> None:
    """Write the sections into the page, in place of the former ones."""
    PAGE.write_text(PAGE.read_text().partition(BEGIN)[0] + sections() + "\n")


if __name__ == "__main__":
    write()
