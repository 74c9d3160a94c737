r"""Full-match patterns of ListTransactions, in RE2's syntax and with its linear matching time.

Python's `re` backtracks, so one request with ``(a+)+b`` could block the broker for hours. This module compiles a
pattern to a small nondeterministic automaton. The sets of its states that occur become states of a deterministic
automaton, which are cached. Each character of an id then costs one dictionary look-up, and at worst one pass over the
automaton.

Syntax: literals, ``.``, classes with ranges and ``\d \w \s``, groups (plain, ``?:``, named), ``|``, ``* + ? {n,m}``
(also lazy), ``^ $ \A \z \b \B``, flags ``(?i)`` and ``(?s)`` at the start. As in RE2, look-around, back references,
atomic groups and possessive repeats are errors. Unlike in RE2, ``\p``, ``\Q``, POSIX classes and flags elsewhere are
also errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_MAX_LENGTH: Final = 1_000
_MAX_REPEAT: Final = 1_000
_MAX_INSTRUCTIONS: Final = 2_000
_MAX_DEPTH: Final = 50
_MAX_CACHED_SETS: Final = 500

Accepts = Callable[[str], bool]


class InvalidPattern(ValueError):
    """The text is not a regular expression, uses constructs that RE2 does not have, or is too large."""


@dataclass(slots=True)
class _Node:
    """A node of the syntax tree. ``kind``: char, assert, concat, alternate, repeat."""

    kind: str
    parts: list[_Node] = field(default_factory=list)
    accepts: Accepts | None = None
    assertion: str = ""
    least: int = 0
    most: int | None = None


@dataclass(slots=True)
class _Instruction:
    """An instruction of the automaton.

    char: consume a character and go to ``targets[0]``; split: go to each target; assert: go on if the assertion holds;
    match: the pattern has matched.
    """

    kind: str
    targets: list[int]
    accepts: Accepts | None = None
    assertion: str = ""


class Pattern:
    """A compiled pattern. `matches` is linear in the length of the text."""

    def __init__(self, instructions: list[_Instruction], start: int) -> None:
        self._instructions = instructions
        self._start = start
        self._next: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Return true if the whole text matches."""
        states = frozenset((self._start,))
        before = ""
        for character in text:
            # Assertions depend on both neighbours, so the key includes the character before; "" is the start.
            key = (states, before, character)
            following = self._next.get(key)
            if following is None:
                if len(self._next) >= _MAX_CACHED_SETS:
                    self._next.clear()
                following = self._next[key] = self._step(self._closure(states, before, character), character)
            if not following:
                return False
            states, before = following, character
        return any(self._instructions[at].kind == "match" for at in self._closure(states, before, ""))

    def _step(self, states: set[int], character: str) -> frozenset[int]:
        reached = set()
        for at in states:
            instruction = self._instructions[at]
            if instruction.accepts is not None and instruction.accepts(character):
                reached.add(instruction.targets[0])
        return frozenset(reached)

    def _closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Return all instructions reachable between two characters without consuming one ("" is an end of the text)."""
        reached: set[int] = set()
        pending = list(states)
        while pending:
            at = pending.pop()
            if at in reached:
                continue
            reached.add(at)
            instruction = self._instructions[at]
            if instruction.kind == "split" or (
                instruction.kind == "assert" and _holds(instruction.assertion, before, after)
            ):
                pending.extend(instruction.targets)
        return reached


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern.

    Raises:
        InvalidPattern: The pattern is not supported.
    """
    if len(text) > _MAX_LENGTH:
        raise InvalidPattern(f"longer than {_MAX_LENGTH} characters")
    root = _Parser(text).parse()
    instructions = [_Instruction("match", [])]
    start = _emit(root, 0, instructions)
    return Pattern(instructions, start)


def _holds(assertion: str, before: str, after: str) -> bool:
    if assertion == "start":
        return before == ""
    if assertion == "end":
        return after == ""
    boundary = _is_word(before) != _is_word(after)
    return boundary if assertion == "boundary" else not boundary


def _emit(node: _Node, following: int, out: list[_Instruction]) -> int:
    """Append the node's instructions, which continue at ``following``; return the index of the first one."""
    if node.kind == "concat":
        for part in reversed(node.parts):
            following = _emit(part, following, out)
        return following
    if node.kind == "alternate":
        return _append(out, _Instruction("split", [_emit(part, following, out) for part in node.parts]))
    if node.kind == "repeat":
        return _emit_repeat(node, following, out)
    return _append(out, _Instruction(node.kind, [following], node.accepts, node.assertion))


def _emit_repeat(node: _Node, following: int, out: list[_Instruction]) -> int:
    (part,) = node.parts
    start = following
    if node.most is None:
        start = _append(out, _Instruction("split", [following]))
        out[start].targets.append(_emit(part, start, out))
    else:
        for _ in range(node.most - node.least):
            start = _append(out, _Instruction("split", [following, _emit(part, start, out)]))
    for _ in range(node.least):
        start = _emit(part, start, out)
    return start


def _append(out: list[_Instruction], instruction: _Instruction) -> int:
    if len(out) >= _MAX_INSTRUCTIONS:
        raise InvalidPattern("too large when its repeats are written out")
    out.append(instruction)
    return len(out) - 1


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _is_digit(character: str) -> bool:
    return character.isascii() and character.isdigit()


