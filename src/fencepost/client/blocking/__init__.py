"""The blocking clients `Producer`, `Consumer`, `ShareConsumer` and `Admin`.

All clients of a process share an I/O thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.on_first_use import loaded_from

if TYPE_CHECKING:
    from fencepost.client.blocking.admin import Admin as Admin
    from fencepost.client.blocking.consumer import Consumer as Consumer
    from fencepost.client.blocking.producer import BulkDelivery as BulkDelivery
    from fencepost.client.blocking.producer import Delivery as Delivery
    from fencepost.client.blocking.producer import Producer as Producer
    from fencepost.client.blocking.share_consumer import ShareConsumer as ShareConsumer

__getattr__, __dir__ = loaded_from(
    globals(),
    {
        "Admin": "fencepost.client.blocking.admin",
        "BulkDelivery": "fencepost.client.blocking.producer",
        "Consumer": "fencepost.client.blocking.consumer",
        "Delivery": "fencepost.client.blocking.producer",
        "Producer": "fencepost.client.blocking.producer",
        "ShareConsumer": "fencepost.client.blocking.share_consumer",
    },
)
