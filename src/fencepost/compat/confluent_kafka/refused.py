"""Classes of confluent-kafka that cannot be created here. Their errors name the classes of Fencepost to use."""

from __future__ import annotations

from typing import Any, ClassVar

from fencepost.compat.confluent_kafka.clients import refusal

__all__ = ["DeserializingShareConsumer", "Refused", "ShareConsumer"]


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
