"""Hooks of mkdocs.yml: the site brings its scripts itself, so that no page of it loads anything from another host.

Mermaid is a script of the pages that have a diagram, the shim for search in pages opened as files one of every page.
The notebook becomes a page, too.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs runs this file by its path
from tools.npm import IFRAME_WORKER, MERMAID, NpmError, fetched

DIAGRAM: Final = 'class="mermaid"'
NOTEBOOK: Final = "notebook.ipynb"
VENDORED: Final = {"vendor/mermaid.min.js": MERMAID, "vendor/iframe-worker.js": IFRAME_WORKER}
EMPTY_HEADER: Final = re.compile(r"<th(?: [^>]*)?></th>")
BOOSTS: Final = {
    "reference.md": 0.2,
    "observed.md": 0.2,
    "performance.md": 0.2,
    "performance-profile.md": 0.2,
    "check.md": 0.4,
    "states.md": 0.4,
    "at-night.md": 2.0,
    "faq.md": 2.0,
}
"""Weights in search: long pages of facts come after those that say what to do."""
DECISION: Final = 0.2
"""The weight of each decision record: it says why, to those who change the code."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the shim that Material's plugin `offline` would load from a public host."""
    config.extra["polyfills"] = ["vendor/iframe-worker.js"]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the scripts to the site. Raises PluginError."""
    for path, source in VENDORED.items():
        try:
            files.append(File.generated(config, path, abs_src_path=str(fetched(source))))
        except NpmError as error:
            raise PluginError(f"the site needs {source.package}: {error}") from error
    notebook = files.get_file_from_path(NOTEBOOK)
    if notebook is not None:
        page = as_page(notebook.content_string)
        files.append(File.generated(config, NOTEBOOK.replace(".ipynb", ".md"), content=page))
    return files


def as_page(notebook: str) -> str:
    """Return the cells of a notebook, which has no outputs, as Markdown."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Weigh the page in search."""
    usual = DECISION if page.file.src_uri.startswith("decisions/") else 1.0
    page.meta.setdefault("search", {"boost": BOOSTS.get(page.file.src_uri, usual)})
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make tables accessible: the header of a first column without a name becomes an ordinary cell."""
    return EMPTY_HEADER.sub("<td></td>", html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of search, and load Mermaid where there is a diagram, before the theme fetches it elsewhere."""
    output = output.replace('<div class="md-search"', '<div class="md-search" aria-label="Search"')
    if DIAGRAM not in output:
        return output
    script = f'<script src="{"../" * page.url.count("/")}vendor/mermaid.min.js"></script>'
    head, mark, rest = output.rpartition("<script")
    return f"{head}{script}{mark}{rest}"
