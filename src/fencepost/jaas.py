"""Parser for lines of `sasl.jaas.config`, equivalent to Kafka's, which uses Java's StreamTokenizer.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

The tests compare both parsers with generated lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

__all__ = ["LoginModule", "quoted", "read_jaas"]

_CONTROLS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
# After a single "/" the tokenizer skips one more character, even a line end, and then the rest of the line. In its
# alphabet letters, "_", "$" and everything from U+00A0 on begin a word; digits, "." and "-" may follow.
_BEGIN: Final = "A-Za-z_$\u00a0-\U0010ffff"
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """The only module of a line. `control` is usually "required"; Kafka parses it but does not use it."""

    name: str
    control: str
    options: Mapping[str, str]


class _Token(NamedTuple):
    """A token. `text` is a word or a quoted string, otherwise None; `mark` is any other single character."""

    position: int
    text: str | None
    mark: str


def read_jaas(line: str) -> LoginModule:
    """Parse a line.

    Raises:
        ValueError: The line is invalid. The message names the position but quotes nothing, because the line contains
            passwords.
    """
    tokens = list(_tokens(line))
    ends = [number for number, token in enumerate(tokens) if token.mark == ";"]
    if not ends or ends[-1] != len(tokens) - 1:
        raise ValueError("the line must end with a semicolon after the last option")
    if len(ends) > 1:
        raise ValueError(f"there are {len(ends)} login modules, and one is possible")
    words = tokens[:-1]
    if len(words) < 2 or not words[0].text or (words[1].text or "").upper() not in _CONTROLS:
        raise ValueError('it must read: MODULE required NAME="VALUE" ... ;')
    options = dict(_option(words[start : start + 3]) for start in range(2, len(words), 3))
    return LoginModule(words[0].text, (words[1].text or "").lower(), options)


def quoted(text: str) -> str:
    """Return text in quotes, escaped for `read_jaas`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _option(tokens: list[_Token]) -> tuple[str, str]:
    if len(tokens) == 3:
        name, equals, value = tokens
        if name.text is not None and equals.mark == "=" and value.text is not None:
            return name.text, value.text
    at = tokens[0].position + 1
    raise ValueError(f'from character {at} on: NAME="VALUE" is expected; numbers and special characters need quotes')


def _tokens(line: str) -> Iterator[_Token]:
    position = 0
    while position < len(line):
        match = _token().match(line, position)
        if match is None:
            raise ValueError(f"character {position + 1} cannot be read")
        start, position = position, match.end()
        if match["word"] is not None:
            yield _Token(start, match["word"], "")
        elif match["quote"] is not None:
            inside = _quoted(match["quote"]).match(line, position)
            if inside is None or (not inside[2] and inside.end() == len(line)):
                raise ValueError(f"the quote at character {start + 1} does not end")
            position = inside.end()
            yield _Token(start, _ESCAPE.sub(_escaped, inside[1]), "")
        elif match["skipped"] is None:
            yield _Token(start, None, match["other"] or "0")


@cache
def _token() -> re.Pattern[str]:
    """Return the pattern of a token. Few processes need it, and compiling it takes milliseconds."""
    return re.compile(
        rf"""(?P<skipped> [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /.?[^\n\r]* )
           | (?P<word> [{_BEGIN}][{_BEGIN}0-9.\-]* )
           | (?P<number> -?[0-9.][0-9.]* )
           | (?P<quote> ["'] )
           | (?P<other> . )""",
        re.DOTALL | re.VERBOSE,
    )


@cache
def _quoted(mark: str) -> re.Pattern[str]:
    """Return the pattern of what follows a quotation mark, to the second mark if there is one."""
    return re.compile(rf"((?:[^{mark}\\\n\r]|\\[0-3][0-7]{{0,2}}|\\[4-7][0-7]?|\\.)*)({mark}?)", re.DOTALL)


def _escaped(match: re.Match[str]) -> str:
    found = match[1]
    return chr(int(found, 8)) if found[0] in "01234567" else _ESCAPED.get(found, found)
