"""Known defects by name, to be planted into broker, client, disk and sink.

The simulator must find each of them. This shows that its checks can fail.
"""

from fencepost_lab.check.plants import coordinator, crowd, group, log, producer, reading, sink, straight
from fencepost_lab.check.plants.plant import PLANTS as PLANTS
from fencepost_lab.check.plants.plant import Plant as Plant
from fencepost_lab.check.plants.plant import planted as planted

__all__ = [
    "PLANTS",
    "Plant",
    "coordinator",
    "crowd",
    "group",
    "log",
    "planted",
    "producer",
    "reading",
    "sink",
    "straight",
]
