"""Settings of topics and of the broker as the three configuration APIs see them."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.config import check_topic_config
from fencepost.broker.core import BrokerCore
from fencepost.broker.settings import InvalidSetting
from fencepost.protocol.codes import ErrorCode

__all__ = ["BROKER", "GROUP", "TOPIC", "Refused", "change_topic", "is_this_broker", "refuse_other"]

TOPIC, BROKER, GROUP = 2, 4, 32


class Refused(Exception):
    """A change or a question that is answered with an error code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def is_this_broker(name: str) -> bool:
    """Whether a resource name of type broker means this one; the empty name means all brokers."""
    return name in ("", str(BROKER_ID))


def change_topic(core: BrokerCore, name: str, given: Mapping[str, str | None], validate_only: bool) -> None:
    """Make these the topic's own settings. Raises Refused."""
    topic = core.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    try:
        checked = check_topic_config(given)
    except InvalidSetting as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not validate_only:
        core.topics.set_configs(topic, checked)


def refuse_other(resource_type: int, name: str) -> None:
    """Refuse every kind of resource whose settings cannot be changed here. Raises Refused."""
    if resource_type == BROKER and is_this_broker(name):
        raise Refused(ErrorCode.INVALID_REQUEST, "The broker's settings are given when it is started.")
    raise Refused(
        ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} with name {name!r} cannot be changed here."
    )
