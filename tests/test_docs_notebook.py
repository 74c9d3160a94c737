"""docs/notebook.ipynb: a kernel runs it cell by cell, and somebody presses Interrupt where the page says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.readme import ROOT

PAGE = ROOT / "docs" / "notebook.ipynb"


class Reader(NotebookClient):
    """Runs a notebook. Interrupts a cell with the tag "interrupt" as soon as it prints."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream" and "interrupt" in cell.metadata.get("tags", ()) and not cell.outputs:
            self.pressed = asyncio.ensure_future(self.press())
        return super().process_message(msg, cell, cell_index)

    async def press(self) -> None:
        manager: Any = self.km
        await manager.interrupt_kernel()


def notebook() -> Any:
    return nbformat.read(PAGE, as_version=4)  # type: ignore[no-untyped-call]


def shown(cell: Any) -> str:
    """Return the text of a cell's outputs."""
    return "".join(each.get("text", "") or each.get("data", {}).get("text/plain", "") for each in cell.outputs)


def test_the_notebook_is_stored_without_outputs() -> None:
    nbformat.validate(notebook())
    cells = [cell for cell in notebook().cells if cell.cell_type == "code"]
    assert [cell.id for cell in cells if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.slow
def test_the_notebook_runs_and_is_interrupted(tmp_path: Path) -> None:
    cells = notebook()
    reader = Reader(cells, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    reader.execute()
    start, _, read, wait, again, _ = (shown(cell) for cell in cells.cells if cell.cell_type == "code")
    assert "127.0.0.1:" in start
    assert read.endswith("read 10000\n")
    assert wait == "waiting; press Interrupt\ninterrupted\n"
    assert again == "[b'one more']\n"
    assert reader.pressed.exception() is None
