"""Connections over the native module, and over asyncio."""

from __future__ import annotations

import pytest

from fencepost.broker.network.native_sockets import NativeSockets
from tests.support.engines import engine


@pytest.fixture(params=["native", "asyncio"])
def both_sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with brokers of each form."""
    if request.param == "asyncio":
        monkeypatch.setattr(NativeSockets, "are_usable", lambda: False)
        return
    with engine("native"):
        assert NativeSockets.are_usable()
