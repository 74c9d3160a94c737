"""The report of a long run: the slowest files, the tests that were running when a worker or the run died, the reason
of each failure, and a closing line. All of it comes at the end, because a long output is often cut at its beginning."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from types import FrameType

import pytest

SLOWEST_FILES = 25
FIRST_LINES, LAST_LINES, COLUMNS = 6, 12, 600


class RunReport:
    """A plugin of the process that starts the workers, or of the only one. Install it with `watch`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began: dict[str, float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: list[pytest.TestReport] = []
        self._uncollected: set[str] = set()
        self._skipped: Counter[str] = Counter()
        self._passed = 0
        self._interrupted = False
        self._started = time.monotonic()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            self._failed.append(report)
        elif report.skipped and isinstance(report.longrepr, tuple):  # not an expected failure
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.passed and report.when == "call":
            self._passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be collected as a failure. pytest prints the reason itself."""
        if report.failed:
            self._uncollected.add(report.nodeid)

    def pytest_keyboard_interrupt(self) -> None:
        self._interrupted = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """At once, since a run that dies later has no summary."""
        self._began.pop(crashitem, None)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\na worker died while it ran {crashitem}", red=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._began:
            now = time.monotonic()
            terminalreporter.section("running when the run was ended")
            for nodeid, began in self._began.items():
                terminalreporter.write_line(f"{now - began:8.1f} s {nodeid}")
        if len(self._seconds) > SLOWEST_FILES:
            terminalreporter.section(f"slowest {SLOWEST_FILES} files")
            for seconds, file in sorted(((s, f) for f, s in self._seconds.items()), reverse=True)[:SLOWEST_FILES]:
                terminalreporter.write_line(f"{seconds:8.1f} s {file}")

        if self._failed:
            terminalreporter.section("why, in short")
        for report in self._failed:
            terminalreporter.write_line(f"{report.outcome} {report.nodeid} ({report.when})")
            for line in reason(report.longreprtext):
                terminalreporter.write_line(f"    {line}")

    def pytest_unconfigure(self) -> None:
        """Print the closing line, below pytest's own."""
        seconds = time.monotonic() - self._started
        failed = {report.nodeid for report in self._failed} | self._uncollected
        line = closing_line(self._passed, len(failed), self._skipped, seconds, interrupted=self._interrupted)
        print(line, flush=True)


def closing_line(
    passed: int, failed: int, skipped: Mapping[str, int], seconds: float, *, interrupted: bool = False
) -> str:
    """Return the outcome of a run in one line.

    Args:
        passed: Number of tests that passed.
        failed: Number of tests that failed and of files that could not be collected. With any, the line names the
            command that repeats only these.
        skipped: Number of skipped tests by reason.
        seconds: Duration of the run in seconds.
        interrupted: The run ended early, so the tests that are not counted did not run.
    """
    counts = f"{passed:,} passed, {failed:,} failed, {sum(skipped.values()):,} skipped"
    minutes, rest = divmod(round(seconds), 60)
    line = f"tests: {counts} in {minutes} min {rest} s"
    if interrupted:
        line += "; interrupted, so the remaining tests did not run"
    if skipped:
        line += "; skipped: " + "; ".join(f"{count} because {reason}" for reason, count in sorted(skipped.items()))
    if failed:
        line += '; repeat the failures with: make test ARGS="--last-failed"'
    return line


def reason(traceback: str) -> list[str]:
    """Return the beginning and end of the lines that pytest marks as the error, or else the traceback's end."""
    lines = traceback.splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E ")] or lines[-LAST_LINES:]
    if len(marked) > FIRST_LINES + LAST_LINES:
        marked[FIRST_LINES:-LAST_LINES] = ["..."]
    return [line[:COLUMNS] for line in marked]


def watch(config: pytest.Config) -> None:
    """From now on, SIGTERM ends the run as Ctrl-C does: with a summary."""
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(RunReport(config))
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` and `make` both send one; the summary is to be whole
    raise KeyboardInterrupt("SIGTERM")
