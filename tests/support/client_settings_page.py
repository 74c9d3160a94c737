"""The page docs/client-settings.md: every client setting with its default, from the rows in the code.

`python -m tests.support.client_settings_page` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from fencepost.arguments import MAX_INT64
from fencepost.config import CommonConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from fencepost.setting import row_of
from tests.support.readme import ROOT

PAGE: Final = ROOT / "docs" / "client-settings.md"
TITLES: Final[dict[type[CommonConfig], str]] = {
    CommonConfig: "Every client",
    ProducerConfig: "Producer",
    ConsumerConfig: "Consumer",
    ShareConsumerConfig: "Share consumer",
}
HEAD: Final = """# Client settings

This page lists all settings of the clients with their defaults. [Client](client.md) explains their use.
Names are Kafka's with underscores; `from_config` takes them with dots. Names of other clients work too.
Times (`_ms`) are milliseconds and sizes are bytes. An `Admin` has only the settings that all clients share.

This page is generated from the code: `python -m tests.support.client_settings_page`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join((HEAD, *(line for config in TITLES for line in _table(config))))


def _table(config: type[CommonConfig]) -> Iterator[str]:
    common = {} if config is CommonConfig else {each.name: each for each in fields(CommonConfig)}
    yield from (f"## {TITLES[config]}", "", "| setting | default | meaning |", "|---|---|---|")
    for declared in fields(config):
        if declared.name not in common or declared.default != common[declared.name].default:
            yield f"| `{declared.name}` | {_default(declared)} | {' '.join(_meaning(declared))} |"
    yield ""


def _default(declared: Field[Any]) -> str:
    value = declared.default
    if value is MISSING:
        return "required"
    if value in (None, "", ()):
        return "none"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


def _meaning(declared: Field[Any]) -> Iterator[str]:
    row = row_of(declared)
    yield row.doc.replace("|", "\\|")
    if row.choices and not isinstance(row.choices[0], int):
        yield f"One of {', '.join(f'`{choice}`' for choice in row.choices if choice)}."
    if row.low == 1:
        yield "At least 1."
    if row.high != MAX_INT64:
        yield f"At most {row.high}."
    if row.also:
        yield f"Also {', '.join(f'`{name}`' for name in row.also)}."


if __name__ == "__main__":
    PAGE.write_text(page())
