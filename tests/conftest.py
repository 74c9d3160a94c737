"""What every test can use: a real Apache Kafka, and skips that cannot hide in CI.

A test that needs Apache Kafka, Java, Spark or Go carries the marker of that name and is skipped where the machine
lacks it. With CI=true such a skip fails the run: a machine that should run everything must not quietly run less.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Generator, Iterator

import pytest

from tests.support.apache_kafka import ApacheKafka, Unavailable, unavailable_reason

NEEDS_MORE = ("java", "spark", "kafka", "go", "postgresql")
WANTING = "skipped for want of"
skipped_in_ci: pytest.StashKey[Skipped] = pytest.StashKey()


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@functools.cache
def _missing_java() -> str | None:
    from fencepost.spark.java import JavaNotFound, java_home

    try:
        runtime = java_home()
    except JavaNotFound as reason:
        return str(reason)
    os.environ.update(runtime.environment())  # PySpark and Kafka's classes both look here
    return None


@functools.cache
def _missing_kafka() -> str | None:
    return unavailable_reason()


class Skipped:
    """Which tests were skipped for want of something. Reports of parallel workers all come to the main process."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.lines += [f"{report.nodeid}: {reason}" for name, reason in report.user_properties if name == WANTING]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[skipped_in_ci] = Skipped()
    config.pluginmanager.register(config.stash[skipped_in_ci])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (item.get_closest_marker("java") or item.get_closest_marker("spark")) and (reason := _missing_java()):
        pytest.skip(reason)
    if item.get_closest_marker("kafka") and (reason := _missing_kafka()):
        pytest.skip(reason)
    if item.get_closest_marker("go") and shutil.which("go") is None:
        pytest.skip("franz-go is compiled with Go, and there is no `go` in PATH")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and any(item.get_closest_marker(name) for name in NEEDS_MORE):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.user_properties.append((WANTING, reason))
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if in_ci() and session.config.stash[skipped_in_ci].lines and exitstatus in {pytest.ExitCode.OK, 0}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = config.stash[skipped_in_ci].lines
    if in_ci() and skipped:
        terminalreporter.section("FAILED because CI=true: tests were skipped for want of what they need")
        for line in skipped:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """One Apache Kafka node for the whole run; use names of your own for topics, groups and transactional ids."""
    try:
        # Kafka would wait a second between two assignments of a consumer group.
        with ApacheKafka(properties={"group.consumer.assignment.interval.ms": 0}) as kafka:
            yield kafka
    except Unavailable as reason:
        pytest.skip(str(reason))
