"""Settings of the Java client, librdkafka, aiokafka and kafka-python, and their equivalents here.

Every setting of these clients is a field of a configuration here, an alias in such a field's row, or in one of two
tables: `WITHOUT_EFFECT` names the replacement, and `BOUND` the possible values.
`tests/unit/client/test_peer_settings.py` compares them with the clients' own lists.
"""

from __future__ import annotations

from fencepost.foreign_settings.bound import BOUND, check_bound
from fencepost.foreign_settings.spelling import CONVERTED, codec_of, with_topic_settings
from fencepost.foreign_settings.without_effect import WITHOUT_EFFECT

__all__ = ["BOUND", "CONVERTED", "WITHOUT_EFFECT", "check_bound", "codec_of", "with_topic_settings"]
