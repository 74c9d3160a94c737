"""JSON of a peer or of a file that is nested so deeply that Python's parser gives up: an error like all others."""

from __future__ import annotations

import io
import logging
import zlib
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from fencepost.broker.network.key_source import KeySource
from fencepost.broker.security.bearer import Keys, UnusableKeys
from fencepost.cli.cluster.record_lines import UnusableLine, json_parser
from fencepost.client.oauth import ClientCredentials
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost.spark.errors import CorruptDecisionError
from fencepost.spark.sink import decision
from fencepost.spark.sink.checkpoint import query_of
from fencepost.spark.source.ranges import assigned
from fencepost_lab.check.history.file import VERSION_LINE, operations_of
from fencepost_lab.check.history.model import InvalidHistory
from tests.support.waiting import until

DEEP = "[" * 200_000
LONG = '{"a": ' + "9" * 5_000 + "}"
KEYS = '{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'


@pytest.mark.parametrize("text", [DEEP, LONG], ids=["deep", "long number"])
@pytest.mark.parametrize(
    ("door", "error"),
    [
        (lambda text: Keys().replace(text.encode()), UnusableKeys),
        (lambda text: list(operations_of([VERSION_LINE, text])), InvalidHistory),
        (lambda text: json_parser(keep_partitions=False)(text.encode()), UnusableLine),
        (lambda text: decision.decode_beginning("s", "q", text.encode()), CorruptDecisionError),
        (lambda text: decision._unpacked(zlib.compress(text.encode())), CorruptDecisionError),
        (assigned, ConfigurationError),
    ],
    ids=["keys", "history", "record", "beginning", "offsets of a decision", "option"],
)
def test_it_is_refused_like_other_text(text: str, door: Callable[[str], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        door(text)


def test_a_checkpoint_without_a_readable_id(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(DEEP)
    assert query_of(tmp_path) is None


def test_a_token_endpoint_that_refuses_with_it_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: Any, timeout: float) -> None:
        raise HTTPError(request.full_url, 400, "Bad Request", Message(), io.BytesIO(DEEP.encode()))

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(AuthenticationError, match="400 Bad Request"):
        ClientCredentials("https://login.example/token", "a", "b")()


def test_keys_are_read_again_after_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A thread that ends would leave a removed key valid until the next start."""
    file = tmp_path / "keys.json"
    file.write_text(KEYS)
    keys = Keys()
    source = KeySource(file.as_uri(), 20, keys)
    with caplog.at_level(logging.WARNING):
        source.start()
        try:
            file.write_text(DEEP)
            until(lambda: "the previous ones remain in use" in caplog.text, within_s=15)
            file.write_text(KEYS.replace('"k"', '"k2"'))
            until(lambda: [key.key_id for key in keys._keys] == ["k2"], within_s=15)
        finally:
            source.stop()
