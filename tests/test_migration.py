"""docs/migration.md promises names: each one on our side exists."""

from __future__ import annotations

import re

import pytest

import fencepost
from fencepost import errors
from fencepost.config import AdminConfig, ConsumerConfig, ProducerConfig
from tests.support.readme import ROOT
from tests.support.settings_page import BEGIN

SETTINGS = {name for config in (AdminConfig, ConsumerConfig, ProducerConfig) for name in config.__dataclass_fields__}


def rows() -> list[tuple[str, list[str]]]:
    """(their name, our code spans) of every row of every table."""
    found = []
    written_by_hand, _, _ = (ROOT / "docs" / "migration.md").read_text().partition(BEGIN)
    for line in written_by_hand.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].startswith(("`", "...")):
            found.append((cells[0], re.findall(r"`([^`]+)`", cells[1])))
    return found


def exists(name: str) -> bool:
    """A method or attribute of a public class, a setting, or an exception."""
    owner, dot, attribute = name.partition(".")
    if dot:
        return hasattr(getattr(fencepost, owner), attribute)
    return name in SETTINGS or isinstance(getattr(errors, name, None), type)


def test_every_name_on_our_side_exists() -> None:
    assert [name for _, ours in rows() for name in ours if not exists(name)] == []
    assert len(rows()) > 60
    assert len({name for _, ours in rows() for name in ours}) > 80


@pytest.mark.parametrize("name", ["Producer.produce", "linger", "NoSuchError", "Admin.make_topics"])
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    assert not exists(name)


def test_every_row_says_what_to_use() -> None:
    assert [theirs for theirs, ours in rows() if not ours] == [
        "`poll(0)` after `produce`",
        "`message.error()`",
        "`api_version`",
    ]