def _is_space(character: str) -> bool:
    return character != "" and character in "\t\n\f\r "


def _none_of(accepts: Accepts) -> Accepts:
    return lambda character: not accepts(character)


def _between(low: str, high: str, fold: bool) -> Accepts:
    if not fold:
        return lambda character: low <= character <= high
    return lambda character: low <= character.lower() <= high or low <= character.upper() <= high


_CLASSES: Final[dict[str, Accepts]] = {
    "d": _is_digit,
    "w": _is_word,
    "s": _is_space,
    "D": _none_of(_is_digit),
    "W": _none_of(_is_word),
    "S": _none_of(_is_space),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ASSERTIONS: Final = {"A": "start", "z": "end", "b": "boundary", "B": "no boundary"}


class _Parser:
    """Recursive descent over the pattern's characters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._fold = self._dot_all = False

    def parse(self) -> _Node:
        self._flags()
        node = self._alternation()
        if self._at != len(self._text):
            raise InvalidPattern(f"unexpected {self._peek()!r} at {self._at}")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise InvalidPattern("ends too early")
        self._at += 1
        return character

    def _skip(self, prefix: str) -> bool:
        found = self._text.startswith(prefix, self._at)
        self._at += len(prefix) if found else 0
        return found

    def _flags(self) -> None:
        while self._text.startswith(("(?i)", "(?s)", "(?is)", "(?si)"), self._at):
            flags = self._text[self._at + 2 : self._text.index(")", self._at)]
            self._fold, self._dot_all = self._fold or "i" in flags, self._dot_all or "s" in flags
            self._at += len(flags) + 3

    def _alternation(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InvalidPattern("groups are nested too deeply")
        parts = [self._concatenation()]
        while self._skip("|"):
            parts.append(self._concatenation())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _Node("alternate", parts)

    def _concatenation(self) -> _Node:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated())
        return _Node("concat", parts)

    def _repeated(self) -> _Node:
        node = self._atom()
        limits = self._limits()
        if limits is None:
            return node
        self._skip("?")
        if (self._peek() and self._peek() in "*+?") or self._limits() is not None:
            raise InvalidPattern(f"a repeat of a repeat at {self._at}")
        return _Node("repeat", [node], least=limits[0], most=limits[1])

    def _limits(self) -> tuple[int, int | None] | None:
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return limits
        start = self._at
        if not self._skip("{"):
            return None
        inside, closed, _ = self._text[self._at :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not _is_number(low) or (high and not _is_number(high)):
            self._at = start  # as in RE2, a brace that is no repeat is a literal
            return None
        self._at += len(inside) + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > _MAX_REPEAT or (most is not None and not least <= most <= _MAX_REPEAT):
            raise InvalidPattern(f"repeat {{{inside}}}")
        return least, most

    def _atom(self) -> _Node:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return _Node("char", accepts=self._class())
        if character == "\\":
            return self._escape()
        if character in "*+?":
            raise InvalidPattern(f"nothing to repeat at {self._at - 1}")
        if character in "^$":
            return _Node("assert", assertion="start" if character == "^" else "end")
        if character == ".":
            every = self._dot_all
            return _Node("char", accepts=lambda char: every or char != "\n")
        return self._literal(character)

    def _group(self) -> _Node:
        if self._skip("?") and not self._skip(":"):
            named = self._skip("P<") or (self._skip("<") and self._peek() not in ("=", "!"))
            name, closed, _ = self._text[self._at :].partition(">")
            if not named or not closed or not name.isidentifier():
                raise InvalidPattern(f"group syntax at {self._at}")
            self._at += len(name) + 1
        node = self._alternation()
        if not self._skip(")"):
            raise InvalidPattern("missing )")
        return node

    def _literal(self, character: str) -> _Node:
        return _Node("char", accepts=_between(character, character, self._fold))

    def _escape(self) -> _Node:
        if self._peek() in _ASSERTIONS and self._peek():
            return _Node("assert", assertion=_ASSERTIONS[self._take()])
        if self._peek() in _CLASSES and self._peek():
            return _Node("char", accepts=_CLASSES[self._take()])
        return self._literal(self._escaped())

    def _escaped(self) -> str:
        """Return the character of an escape whose backslash has been consumed."""
        character = self._take()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            digits = self._text[self._at : self._at + 2]
            if len(digits) != 2 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise InvalidPattern("\\x needs two hexadecimal digits")
            self._at += 2
            return chr(int(digits, 16))
        if character.isalnum():
            raise InvalidPattern(f"escape \\{character}")
        return character

    def _class(self) -> Accepts:
        negated = self._skip("^")
        members: list[Accepts] = []
        while not (self._peek() == "]" and members):
            if self._text.startswith("[:", self._at):
                raise InvalidPattern("POSIX classes are not supported")
            low = self._take()
            if low == "\\":
                if self._peek() and self._peek() in _CLASSES:
                    members.append(_CLASSES[self._take()])
                    continue
                low = self._escaped()
            high = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._take()
                high = self._escaped() if high == "\\" else high
            if high < low:
                raise InvalidPattern(f"range {low}-{high}")
            members.append(_between(low, high, self._fold))
        self._at += 1
        accepts: Accepts = lambda char: any(member(char) for member in members)  # noqa: E731
        return _none_of(accepts) if negated else accepts


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
