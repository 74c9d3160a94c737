"""Keys that never end, or are not keys: refused by name at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.network.key_source import KeySource
from fencepost.broker.security.bearer import Keys
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.small_files import MOST_BYTES


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """As /dev/zero would be; here it ends behind what is read of it."""
    file = tmp_path / "keys.json"
    with open(file, "wb") as made:
        made.truncate(MOST_BYTES + 1)
    with pytest.raises(InvalidSetting, match=f"keys.json: it has more than {MOST_BYTES} bytes"):
        KeySource(file.as_uri(), 60_000, Keys()).start()
