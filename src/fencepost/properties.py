"""Properties files as Kafka's own programs take them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from fencepost.small_files import read_small

__all__ = ["read_properties"]

_CONTINUED = re.compile(r"\\\r?\n[ \t]*")


class _Properties(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr  # names are as they are written


def read_properties(file: Path) -> dict[str, str]:
    """Names and values. Raises ValueError, whose words quote no line of the file: it may hold a password."""
    parser = _Properties(delimiters=("=", ":"), comment_prefixes=("#", "!"), strict=False, empty_lines_in_values=False)
    try:
        text = read_small(file, "utf-8-sig")
        lines = _CONTINUED.sub("", text).splitlines()
        parser.read_string("\n".join(["[all]", *map(str.strip, lines)]))
    except configparser.Error:
        raise ValueError(f"{file}: a line is not NAME=VALUE") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error
    return dict(parser["all"])
