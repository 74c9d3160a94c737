"""Charts as SVG files, which both a repository's page and the site show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Panel", "beside", "draw"]

WIDTH, HEIGHT = 5.2, 3.6  # inches of a panel
A_ROW = 2


class Panel(NamedTuple):
    """Lines by name, each of values and figures. Values that are no numbers stand beside each other."""

    title: str
    axis: str
    unit: str
    lines: Mapping[str, Mapping[Any, float]]
    logarithmic: bool = True


def beside(page: Path, name: str) -> Path:
    """The file of a page's chart; its folder is made."""
    folder = page.parent / "charts"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.svg"


def draw(file: Path, panels: Sequence[Panel]) -> None:
    """The same figures make the same file. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    columns = min(A_ROW, len(panels))
    rows = -(-len(panels) // columns)
    look: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": file.stem,
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
    with mpl.rc_context(look):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(columns * WIDTH, rows * HEIGHT), squeeze=False, layout="constrained"
        )
        for panel_axes, panel in zip(axes.flat, panels, strict=False):
            _draw_panel(panel_axes, panel)
        for empty in axes.flat[len(panels) :]:
            empty.set_visible(False)
        figure.savefig(file, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        pyplot.close(figure)


def _draw_panel(axes: Any, panel: Panel) -> None:
    values = [value for line in panel.lines.values() for value in line]
    are_numbers = all(isinstance(value, int | float) for value in values)
    for name, line in panel.lines.items():
        style = "--" if name == "raw limit" else "-" if are_numbers else ""
        marker = "" if len(line) > 50 else "o"
        axes.plot(list(line), list(line.values()), style, marker=marker, markersize=4, label=name)
    if panel.logarithmic:
        axes.set_yscale("log")
        if are_numbers:
            axes.set_xscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.axis)
    axes.set_ylabel(panel.unit)
    axes.legend(fontsize=7)
