"""Patterns of ListTransactions, against Python's `re` where the two mean the same, and against hostile ones."""

from __future__ import annotations

import random
import re

import pytest

from fencepost.protocol.re2 import InvalidPattern, compile_pattern

SAME = [
    "",
    "abc",
    "a|b|",
    "(ab|a)(c|bcd)(d*)",
    "a*b+c?",
    "a{2}",
    "a{2,}b",
    "a{1,3}",
    "a{0}",
    "{a}",
    "a*?b+?",
    "(?:ab)*",
    "(?P<name>a|b)c",
    "[abc]+",
    "[^abc]*",
    "[a-c0-9_.-]+",
    "[]a]+",
    "[a\\]b]+",
    "[\\d\\-x]+",
    "[^\\w]",
    ".*",
    "a.c",
    "^a.*b$",
    "^$",
    "\\Aab*",
    "\\bab\\b.*",
    "a\\Bb.*",
    "\\d+\\D*",
    "\\w+-\\w+",
    "\\s*a",
    "\\.\\*\\\\",
    "\\x61b",
    "(?i)AbC",
    "(?i)[A-b]+",
    "(?s)a.b",
    "sink-[0-9a-f]{8}-\\d+",
    "(a|ab)(bc|c)*",
    "((a*)b)*",
]


def texts(pattern: str) -> list[str]:
    draw = random.Random(pattern)
    drawn = ["".join(draw.choices("abcdABCx0123-_.*\\ \n{},]^$", k=draw.randrange(8))) for _ in range(400)]
    return [
        *drawn,
        "",
        "abc",
        "aab",
        "ab",
        "bcd",
        "abcd",
        "a-b",
        "sink-0123abcd-7",
        "a\nb",
        "a b",
        ".*\\",
        "aaa",
        "aa",
        "ac",
        "-",
        "{a}",
    ]


@pytest.mark.parametrize("pattern", SAME)
def test_as_python_s(pattern: str) -> None:
    ours, theirs = compile_pattern(pattern), re.compile(pattern.replace("\\z", "\\Z"), re.ASCII)
    matched = 0
    for text in texts(pattern):
        # Python's $ also matches before a final newline; RE2's does not.
        expected = theirs.fullmatch(text) is not None
        assert ours.matches(text) == expected, text
        matched += expected
    assert matched > 0


def test_where_re2_differs_from_python() -> None:
    assert compile_pattern("x{,3}").matches("x{,3}")
    assert not compile_pattern("x{,3}").matches("xx")
    assert not compile_pattern("a$").matches("a\n")
    assert compile_pattern("a\\z").matches("a")


REFUSED = """
( ) a) [ [] [b-a] * +a a** a+* a{2}{3} a{3,2} a{1001} \\ \\1 \\k \\x6 [[:alpha:]] \\pL
(?=a) (?!a) (?<=a) (?<!a) (?>a) a++ (?P=n) (?#c) (? (?P<1>a) ((a{100}){100}){100} (a{0,1000}){3}
""".split()


@pytest.mark.parametrize("pattern", [*REFUSED, "(" * 60 + ")" * 60, "a" * 1001])
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)


HOSTILE = "(a+)+b (a|a)*b (a*)*b (a|aa)+$b (.*)(.*)(.*)(.*)(.*)x (a?){200}a{200}b".split()


@pytest.mark.parametrize("pattern", HOSTILE)
def test_no_pattern_is_slow(pattern: str) -> None:
    """Python's `re` would need longer than anybody lives for most of these."""
    matcher = compile_pattern(pattern)
    for text in ("a" * 2_000, "a" * 1_999 + "c"):
        assert not matcher.matches(text)


def test_the_cache_is_bounded() -> None:
    matcher = compile_pattern("(a|b)*a(a|b){12}")
    draw = random.Random(1)
    matched = 0
    for _ in range(300):
        text = "".join(draw.choices("ab", k=40))
        expected = text[-13] == "a"
        assert matcher.matches(text) is expected
        matched += expected
    assert matched > 50
    assert len(matcher._next) <= 500
