"""Wrong values of options: status 2, the option's name, and the reason in words, without names of the code."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fencepost import small_files
from fencepost.cli.main import main

OF_THE_CODE = re.compile(
    r"Errno|Traceback|Error:.*(?:Error\b|Exception)|Input should|invalid \w+ value|unable to parse|<\w+ '"
)


DIGITS = "9" * 5_000  # more than int() reads


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "bad.properties").write_bytes(b"bootstrap.servers=a:1\nbad line\n")
    (tmp_path / "digits").write_text(DIGITS)
    os.mkfifo("fifo")


WRONG = {
    "ui --cluster a": "--cluster: 'a' is not NAME=FILE",
    "ui --cluster a=": "--cluster: 'a=' is not NAME=FILE",
    "ui --cluster a=/nope": "--cluster: /nope: No such file or directory",
    "ui --cluster a=dir": "--cluster: dir: Is a directory",
    "ui --cluster a=empty": "--cluster: empty has no bootstrap.servers",
    "ui --port 70000": "--port: must be a whole number from 0 to 65535",
    "ui --port x": "--port: must be a whole number from 0 to 65535",
    "ui --every 0": "--every: must be a number from 0.1 to 31622400",
    "topics create x -p many": "--partitions: must be a whole number, -1 or more",
    "topics create x -p 99999999999": "--partitions: must be a whole number, -1 or more, and at most 2147483647",
    "topics create x --config a": "--config: 'a' is not NAME=VALUE",
    "topics create": "Missing argument NAME",
    "topics create a b": "unexpected argument: b",
    "topics list --command-config /nope": "--command-config: /nope: No such file or directory",
    "topics list --command-config dir": "--command-config: dir: Is a directory",
    "consume x --max 0": "--max: must be a whole number, 1 or more",
    "spark forget s --query q --lost maybe": "--lost: must be accept or again",
    "check empty --limit 0": "--limit: must be a whole number, 1 or more",
    "check empty --html dir": "--html: dir is a directory",
    "check empty --html no/x.html": "--html: there is no directory no",
    "check empty --html dir/../empty": "--html: dir/../empty is HISTORY, and would be replaced",
    "torture --start fencepost --html history.jsonl": "--html: history.jsonl is --history, and would be replaced",
    "simulate --world clients --history x --resume x": "--history: x is --resume, and would be replaced",
    "torture --start fencepost --history dir": "--history: dir is a directory",
    "torture --start fencepost --html no/x.html": "--html: there is no directory no",
    "simulate --world clients --history dir": "--history: dir is a directory",
    "simulate --resume no/x": "--resume: there is no directory no",
    "repair": "Missing option --data-dir",
    "broker --ui x": "--ui: 'x' is not a port from 0 to 65535",
    "broker --ui 70000": "--ui: '70000' is not a port from 0 to 65535",
    "broker --metrics-port -1": "--metrics-port: '-1' is not a port from 0 to 65535",
    "broker --listen x": "--listen: 'x' is not HOST:PORT with a port from 0 to 65535",
    "broker --config a": "--config: 'a' is not NAME=VALUE",
    "broker --config-file /nope": "--config-file: /nope: No such file or directory",
    "broker extra": "unexpected argument: extra",
    "broker --data-dir": "--data-dir: a value is missing",
    "broker --datadir x": "No such option: --datadir; did you mean '--data-dir'?",
    "broker --nothing": "No such option: --nothing",
    "broker 127.0.0.1:1": "unexpected argument: 127.0.0.1:1; did you mean '--listen 127.0.0.1:1'?",
    "broker a.b=1": "unexpected argument: a.b=1; did you mean '--config a.b=1'?",
    "broker --config auto.create.topic.enable=1": "no broker setting 'auto.create.topic.enable'; did you mean "
    "'auto.create.topics.enable'?",
    "topics create x --partition 3": "No such option: --partition; did you mean '--partitions'?",
    "topics list --nothing": "No such option: --nothing",
    "--verson": "No such option: --verson; did you mean '--version'?",
    "topics --hlep": "No such option: --hlep; did you mean '--help'?",
    "doctor --watch": "--watch: a value is missing",
    "topics create x --partitions": "--partitions: a value is missing",
    "doctor a:9092": "unexpected argument: a:9092; did you mean '--bootstrap-servers a:9092'?",
    "configs alter topic x a.b=1": "unexpected argument: a.b=1; did you mean '--set a.b=1'?",
    "topics create x a.b=1": "unexpected argument: a.b=1; did you mean '--config a.b=1'?",
    "groups reset-offsets g -b 127.0.0.1:1": "Error: either --to or --shift-by is required",
    f"groups reset-offsets g --topic t --to {DIGITS} -b 127.0.0.1:1": "is none of beginning",
    f"groups reset-offsets g --topic t:{DIGITS} --to end -b 127.0.0.1:1": "is not TOPIC or TOPIC:0,1,2",
    f"consume x --from {DIGITS}": "is none of beginning",
    f"consume x --to -{DIGITS}": "is none of beginning",
    f"configs describe broker {DIGITS}": "is not a broker's id",
    f"topics list -b a:{DIGITS}": "is not a port",
    f"broker --listen a:{DIGITS}": "is not HOST:PORT with a port from 0 to 65535",
    f"broker --ui {DIGITS}": "is not a port from 0 to 65535",
    f"broker --config listeners=PLAINTEXT://a:{DIGITS}": "is not NAME://HOST:PORT",
    "simulate --resume digits": "--resume: digits holds no seed",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_value_is_named_with_its_reason(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert WRONG[line] in error.splitlines()[-1]
    assert error.startswith("Usage: fencepost ")
    assert ("did you mean" in error) == ("did you mean" in WRONG[line])
    assert OF_THE_CODE.search(error) is None


FILES = {
    "broker --config log.dirs= --listen 127.0.0.1:0": (2, "log.dirs is empty: name a directory, or leave the setting"),
    "broker --config log.dir= --listen 127.0.0.1:0": (2, "log.dirs is empty: name a directory, or leave the setting"),
    "dump /nope": (1, "fencepost: /nope: No such file or directory"),
    "dump fifo": (1, "fencepost: fifo: this is not a regular file; name the segments to print"),
    "check /nope": (2, "fencepost: /nope: No such file or directory"),
    "check dir": (2, "fencepost: dir: Is a directory"),
    "repair --data-dir /nope": (2, "fencepost: '/nope' is no directory"),
    "repair --data-dir empty": (2, "fencepost: 'empty' is no directory"),
    "consume x --output dir -b 127.0.0.1:1": (2, "--output"),
    "broker --data-dir /proc/x --listen 127.0.0.1:0": (1, "/proc/x: the data directory cannot be made: No such file"),
    "broker --data-dir empty --listen 127.0.0.1:0": (1, "empty: Not a directory"),
    "users set-password a --password-file fifo -b 127.0.0.1:1": (1, "fencepost: fifo: a pipe to which nobody wrote"),
}


@pytest.mark.parametrize("line", FILES)
def test_a_file_that_cannot_be_used_is_named_once(
    line: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_files, "PIPE_WAIT_MS", 50)
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    error = capsys.readouterr().err + "".join(caplog.messages)
    assert (ended.value.code, FILES[line][1] in error) == (FILES[line][0], True), error
    assert OF_THE_CODE.search(error) is None
