"""Java's patterns for names of topics, compared with java.util.regex itself."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from fencepost.errors import ConfigurationError
from fencepost.spark.source.java_pattern import java_pattern
from tests.support.apache_kafka import Unavailable, java_command
from tests.support.java_programs import compile_java

NAMES = ["orders", "Orders", "orders-1", "orders-q", "orders_22", "a.b", "ab", "aab", "A", "7", "q-q", "-", "abab"]


EXAMPLES: list[tuple[str, list[str]]] = [
    ("orders.*", ["orders", "orders-1", "orders-q", "orders_22"]),
    ("orders-[a-z0-9-&&[^q]]+", ["orders-1"]),
    ("[a-z&&[^q-z]]+", ["ab", "aab", "abab"]),
    ("[a[b-d]]+", ["ab", "aab", "abab"]),
    ("[^a-z&&[^0-9]]", ["A", "7", "-"]),
    (r"\p{Alnum}+", ["orders", "Orders", "ab", "aab", "A", "7", "abab"]),
    (r"\p{Lu}\P{Upper}*", ["Orders", "A"]),
    (r"\pL+", ["orders", "Orders", "ab", "aab", "A", "abab"]),
    (r"\Qa.b\E", ["a.b"]),
    (r"\Qa.b", ["a.b"]),
    (r"(?<twice>ab)\k<twice>", ["abab"]),
    (r"(ab)\1", ["abab"]),
    (r"\h*7\Z", ["7"]),
    (r"a++b", ["ab", "aab"]),
    (r"a*+ab", []),
    (r"(?i)ORDERS", ["orders", "Orders"]),
    (r"(?i:o)RDERS", []),
    (r"o(?i)RDERS|A", ["orders", "A"]),
    (r"(?i)[^o].*", ["a.b", "ab", "aab", "A", "7", "q-q", "-", "abab"]),
    (r"\x{61}\u0062", ["ab"]),
    (r"\0101", ["A"]),
    (r"(?=a).{2}", ["ab"]),
    (r"[]a-]", ["-"]),
    (r"[\w&&[^\d_]]+", ["orders", "Orders", "ab", "aab", "A", "abab"]),
]


@pytest.mark.parametrize(("pattern", "matched"), EXAMPLES)
def test_a_pattern_matches_as_in_java(pattern: str, matched: list[str]) -> None:
    compiled = java_pattern(pattern, "subscribePattern")
    assert [name for name in NAMES if compiled.fullmatch(name)] == matched


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"a\Rb", r"\\R"),
        (r"\X", r"\\X"),
        (r"\G.*", r"\\G"),
        (r"\b{g}x", r"\\b\{"),
        (r"(?x) a b", "the flag x"),
        (r"(?U)\w", "the flag U"),
        (r"\p{IsGreek}+", "the property 'IsGreek'"),
        (r"(?i)\p{Lower}", "the property 'Lower' under the flag i"),
        (r"[a-z&&]", "a && without two sides"),
        (r"[&&a]", "a && without two sides"),
        (r"[a&&&b]", "a && without two sides"),
        (r"\1(a)", r"\\1 before group 1"),
        ("a{2}{3}", "a repeated repetition"),
        ("a**", "a repeated repetition"),
        ("*a", r"a \* with nothing to repeat"),
        ("^*a", r"a repeated \^"),
        ("a{,3}", "a { that is no number of times"),
        ("a{" + "9" * 5_000 + "}", "a { that is no number of times"),
        ("a{1," + "9" * 5_000 + "}", "a { that is no number of times"),
        ("[z-a]", "the range z-a"),
        ("[a", r"a \[ that is not closed"),
        ("(a", r"a \( that is not closed"),
        ("a)", r"an unmatched \)"),
        ("(?#note)a", "a group of an unknown kind"),
        ("(?P<name>a)", "a group of an unknown kind"),
        (r"\y", r"\\y"),
        ("(?<=a+)b", "look-behind"),
        (r"(a)*+\1", "a possessive repetition of a group that captures"),
        (r"(?>(a))\1", "an atomic group that captures"),
    ],
)
def test_what_cannot_be_the_same_is_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(ConfigurationError, match=f"subscribePattern=.*{construct}"):
        java_pattern(pattern, "subscribePattern")


PIECES = (
    r"a b - _ . 1 Q \. [a-c] [^a-c] [a-z&&[^b]] [a[1-2]] [^a-z&&[^1]] [a-c-] [&a] [\w&&[^\d]] \d \D \w \W "
    r"\s \S \h \H \v \V \p{Alnum} \P{Alpha} \p{L} \pN \p{Punct} \p{IsAlphabetic} \p{Lu} \Qa.b\E \Q-\E \x61 "
    r"\u0062 \061 \x{2d} \b \B \A \Z \z ^ $ | (a) (?:b) (?<n>a) (?=a) (?!b) (?<=a) (?<!b) (?>a|ab) (?i) "
    r"(?-i) (?i:B) (?s) \1 \k<n> [A-C&&[^B]] [a^] [.] [a-d&&b-e&&[^c]] [^[a][b]] \cA \t []a] [^]a] "
    r"(?i:[^a]) (?i:[a-b&&[^B]]) (?i:\p{Lower}) [a-\x63] [+--]"
).split()
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??", "*+", "++", "?+", "{1,2}+"]


def pattern_of(source: Random) -> str:
    pattern = "".join(source.choice(PIECES) + source.choice(QUANTIFIERS) for _ in range(source.randint(1, 5)))
    return f"({pattern}){source.choice(QUANTIFIERS)}" if source.random() < 0.2 else pattern


def asked(patterns: Sequence[str], names: Sequence[str], folder: Path) -> list[tuple[list[str], list[str]] | None]:
    """The names that java.util.regex matches as a whole, and those in which it finds the pattern; None for none."""
    try:
        compile_java([Path(__file__).parents[2] / "support" / "Patterns.java"], folder)
    except Unavailable as reason:
        pytest.skip(str(reason))
    command = [java_command(), "-XX:TieredStopAtLevel=1", "-cp", str(folder), "Patterns"]
    lines = "\n".join([" ".join(names), *patterns])
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=True)
    found = done.stdout.removesuffix("\n").split("\n")
    halves = [line.split("|") for line in found]
    return [None if len(both) == 1 else (both[0].split(), both[1].split()) for both in halves]


@pytest.mark.java
def test_examples_are_javas(tmp_path: Path) -> None:
    found = asked([pattern for pattern, _ in EXAMPLES], NAMES, tmp_path)
    assert [both and both[0] for both in found] == [matched for _, matched in EXAMPLES]


@pytest.mark.java
def test_a_pattern_matches_as_in_java_or_is_refused(tmp_path: Path) -> None:
    source = Random(7)
    names = [*"abcABC1-_.", *("".join(source.choices("abcB1-_.", k=source.randint(2, 5))) for _ in range(200))]
    patterns = [pattern_of(source) for _ in range(20_000)]
    same = 0
    for pattern, matched in zip(patterns, asked(patterns, names, tmp_path), strict=True):
        try:
            compiled = java_pattern(pattern, "subscribePattern")
        except ConfigurationError:
            continue
        assert matched is not None, f"{pattern} is refused by Java"
        whole = [name for name in names if compiled.fullmatch(name)]
        found = [name for name in names if compiled.search(name)]
        assert (whole, found) == matched, f"{pattern}, here {compiled.pattern}"
        same += 1
    assert same > len(patterns) // 2
