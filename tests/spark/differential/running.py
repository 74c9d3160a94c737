"""The cells, and a Spark driver that runs them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.spark.answering import AnsweringProgram
from tests.spark.differential import cases, odd_cases
from tests.spark.differential.cases import Options
from tests.spark.differential.comparing import BUILT_IN, FORMATS, OURS, Cell, Seen
from tests.spark.differential.states import CHANGING, MOMENTS, RESTING, State, World
from tests.support import built_in_connector

__all__ = ["Driver", "all_cells", "run"]

BATCH: Final = "batch"
ENDING: Final = "available now"
OTHER_TRIGGERS: Final = ("once", "processing time")
UNDER_A_QUERY: Final = (
    "continued",
    "grown",
    "truncated below",
    "truncated wholly",
    "deleted",
    "made anew shorter",
    "made anew longer",
)
BY_CHANCE: Final = (
    # Of the other's two tasks one is not allowed to read, and one starts beyond the end. Either fails first.
    Cell("unreadable", "batch", "a start beyond the end"),
)
THREADS: Final = 4
AT_A_TIME: Final = 24  # cells whose streams are up together
# How long a task waits for records. They come, however busy the machine is, except to one cell of "held back".
PATIENCE: Final = {"kafkaConsumer.pollTimeoutMs": "60000"}

Cells = Mapping[Cell, Options]


def all_cells() -> dict[Cell, Options]:
    """Every cell, with its options."""
    found: dict[Cell, Options] = {}

    def add(state: str, way: str, *sets: Mapping[str, Options]) -> None:
        found.update({Cell(state, way, name): options for options_of in sets for name, options in options_of.items()})

    for state in RESTING:
        add(state, BATCH, cases.CORE, cases.CORE_BATCH)
        add(state, ENDING, cases.CORE, cases.CORE_STREAM)
    add("plain", BATCH, cases.FORMS, cases.FORMS_BATCH, cases.SETTINGS)
    add("plain", ENDING, cases.FORMS, cases.FORMS_STREAM, cases.SETTINGS)
    for state in ("plain", "empty", "gaps", "aborted", "truncated"):
        for way in OTHER_TRIGGERS:
            add(state, way, cases.CORE_STREAM, {name: cases.CORE[name] for name in ("earliest", "latest", "assign")})
    for state in CHANGING:
        add(state, ENDING, cases.CHANGES)
    for state in odd_cases.CHANGED_IN:
        add(state, ENDING, odd_cases.CHANGED)
    add("plain", BATCH, odd_cases.ODD, odd_cases.ODD_BATCH)
    add("plain", ENDING, odd_cases.ODD, odd_cases.ODD_STREAM)
    for state in UNDER_A_QUERY:
        add(state, "processing time", cases.CHANGES)
    for cell in BY_CHANCE:
        del found[cell]
    return found


class Driver(AnsweringProgram):
    """The program driver.py."""

    def __init__(self, python: str, folder: Path, threads: int = THREADS) -> None:
        """`python`: for PYSPARK_PYTHON; `folder`: for checkpoints and the log."""
        program = str(Path(__file__).with_name("driver.py"))
        command = [program, built_in_connector.jars(), str(threads)]
        super().__init__(command, folder / "log", python=python, own_group=True)
        self._folder = folder

    def ask(self, do: str, asked: list[dict[str, Any]]) -> Any:
        """Ask, and wait for the answer. Ctrl-C ends the driver, which would answer first."""
        self.send({"do": do, "cells": asked})
        try:
            return self.answer()
        except KeyboardInterrupt:
            self.kill()
            raise

    def asked(
        self, kind: str, cell: Cell, options: dict[str, str], then: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The cell as driver.py takes it. `then`: the options of a stream's second run, if they are others."""
        return {
            "name": f"{kind}: {cell}",
            "format": kind,
            "way": cell.way,
            "options": options,
            "then": options if then is None else then,
            "checkpoint": str(self._folder / f"checkpoint-{uuid.uuid4().hex[:12]}"),
        }


def filled(
    options: Options, topic: str, more: Mapping[str, str], another: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The options in full, for this topic: of the first run, and of the second."""
    defaults: dict[str, str | None] = {
        "subscribe": "NAME",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",  # our default, and not the other's
        **PATIENCE,
        **more,
    }
    first = {name: text for name, text in options.items() if not name.startswith(odd_cases.THEN)}
    changes = {name.removeprefix(odd_cases.THEN): text for name, text in options.items() if name not in first}
    words = {"ANOTHER": another, "NAME": topic, "SERVERS": more["kafka.bootstrap.servers"], **MOMENTS}

    def meant(asked: Mapping[str, str | None]) -> dict[str, str]:
        found = {name: text for name, text in asked.items() if text is not None}
        for word, text in words.items():
            found = {name: value.replace(word, text) for name, value in found.items()}
        return found

    return meant({**defaults, **first}), meant({**defaults, **first, **changes})


def run(driver: Driver, world: World, cells: Cells) -> Iterator[Seen]:
    """Run them, state by state."""
    by_state: dict[tuple[str, bool], list[Cell]] = defaultdict(list)
    for cell in cells:
        by_state[cell.state, cell.way == "processing time"].append(cell)
    resting: dict[str, str] = {}
    for (name, running), group in by_state.items():
        state = RESTING.get(name) or CHANGING[name]
        for first in range(0, len(group), AT_A_TIME):
            topic = resting.get(name) or state.make(world)
            if state.change is None:
                resting[name] = topic
            some = {cell: cells[cell] for cell in group[first : first + AT_A_TIME]}
            yield from _run_some(driver, world, state, topic, some, running)


def _run_some(driver: Driver, world: World, state: State, topic: str, cells: Cells, running: bool) -> Iterator[Seen]:
    more = state.options(world)
    asked = {
        (kind, cell): driver.asked(kind, cell, *filled(options, topic, more, world.another))
        for cell, options in cells.items()
        for kind in FORMATS
    }
    questions = list(asked.values())
    driver.ask("begin", questions)
    if state.change is not None:
        state.change(world, topic)
        driver.ask("go on", questions)
    answer = driver.ask("end", questions)
    for cell in cells:
        built_in, ours = (answer[asked[kind, cell]["name"]] for kind in (BUILT_IN, OURS))
        yield Seen(cell, built_in, ours, moving=running and state.change is not None)
