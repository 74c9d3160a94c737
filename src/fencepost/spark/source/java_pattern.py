"""Translate Java's regular expressions for topic names, as in `subscribePattern` of Spark's own connector.

The translation is a pattern for `re` that matches the same names. Topic names are ASCII, so this module computes each
character class as a set of ASCII characters, including unions, intersections (`&&`) and properties. It refuses a
construct whose meaning would differ or depends on the release of Java, and names it in the error.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from fencepost.arguments import brief_repr
from fencepost.errors import ConfigurationError

__all__ = ["java_pattern"]

_ALL: Final = frozenset(map(chr, range(128)))
_LETTERS, _DIGITS = frozenset(string.ascii_letters), frozenset(string.digits)
_CLASSES: Final = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": frozenset(" \t\n\x0b\f\r"),
    "h": frozenset(" \t"),
    "v": frozenset("\n\x0b\f\r"),
}
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_POSIX: Final = {
    "Lower": frozenset(string.ascii_lowercase),
    "Upper": frozenset(string.ascii_uppercase),
    "ASCII": _ALL,
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": frozenset(string.punctuation),
    "Graph": _LETTERS | _DIGITS | frozenset(string.punctuation),
    "Print": _LETTERS | _DIGITS | frozenset(string.punctuation) | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": frozenset(map(chr, range(32))) | {"\x7f"},
    "XDigit": frozenset(string.hexdigits),
    "Space": _CLASSES["s"],
}
_BINARY: Final = {
    "IsAlphabetic": _LETTERS,
    "IsLetter": _LETTERS,
    "IsDigit": _DIGITS,
    "IsLowercase": _POSIX["Lower"],
    "IsUppercase": _POSIX["Upper"],
    "IsLatin": _LETTERS,
}
_SINGLE_CASE: Final = frozenset(
    {"Lower", "Upper", "IsLowercase", "IsUppercase", "Ll", "Lu", "Lt", "IsLl", "IsLu", "IsLt"}
)
_CATEGORIES: Final = frozenset(
    "L M N P S Z C Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs Cn".split()
)
_GROUPS: Final = ("?:", "?=", "?!", "?<=", "?<!", "?>")
_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME: Final = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_COUNT: Final = re.compile(r"\{[0-9]{1,10}(?:,[0-9]{0,10})?\}")
_WITHOUT_EFFECT: Final = "smd"  # these flags concern line ends, which no topic name has
_HEX: Final = {"x": re.compile(r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}"), "u": re.compile(r"([0-9a-fA-F]{4})()")}
_OCTAL: Final = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")
_REFERENCE: Final = re.compile(r"\\[1-9k]")
_CAPTURING: Final = re.compile(r"(?<!\\)\((?!\?(?!P<))")
_GROUP_NAME: Final = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")


@lru_cache(maxsize=16)
def java_pattern(text: str, option: str) -> re.Pattern[str]:
    """Return the translated pattern, for `search` in topic names.

    Raises ConfigurationError, which names the construct.
    """
    translation = _Translation(text, option)
    try:
        return re.compile(translation.whole(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"option {option}={brief_repr(text)} is not supported: {error}") from error


class _Translation:
    """A translation of one pattern, in one pass from left to right. A flag holds to the end of its group."""

    def __init__(self, text: str, option: str) -> None:
        self._text, self._option = text, option
        self._at = 0
        self._groups, self._names = 0, set[str]()
        self._folds = False  # (?i)
        # Groups capture only if the pattern has a reference, because re of Python 3.11 handles some of them wrongly.
        self._captures = _REFERENCE.search(text) is not None

    def whole(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._text):
            raise self._refused("an unmatched )")
        return translated

    def _refused(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"option {self._option}={brief_repr(self._text)}: {what} at position {self._at} is not supported; topics "
            "are matched by Java's regular expressions, as far as their meaning does not depend on Java"
        )

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        found = self._peek()
        self._at += 1
        return found

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _alternatives(self) -> str:
        """Translate up to the end of the pattern, or to the closing parenthesis of the group."""
        pieces: list[str] = []
        folds = self._folds
        while (here := self._peek()) and here != ")":
            pieces.append(self._piece())
        self._folds = folds
        return "".join(pieces)

    def _piece(self) -> str:
        character = self._peek()
        if character in "*+?{":
            raise self._refused(f"a {character} with nothing to repeat")
        if character in "|^$":
            self._at += 1
            if character != "|" and self._peek() and self._peek() in "*+?{":
                raise self._refused(f"a repeated {character}")
            return character
        if character == "(":
            piece = self._group()
        elif character == "[":
            self._at += 1
            piece = _of(self._class())
        elif character == "\\":
            piece = self._escape()
        else:
            piece = "." if character == "." else self._literal(character)
            self._at += 1
        return piece + self._quantifier(piece)

    def _quantifier(self, repeated: str) -> str:
        here = self._peek()
        if here and here in "*+?":
            quantifier = self._next()
        elif here == "{":
            found = self._take(_COUNT)
            if found is None:
                raise self._refused("a { that is no number of times")
            quantifier = found[0]
        else:
            return ""
        if not repeated or repeated in (r"\b", r"\B", r"\A", r"\Z"):
            raise self._refused("a repeated boundary, or nothing,")
        if self._peek() and self._peek() in "?+":
            quantifier += self._next()
        if quantifier.endswith("+") and len(quantifier) > 1 and _CAPTURING.search(repeated):
            raise self._refused("a possessive repetition of a group that captures")
        if self._peek() and self._peek() in "*+?{":
            raise self._refused("a repeated repetition")
        return quantifier

    def _literal(self, character: str) -> str:
        return _of(self._both(character)) if self._folds and character in _LETTERS else re.escape(character)

    def _both(self, character: str) -> frozenset[str]:
        return frozenset({character.lower(), character.upper()} if character in _LETTERS else {character})

    def _group(self) -> str:
        begin = self._at
        self._at += 1
        if self._peek() != "?":
            self._groups += 1
            return self._rest_of_group("(" if self._captures else "(?:", begin)
        named = self._take(_NAME)
        if named is not None:
            if named[1] in self._names:
                raise self._refused(f"a second group {named[1]}")
            self._names.add(named[1])
            self._groups += 1
            return self._rest_of_group(f"(?P<{named[1]}>" if self._captures else "(?:", begin)
        for kind in sorted(_GROUPS, key=len, reverse=True):
            if self._text.startswith(kind, self._at):
                self._at += len(kind)
                group = self._rest_of_group(f"({kind}", begin)
                if kind == "?>" and _CAPTURING.search(group):
                    raise self._refused("an atomic group that captures")
                return group
        return self._flags(begin)

    def _flags(self, begin: int) -> str:
        flags = self._take(_FLAGS)
        if flags is None:
            raise self._refused("a group of an unknown kind")
        before = self._folds
        for letters, value in ((flags[1] or "", True), (flags[2] or "", False)):
            for letter in letters:
                if letter == "i":
                    self._folds = value
                elif letter not in _WITHOUT_EFFECT:
                    raise self._refused(f"the flag {letter}")
        if flags[3] == ")":
            return ""
        group = self._rest_of_group("(?:", begin)
        self._folds = before
        return group

    def _rest_of_group(self, opening: str, begin: int) -> str:
        inner = self._alternatives()
        if self._next() != ")":
            self._at = begin
            raise self._refused("a ( that is not closed")
        return f"{opening}{inner})"

    def _escape(self) -> str:
        self._at += 1
        character = self._peek()
        if character and character in "123456789":
            return self._reference()
        if character == "Q":
            self._at += 1
            return self._quoted()
        if character and character in "bBA":
            self._at += 1
            if self._peek() == "{":
                raise self._refused(f"\\{character}{{")
            return f"\\{character}"
        if character and character in "Zz":
            self._at += 1
            return r"\Z"
        if character == "k":
            self._at += 1
            found = self._take(_GROUP_NAME)
            if found is None:
                raise self._refused("\\k without a name")
            return f"(?i:(?P={found[1]}))" if self._folds else f"(?P={found[1]})"
        found_set = self._escaped_set()
        if found_set is not None:
            return _of(found_set)
        return self._literal(self._escaped_character())

    def _reference(self) -> str:
        """Translate a numbered reference. As in Java, a digit belongs to the number only if such a group exists."""
        number = int(self._next())
        while self._peek() and self._peek() in _DIGITS and number * 10 + int(self._peek()) <= self._groups:
            number = number * 10 + int(self._next())
        if number > self._groups:
            raise self._refused(f"\\{number} before group {number}")
        return f"(?i:\\{number})" if self._folds else f"(?:\\{number})"

    def _quoted(self) -> str:
        r"""Translate the quoted text up to \E. A quantifier after it applies to the last character."""
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        literals = [self._literal(character) for character in quoted]
        return "".join(literals)

    def _escaped_set(self) -> frozenset[str] | None:
        r"""Read a class such as \d or \p{Alnum}. Returns None if an escaped character comes next."""
        here = self._peek()
        if here and here in "pP":
            self._at += 1
            return self._property(negated=here == "P")
        if here and here.lower() in _CLASSES:
            self._at += 1
            found = _CLASSES[here.lower()]
            return _ALL - found if here.isupper() else found
        return None

    def _property(self, *, negated: bool) -> frozenset[str]:
        begin = self._at
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                raise self._refused("a \\p{ that is not closed")
            name, self._at = self._text[self._at : end], end + 1
        found = _POSIX.get(name) or _BINARY.get(name)
        category = name.removeprefix("Is")
        if found is None and category in _CATEGORIES:
            found = frozenset(character for character in _ALL if unicodedata.category(character).startswith(category))
        if found is None or (self._folds and name in _SINGLE_CASE):
            self._at = begin
            raise self._refused(f"the property {name!r}" + (" under the flag i" if found is not None else ""))
        return _ALL - found if negated else found

    def _escaped_character(self) -> str:
        character = self._next()
        if character in _CHARACTERS:
            return _CHARACTERS[character]
        if character == "0":
            return chr(int(self._expect(_OCTAL, "\\0")[0], 8))
        if character in _HEX:
            found = self._expect(_HEX[character], f"\\{character}")
            code = int(found[1] or found[2], 16)
            if code > 0x10FFFF:
                raise self._refused(f"\\{character}")
            return chr(code)
        if character == "c" and self._peek():
            return chr(ord(self._next()) ^ 64)
        if not character or character in _LETTERS or character in _DIGITS:
            self._at -= 1
            raise self._refused(f"\\{character}")
        return character

    def _expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = self._take(pattern)
        if found is None:
            raise self._refused(what)
        return found

    # --- classes: sets of characters ---

    def _class(self) -> frozenset[str]:
        """Read a class in brackets. The position is after its [ before the call, and after its ] afterwards."""
        begin = self._at
        negated = self._peek() == "^"
        self._at += negated
        members: frozenset[str] | None = None
        operand: frozenset[str] | None = None
        while (here := self._peek()) != "]" or operand is None:
            if not here:
                self._at = begin
                raise self._refused("a [ that is not closed")
            if self._text.startswith("&&", self._at):
                if operand is None or self._text.startswith("&&&", self._at):
                    raise self._refused("a && without two sides")
                members, operand = operand if members is None else members & operand, None
                self._at += 2
                if self._peek() in ("]", "&", "^"):
                    raise self._refused("a && without two sides")
                continue
            operand = (operand or frozenset()) | self._item()
        self._at += 1
        whole = operand if members is None else members & operand
        return _ALL - whole if negated else whole

    def _item(self) -> frozenset[str]:
        here = self._peek()
        if here == "[":
            self._at += 1
            return self._class()
        if here == "\\":
            self._at += 1
            if self._peek() == "Q":
                raise self._refused("\\Q within [ ]")
            found = self._escaped_set()
            if found is not None:
                return found
            first = self._escaped_character()
        else:
            first = self._next()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("", "]", "["):
            return self._both(first) if self._folds else frozenset({first})
        self._at += 1
        if self._peek() == "\\":
            self._at += 1
            if self._peek() in ("Q", "p", "P") or self._peek().lower() in _CLASSES:
                raise self._refused("a range that ends with a class")
            last = self._escaped_character()
        else:
            last = self._next()
        if last < first:
            raise self._refused(f"the range {first}-{last}")
        between = frozenset(character for character in _ALL if first <= character <= last)
        return frozenset().union(*map(self._both, between)) if self._folds and between else between


def _of(characters: frozenset[str]) -> str:
    """Return a pattern for exactly one of these characters."""
    inside: Callable[[frozenset[str]], str] = lambda some: "".join(re.escape(character) for character in sorted(some))  # noqa: E731
    some = frozenset(character for character in characters if character in _ALL)
    if not some:
        return r"(?!)"  # never matches, because no topic name has such a character
    if some == _ALL:
        return r"[\x00-\x7f]"
    return f"[{inside(some)}]" if len(some) <= 64 else f"[^{inside(_ALL - some)}]"
