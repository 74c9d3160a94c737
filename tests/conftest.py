"""Fixtures and skips for all tests: a real Apache Kafka, and skips that fail the run in CI.

A test that needs Apache Kafka, Java, Spark, Go or a browser carries the marker of that name and is skipped where the
machine lacks it. With CI=true such a skip fails the run, so that CI cannot run fewer tests unnoticed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.support import chromium, kafka_of_the_run, run_report
from tests.support.apache_kafka import ApacheKafka, Unavailable, unavailable_reason
from tests.support.brokers import HasAddress
from tests.support.collecting import first_ahead
from tests.support.forked_python import forked_python
from tests.support.kafka_of_the_run import KafkaOfTheRun

if TYPE_CHECKING:
    from tests.spark.session_here import SparkHere

# What took 40 seconds or more of a whole run, by the seconds it took (tests/support/run_report.py prints them after
# every run; franz-go's are those of a machine that has not compiled it yet). What is not named here comes after these.
LONGEST = (
    "tests/spark/test_adoption_killed.py",
    "tests/spark/test_killed.py",
    "tests/spark/test_differential.py",
    "tests/unit/spark/test_plan_model.py",
    "tests/test_readme.py",
    "tests/spark/test_beside_built_in.py",
    "tests/test_docs_tutorial.py",
    "tests/spark/test_interrupted.py",
    "tests/sim/test_sink_world.py",
    "tests/conformance/test_recipes_and_timeouts.py",
    "tests/sim/test_plants.py",
    "tests/conformance/test_client_consumer_groups.py",
    "tests/conformance/test_torture_kills.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_adoption_by_spark.py",
    "tests/unit/torture/test_torture.py",
    "tests/compat/test_kafka_versions.py",
    "tests/spark/test_versions.py",
    "tests/conformance/test_broker_loss.py",
    "tests/spark/test_runner.py",
    "tests/conformance/test_client_security.py",
    "tests/spark/test_connect.py",
    "tests/compat/test_librdkafka_suite.py",
    "tests/conformance/test_recipe_fast_restart.py",
    "tests/test_bench.py",
    "tests/spark/test_exactly_once.py",
    "tests/compat/test_franz_go.py",
    "tests/test_snippets.py",
    "tests/unit/client/producer/test_transaction_block.py",
    "tests/unit/broker/disk/test_administrative_faults.py",
    "tests/spark/test_checkpoint_loss.py",
    "tests/conformance/test_rebalance_storm.py",
    "tests/conformance/test_client_shares.py",
    "tests/conformance/test_java_shares.py",
    "tests/conformance/test_client_kerberos.py",
    "tests/conformance/test_recipes.py",
    "tests/spark/test_workers_killed.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_entry_points.py",
    "tests/fuzz/test_broker_under_attack.py",
)
NEEDS_MORE = ("java", "spark", "kafka", "go", "postgresql", "browser", "kerberos", "librdkafka")
WANTING = "skipped for want of"
ASK_FOR_KAFKA = "where to ask for Apache Kafka"
watched: pytest.StashKey[Watched] = pytest.StashKey()
for_workers: pytest.StashKey[KafkaOfTheRun] = pytest.StashKey()

# How fast an example is tells of the machine, not of the code.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")


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


class Watched:
    """Collect the tests that were skipped because the machine lacks something.

    Reports of parallel workers all reach the main process, and so this plugin of it.
    """

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.skipped += [f"{report.nodeid}: {reason}" for name, reason in report.user_properties if name == WANTING]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[watched] = Watched()
    config.pluginmanager.register(config.stash[watched])
    run_report.watch(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background so, and every process started here would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.schedule import FarEndsScheduling  # only the process that has workers

    return FarEndsScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, so that no worker is left alone with one of them at the end.

    A run in random order (`-p randomly`) keeps its order.
    """
    if config.pluginmanager.has_plugin("randomly"):
        return
    ranks = {file: number for number, file in enumerate(LONGEST)}
    usual = len(ranks)
    items.sort(
        key=lambda item: ranks.get(item.nodeid.partition("::")[0], usual + (item.get_closest_marker("spark") is None))
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Nothing of what is collected is garbage, and looking for some took a quarter of the time."""
    gc.disable()
    is_worker = hasattr(session.config, "workerinput")
    try:
        with first_ahead(Path(__file__)) if is_worker else contextlib.nullcontext():
            return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Imports and tests stay: collections of garbage need not walk over them, nor come every 700 objects. A tenth of
    the simulations' processor time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (item.get_closest_marker("java") or item.get_closest_marker("spark")) and (reason := _missing_java()):
        pytest.skip(reason)
    if item.get_closest_marker("kafka") and (reason := _missing_kafka()):
        pytest.skip(reason)
    if item.get_closest_marker("browser") and (reason := chromium.unavailable_reason()):
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
    if in_ci() and session.config.stash[watched].skipped and exitstatus in {pytest.ExitCode.OK, 0}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if in_ci() and (skipped := config.stash[watched].skipped):
        terminalreporter.section("FAILED because CI=true: tests were skipped for want of what they need")
        for line in skipped:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restore the handlers: uvloop leaves its own, which do nothing, so that a later test would miss Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def pyspark_python() -> Iterator[str]:
    """For PYSPARK_PYTHON of a driver whose processes nobody kills or looks for."""
    with forked_python() as python:
        yield python.path


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the main process, for each worker that it is about to start."""
    if for_workers not in node.config.stash:
        node.config.stash[for_workers] = KafkaOfTheRun()
    node.workerinput[ASK_FOR_KAFKA] = node.config.stash[for_workers].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if for_workers in config.stash:
        config.stash[for_workers].close()


@pytest.fixture(scope="session")
def spark_here(pyspark_python: str) -> Iterator[SparkHere]:
    """Spark in this process. Its driver, too, is one whose processes nobody kills."""
    from tests.spark.session_here import SparkHere

    shared_session = SparkHere(pyspark_python)
    yield shared_session
    shared_session.stop()


@pytest.fixture(scope="session")
def apache_kafka(request: pytest.FixtureRequest) -> Iterator[HasAddress]:
    """One Apache Kafka node for the whole run, and for all its workers at once: use names of your own for topics,
    groups and transactional ids, count on nothing that others may add, change nothing that all are subject to."""
    ask = getattr(request.config, "workerinput", {}).get(ASK_FOR_KAFKA)
    try:
        if ask is not None:
            yield kafka_of_the_run.asked(ask)
            return
        with ApacheKafka(kafka_of_the_run.SETTINGS) as kafka:
            yield kafka
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def kafka_of_version_0() -> Iterator[ApacheKafka]:
    """Of transaction.version 0."""
    with ApacheKafka(format_arguments=("--feature", "transaction.version=0")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def kafka_of_version_1() -> Iterator[ApacheKafka]:
    """Of transaction.version 1."""
    with ApacheKafka(format_arguments=("--feature", "transaction.version=1")) as kafka:
        yield kafka
