"""Validation of topic names, and names that collide in metrics."""

from __future__ import annotations

from fencepost.protocol.logs.topic_names import LEGAL_NAME, LONGEST_NAME

__all__ = ["flat_name", "invalid_topic_name"]


def flat_name(name: str) -> str:
    """Return the name as in metrics, where dots and underscores are equal."""
    return name.replace(".", "_")


def invalid_topic_name(name: str) -> str | None:
    """Return the reason why the name is invalid, in Kafka's words, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > LONGEST_NAME:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    if LEGAL_NAME.fullmatch(name) is None:
        allowed = "ASCII alphanumerics, '.', '_' and '-'"
        return f"Topic name is invalid: '{name}' contains one or more characters other than {allowed}"
    return None
