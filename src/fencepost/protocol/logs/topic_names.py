"""Names of topics: the rule for all names, and the internal topics of the coordinators."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CONSUMER_OFFSETS", "LEGAL_NAME", "LONGEST_NAME", "SHARE_GROUP_STATE", "TRANSACTION_STATE", "is_topic_name"]

CONSUMER_OFFSETS: Final = "__consumer_offsets"
SHARE_GROUP_STATE: Final = "__share_group_state"
TRANSACTION_STATE: Final = "__transaction_state"

LONGEST_NAME: Final = 249
"""Maximum length of a name, as in org.apache.kafka.common.internals.Topic."""
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_topic_name(text: str) -> bool:
    """Return true if a topic can have this name."""
    return len(text) <= LONGEST_NAME and LEGAL_NAME.fullmatch(text) is not None and text not in (".", "..")
