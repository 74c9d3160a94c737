"""Properties files and JAAS lines are read as Java reads them: java.util.Properties and Kafka's JaasConfig, asked in
the same run over thousands of generated texts."""

from __future__ import annotations

import base64
import logging
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from fencepost.broker.settings.values import BrokerConfig
from fencepost.config import ConsumerConfig
from fencepost.jaas import quoted, read_jaas
from fencepost.properties import read_properties, read_settings
from tests.support.apache_kafka import run_kafka_class

_PROGRAM = Path(__file__).with_name("JavaReads.java")
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "authorizer.class.name"

# Pieces of which files are made: each means something to the reader somewhere.
_PIECES = (
    *("a", "b", "name", "x.y", "=", ":", " ", "\t", "\f", "\\", "\\\\", "\\\n", "\\\r", "\\\r\n", "\n", "\r", "\r\n"),
    *("#", "!", "\n#", "\n !", "\\=", "\\:", "\\#", "\\ ", "\\t", "\\n", "\\r", "\\f", "\\u00e9", "\\u00E9", "\\u12"),
    *(
        "\\ud83d\\ude00",
        "\\ud83d",
        "\\ude00",
        "\\U0041",
        "é",
        "ÿ",
        "\x85",
        "\xa0",
        "\x0b",
        "\x1c",
        "\0",
        "[s]",
        "%(a)s",
    ),
    *("${a}", '"', "'", "  = ", " : ", " \\\n  ", "\\\n\n", "\\\n#c\n"),
)
_JAAS_PIECES = (
    *("user", "pass-word", "a.b", "_x", "$y", "=", "=", ";", '"v"', "'w'", '"a\\"b"', "'a\\'b'", '"\\101"', '"\\1"'),
    *('"\\477"', '"\\n\\t\\q"', '"', "'", "\\", " ", " ", "\n", "\r", "// c\n", "/* c */", "/* c", "/", "1", "1.5"),
    *("-", "-2", ".", "@", "é", "\x85", "\xa0", "😀", "#", ",", '"a\nb"', '"//"', "a='b' ", 'c="d" ', "e=f ", "\\\n"),
)


def _text_of_file(rng: random.Random) -> str:
    return "".join(rng.choice(_PIECES) for _ in range(rng.randint(1, 14)))


def _jaas_line(rng: random.Random) -> str:
    options = "".join(rng.choice(_JAAS_PIECES) for _ in range(rng.randint(0, 9)))
    flag = rng.choice(("required", "Optional", "requisite", "sufficient", '"required"', "wanted"))
    return rng.choice(("", "", "// c\n", "/**/")) + f"{MODULE} {flag} {options}" + rng.choice((";", ";", ";", "; ", ""))


def _asked_of_java(asked: Iterable[tuple[str, bytes]], folder: Path) -> list[dict[str, str] | None]:
    file = folder / "asked"
    file.write_text("".join(f"{kind} {base64.b64encode(data).decode()}\n" for kind, data in asked))
    done = run_kafka_class(str(_PROGRAM), str(file))
    assert done.returncode == 0, done.stderr
    return [None if line == "refused" else _pairs(line) for line in done.stdout.splitlines()]


def _pairs(line: str) -> dict[str, str]:
    def text(part: str) -> str:
        return "(none)" if part == "none" else base64.b64decode(part).decode("utf-16-be", "surrogatepass")

    return {text(name): text(value) for name, value in (pair.split(":") for pair in line.split())}


def _cannot_be_used(pairs: dict[str, str]) -> bool:
    """Return true if Java reads an empty name, or a lone surrogate in a name or value. No setting has either."""
    return "" in pairs or any("\ud800" <= letter <= "\udfff" for text in (*pairs, *pairs.values()) for letter in text)


@pytest.mark.kafka
@pytest.mark.java
def test_files_are_read_as_java_reads_them(tmp_path: Path) -> None:
    rng = random.Random(20261126)
    texts = [_text_of_file(rng) for _ in range(6000)]
    kinds = [rng.choice(("bytes", "reader")) for _ in texts]
    files = [
        text.encode("utf-8" if kind == "reader" else "iso-8859-1") for text, kind in zip(texts, kinds, strict=True)
    ]
    read = refused = 0
    for kind, data, java in zip(kinds, files, _asked_of_java(zip(kinds, files, strict=True), tmp_path), strict=True):
        file = tmp_path / "x.properties"
        file.write_bytes(data)
        try:
            ours = read_properties(file, "utf-8" if kind == "reader" else "iso-8859-1")
        except ValueError:
            assert java is None or _cannot_be_used(java), (data, java)
            refused += 1
            continue
        # A backslash as the last line of all is a setting without name and value to Java.
        assert java in (ours, {"": ""} | ours), data
        read += bool(ours)
    assert read > 3000
    assert refused > 300


