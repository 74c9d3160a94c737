"""Names of confluent-kafka that are not possible here. Their errors say what to use."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from fencepost.compat.confluent_kafka.clients import refusal

__all__ = ["DeserializingShareConsumer", "Refused", "ShareConsumer", "libversion"]


class Refused:
    """Base of classes whose constructor raises UsageError. `instead` is the advice in the error text."""

    instead: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise refusal(type(self).__name__, self.instead)


class ShareConsumer(Refused):
    """Refuse: use fencepost.ShareConsumer."""

    instead = "use fencepost.ShareConsumer"


class DeserializingShareConsumer(Refused):
    """Refuse: use fencepost.ShareConsumer."""

    instead = "use fencepost.ShareConsumer, and deserialize after poll()"


def libversion(*_: object) -> NoReturn:
    """Refuse: use version(); there is no librdkafka."""
    raise refusal("libversion()", "use version(), because there is no librdkafka")
