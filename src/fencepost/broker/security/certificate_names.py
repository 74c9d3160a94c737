"""Map a client certificate to a user: its subject as Java writes it (RFC 2253), and Kafka's mapping rules.

`ssl.principal.mapping.rules` is a list separated by commas of RULE:PATTERN/REPLACEMENT/, with L or U at the end for
lower or upper case, or DEFAULT for the unchanged name. The first rule that matches the whole name applies (KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from fencepost.broker.settings.setting import InvalidSetting

__all__ = ["NameRules", "NoRuleApplies", "end_s_of", "subject_of"]

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Tags of UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString and BMPString. Java decodes
# all of them as UTF-8.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_VERSION: Final = 0xA0  # the tag of a certificate's version, which is optional
_OBJECT_ID: Final = 6
_VALIDITY, _SUBJECT = 3, 4  # indexes of a certificate's fields, without the version
_UTC_TIME: Final = 0x17  # with a two-digit year: 50 and above mean 19xx (RFC 5280)


def subject_of(certificate: bytes) -> str:
    """Return the subject of a verified certificate (DER), as Java's X500Principal.getName writes it. It may be empty.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    try:
        names = [
            "+".join(_attribute(attribute) for _, attribute, _ in _values(name))
            for _, name, _ in _values(_fields(certificate)[_SUBJECT])
        ]
    except (IndexError, StopIteration, RuntimeError) as error:
        raise ValueError("not a certificate") from error
    return ",".join(reversed(names))


def end_s_of(certificate: bytes) -> int:
    """Return the end of a certificate's validity (DER), in seconds since 1970.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    try:
        _, (tag, content, _) = _values(_fields(certificate)[_VALIDITY])
        text = content.decode("ascii")
        century = "" if tag != _UTC_TIME else "19" if text[:2] >= "50" else "20"
        ends = datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, StopIteration, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError("not a certificate") from error
    return int(ends.timestamp())


def _fields(certificate: bytes) -> list[bytes]:
    """Return the signed fields of a certificate, without its version. Raises IndexError or StopIteration."""
    _, outer, _ = next(_values(certificate))
    _, signed, _ = next(_values(outer))
    return [content for tag, content, _ in _values(signed) if tag != _VERSION]


def _values(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, content and whole encoding of each value in a sequence of values (X.690)."""
    position = 0
    while position < len(der):
        start, tag, size = position, der[position], der[position + 1]
        position += 2
        if size & 0x80:
            digits = size & 0x7F
            size = int.from_bytes(der[position : position + digits], "big")
            position += digits
        if position + size > len(der):
            raise IndexError(position)
        yield tag, der[position : position + size], der[start : position + size]
        position += size


def _attribute(der: bytes) -> str:
    """Return an attribute of a name as KEYWORD=TEXT; as OID=#HEX if Java has no keyword or the value is not text."""
    (kind, oid, _), (tag, content, whole) = _values(der)
    if kind != _OBJECT_ID:
        raise IndexError(kind)
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or dotted}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode('utf-8', 'replace'))}"


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Escape special characters, and spaces at both ends, with a backslash."""
    inner = text.strip(" \r")
    start = text.index(inner) if inner else len(text)
    escaped = re.sub(r'([,=+<>#;"\\])', r"\\\1", inner).replace("\0", "\\00")
    return (
        "".join(f"\\{character}" for character in text[:start])
        + escaped
        + "".join(f"\\{character}" for character in text[start + len(inner) :])
    )


class NoRuleApplies(ValueError):
    """No rule maps the certificate's name to a user."""


class NameRules:
    """Kafka's mapping rules. The constructor raises InvalidSetting for an invalid text."""

    __slots__ = ("_rules", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules = list(_read(text))
        if not self._rules:
            raise InvalidSetting("ssl.principal.mapping.rules: there is no rule, so no client could connect")

    def __repr__(self) -> str:
        return f"NameRules({self._text!r})"

    def user(self, name: str) -> str:
        """Return the user for a distinguished name. Raises NoRuleApplies."""
        for rule in self._rules:
            user = rule.apply(name)
            if user is not None:
                return user
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {name!r}")


class _Rule:
    """A rule. `pattern` None keeps the name unchanged; `case` is L, U or ""."""

    __slots__ = ("_case", "_pattern", "_replacement")

    def __init__(self, pattern: re.Pattern[str] | None, replacement: str, case: str) -> None:
        self._pattern, self._replacement, self._case = pattern, replacement, case

    def apply(self, name: str) -> str | None:
        if self._pattern is None:
            return name
        if self._pattern.fullmatch(name) is None:
            return None
        # As in Java's replaceAll, every match is replaced: a pattern may match the whole name and also parts of it.
        user = self._pattern.sub(lambda match: _filled_in(self._replacement, match), name)
        return {"L": user.lower(), "U": user.upper()}.get(self._case, user)


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))?\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


def _read(text: str) -> Iterator[_Rule]:
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise InvalidSetting(f"ssl.principal.mapping.rules cannot be read from {text[position:].strip()!r} on")
        position = found.end()
        default, pattern, replacement, case = found.groups()
        if default:
            yield _Rule(None, "", "")
        elif pattern is not None:
            yield _Rule(_compiled(pattern, replacement), replacement, case)


def _compiled(pattern: str, replacement: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidSetting(f"ssl.principal.mapping.rules: the pattern {pattern!r}: {error}") from error
    numbers = [int(digits) for _, digits in _REFERENCE.findall(replacement) if digits]
    rest = _REFERENCE.sub("", replacement)
    if "$" in rest or "\\" in rest or (compiled.groups == 0 and any(numbers)):
        raise InvalidSetting(
            f"ssl.principal.mapping.rules: {replacement!r}: $ must be followed by the number of an existing group"
        )
    return compiled


def _filled_in(replacement: str, match: re.Match[str]) -> str:
    r"""Replace `$N` by group N, with as many digits as form an existing group's number.

    A `$9` without such a group stays as it is, and `\$` becomes `$`.
    """
    groups = match.re.groups

    def text(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        digits = found[2]
        used = len(digits)
        while used > 1 and int(digits[:used]) > groups:
            used -= 1
        number = int(digits[:used])
        return found[0] if number > groups else (match[number] or "") + digits[used:]

    return _REFERENCE.sub(text, replacement)