@pytest.mark.kafka
@pytest.mark.java
def test_jaas_lines_are_read_as_kafka_reads_them(tmp_path: Path) -> None:
    rng = random.Random(20261127)
    lines = [_jaas_line(rng) for _ in range(6000)]
    words = ["".join(rng.choice("\"\\\n\r\t;=/ aé😀'") for _ in range(rng.randint(0, 6))) for _ in range(500)]
    lines += [f'{MODULE} required username="a" password={quoted(word)};' for word in words]
    asked = _asked_of_java((("jaas", line.encode()) for line in lines), tmp_path)
    read = refused = 0
    for line, java in zip(lines, asked, strict=True):
        try:
            module = read_jaas(line)
        except ValueError:
            # A name that is a number or a special character is no name to Java, and it passes the option over.
            assert java is None or "(none)" in java, (line, java)
            refused += 1
            continue
        assert java == {**module.options, "the module": module.name}, line
        read += 1
    assert read > 1000
    assert refused > 1000
    for line, word in zip(lines[6000:], words, strict=True):
        assert read_jaas(line).options == {"username": "a", "password": word}


@pytest.mark.parametrize(
    "before", ["# in C:\\kafka\\\n", "! \\\n", "[security]=\n", "x=C:\\\\\n", "#\\\r\n", "\\\n", "y\n"]
)
def test_no_line_takes_the_next_one_away(before: str, tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes(f"{before}{AUTHORIZER}=x\n".encode())
    assert read_properties(file)[AUTHORIZER] == "x"


def test_what_java_wrote_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes(b'#Thu\r\nsasl.jaas.config=Login required password\\="pa\\:ss\\=1\\\\" ;\r\nb=\\ \\u00E9 \r\n')
    assert read_properties(file) == {"sasl.jaas.config": 'Login required password="pa:ss=1\\" ;', "b": " é "}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a.b=1\nc=\\u12\n", r"line 2: \u needs four hexadecimal digits"),
        (b"a.b=1\n\n =secret\n", "line 3 has no name before its value"),
        (b"a.b=\\ud83d\n", "line 1: "),
        (b"listeners=PLAINTEXT://:0\nsecret\n", "line 2 is not NAME=VALUE of a setting"),
        (b"ssl.keystore.key=-----BEGIN\nMIIsecret/12+==\n", "line 2 is not NAME=VALUE of a setting"),
        (b"[secret]\na.b=1", "line 1 is not NAME=VALUE of a setting"),
    ],
)
def test_a_line_that_cannot_be_understood_is_named_and_not_quoted(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.properties: ") as raised:
        read_settings(file)
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_name_that_is_given_twice_and_utf8_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes("a.b=1\nc.d=é\na.b=2\n".encode())
    with caplog.at_level(logging.WARNING):
        assert read_properties(file) == {"a.b": "2", "c.d": "Ã©"}
    assert "line 3 gives a.b again; line 1 has no effect" in caplog.text
    assert "line 2 holds UTF-8 and is read as ISO-8859-1" in caplog.text


def test_a_file_with_a_byte_order_mark_is_utf8(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes("\ufeffa.b=é\n".encode())
    assert read_properties(file) == {"a.b": "é"}


@pytest.mark.parametrize(
    "line",
    [
        f'{MODULE} required password="secret"',
        f'{MODULE} required password="secret;',
        f"{MODULE} required password=secret@1;",
        f"{MODULE} password='secret';",
        "secret",
        "",
    ],
)
def test_a_jaas_line_that_cannot_be_read_is_not_quoted(line: str) -> None:
    with pytest.raises(ValueError, match=r"^(the line|from character|it must|the quote)") as raised:
        read_jaas(line)
    assert "secret" not in str(raised.value)


def test_blanks_at_the_end_count_in_passwords_only(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_text("ssl.key.password=abc \nlog.retention.ms=60000 \nauto.create.topics.enable=true \n")
    settings = BrokerConfig(read_settings(file))
    assert settings.given["ssl.key.password"] == "abc "
    assert settings.number("log.retention.ms") == 60_000
    assert settings.flag("auto.create.topics.enable")
    file.write_text(
        "bootstrap.servers=a:1 \ngroup.id=g\nsasl.password=abc \nenable.auto.commit=true \nfetch.min.bytes=1 \n"
    )
    config = ConsumerConfig.from_dotted(read_settings(file) | {"sasl.username": "a"} | SASL)
    assert (config.sasl_password, config.enable_auto_commit, config.fetch_min_bytes) == ("abc ", True, 1)
