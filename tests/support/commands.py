"""`fencepost` commands about a cluster, run in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.cli.main import main


class Commands:
    """Runs commands against one cluster. `error` is the standard error of the last one, `status` its exit status."""

    def __init__(self, bootstrap_servers: str, capsys: pytest.CaptureFixture[str], *more: str) -> None:
        """`more`: words that every command gets."""
        self._always = ("-b", bootstrap_servers, *more)
        self._capsys = capsys
        self.error = ""
        self.status: object = None

    def __call__(self, *words: str, status: int | None = 0) -> str:
        """Run a command and return its output. Fails unless it ends with `status`; None: with any."""
        with pytest.raises(SystemExit) as ended:
            main([*words, *self._always])
        printed, self.error = self._capsys.readouterr()
        self.status = ended.value.code
        assert status in (self.status, None), f"{words}\n{printed}\n{self.error}"
        return printed

    def json(self, *words: str) -> Any:
        """Run a command with --json and return its decoded output."""
        return json.loads(self(*words, "--json"))
