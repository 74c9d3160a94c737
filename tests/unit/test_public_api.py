"""The public API is what tests/golden/public_api.txt says, so that no name, parameter or default changes unnoticed."""

from __future__ import annotations

import difflib

import pytest

import fencepost
from tests.support.public_api import SNAPSHOT, public_api


def test_the_public_api_is_as_recorded() -> None:
    recorded, present = SNAPSHOT.read_text().splitlines(), public_api().splitlines()
    assert len(present) > 500
    difference = list(difflib.unified_diff(recorded, present, "recorded", "present", lineterm="", n=0))
    text = "\n".join(line[:400] for line in difference)
    assert difference == [], (
        f"the public API changed. If this is intended, run `python -m tests.support.public_api` and name the change in "
        f"CHANGELOG.md:\n{text}"
    )


def test_a_changed_default_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = public_api()
    monkeypatch.setattr(fencepost.Admin, "create_topic", lambda self, name, partitions=3: None)
    assert public_api() != before
    monkeypatch.undo()
    assert public_api() == before
