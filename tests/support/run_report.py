"""What a long run tells besides its tests: the slowest files, which tests were running when a worker or it died, and,
near its end, why tests failed: of a long output often only the end is kept."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
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

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if str(report.outcome) in {"failed", "rerun"}:
            self._failed.append(report)

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


def reason(traceback: str) -> list[str]:
    """What pytest marks as the error in a traceback, its beginning and its end; where it marks nothing, the end."""
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
