"""Validation of names in arguments. An invalid name exits with status 2 before any request.

The functions are typer callbacks for one text, a list of texts, or None for an option not given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import typer

from fencepost.arguments import brief_repr, text_flaw
from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import ConfigurationError
from fencepost.protocol.logs.topic_names import LONGEST_NAME, is_topic_name

__all__ = ["file_to_write", "in_utf8", "named", "need_other_file", "noted", "sink_named", "topic_named"]

Given = TypeVar("Given", bound=str | Sequence[str] | None)


def in_utf8(given: Given) -> Given:
    """Return the text, which may be empty. Raises BadParameter if a Kafka request cannot contain it."""
    for text in _texts(given):
        if flaw := text_flaw(text):
            raise typer.BadParameter(f"{brief_repr(text)} {flaw}")
    return given


def named(given: Given) -> Given:
    """Return the text, which must not be empty. Raises BadParameter."""
    if "" in _texts(given):
        raise typer.BadParameter("it must not be empty")
    return in_utf8(given)


def sink_named(given: str | None) -> str | None:
    """Return a sink's name, read as the option sink.id: without spaces at its ends, not empty. Raises BadParameter."""
    return None if given is None else named(given.strip())


def topic_named(given: Given) -> Given:
    """Return a valid topic name. Raises BadParameter."""
    for text in _texts(named(given)):
        if not is_topic_name(text):
            raise typer.BadParameter(
                f"{brief_repr(text)} cannot be a topic's name: at most {LONGEST_NAME} of a-z, A-Z, 0-9, '.', '_', '-'; "
                "not '.' or '..'"
            )
    return given


def file_to_write(path: Path | None) -> Path | None:
    """Return the path of a file that is written at the end of long work. Raises BadParameter if that cannot succeed."""
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"{path} is a directory")
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {path.parent}")
    return path


def need_other_file(path: Path | None, option: str, other: Path | None, name: str) -> None:
    """Refuse a file to write that is also another file of the command. Raises BadParameter.

    Args:
        path: The file to write; None: no file.
        option: Its option.
        other: The other file; None: there is none.
        name: The other file's option or argument.
    """
    if path is not None and other is not None and os.path.realpath(path) == os.path.realpath(other):
        raise typer.BadParameter(f"{path} is {name}, and would be replaced", param_hint=option)


def noted(text: str) -> str:
    """Return the text of a prepared transaction. Raises BadParameter."""
    try:
        PreparedTransaction.parse(text)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def _texts(given: str | Sequence[str] | None) -> Sequence[str]:
    return () if given is None else (given,) if isinstance(given, str) else given
