"""Small Java programs of the tests, compiled and run beside the jars of Apache Kafka."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.apache_kafka import (
    SHORT_LIVED,
    TOOL,
    Unavailable,
    class_archive,
    create_once,
    jars_folder,
    java_command,
)

__all__ = ["compile_java", "java_program"]


def compile_java(sources: Iterable[Path], folder: Path, jars: str | None = None) -> None:
    """Into `folder`. `jars`: a class path, if not Kafka's. Raises `Unavailable` without a compiler.

    What was compiled is kept: it takes longer than the program mostly runs.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("this test is driven by a small Java program, and there is no `javac` in PATH")
    files = list(sources)
    quickly = [f"-J{option}" for option in SHORT_LIVED]
    path = jars or f"{jars_folder()}/*"

    def compiled(target: Path) -> None:
        command = [compiler, *quickly, "-nowarn", "-d", str(target), "-cp", path, *map(str, files)]
        subprocess.run(command, check=True)

    kind = hashlib.sha256(f"{Path(compiler).resolve()}\n{path}\n".encode())
    for file in files:
        kind.update(file.read_bytes())
    cached = create_once(jars_folder().parent / f"compiled-{kind.hexdigest()[:16]}", compiled)
    shutil.copytree(cached, folder, dirs_exist_ok=True)


def java_program(
    name: str, *arguments: str, folder: Path, options: Sequence[str] = TOOL, more_jars: Path | None = None
) -> list[str]:
    """The command line. Kafka's jars come first: an archive of classes is only for a class path that begins as its
    own."""
    path = [f"{jars_folder()}/*", *([] if more_jars is None else [f"{more_jars}/*"]), str(folder)]
    return [java_command(), *options, *class_archive(), "-cp", ":".join(path), name, *arguments]
