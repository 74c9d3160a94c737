"""Settings of the Java client, librdkafka, aiokafka and kafka-python, and their equivalents here.

Every setting of these clients is a field of a configuration here, or is in one of four tables: `ALIASES` and
`CONVERTED` name the field, `WITHOUT_EFFECT` the replacement, and `BOUND` the possible values.
`tests/unit/client/test_peer_settings.py` compares them with the clients' own lists.
"""

from __future__ import annotations

from fencepost.foreign_settings.bound import BOUND
from fencepost.foreign_settings.names import ALIASES, CONVERTED, codec_of, own_value, with_topic_settings
from fencepost.foreign_settings.without_effect import WITHOUT_EFFECT

__all__ = ["ALIASES", "BOUND", "CONVERTED", "WITHOUT_EFFECT", "codec_of", "own_value", "with_topic_settings"]
