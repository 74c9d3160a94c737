"""The asyncio clients `AsyncProducer`, `AsyncConsumer`, `AsyncShareConsumer` and `AsyncAdmin`.

Create and use a client in the same running event loop; calls from another loop raise UsageError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.on_first_use import loaded_from

if TYPE_CHECKING:
    from fencepost.client.aio.admin import AsyncAdmin as AsyncAdmin
    from fencepost.client.aio.consumer import AsyncConsumer as AsyncConsumer
    from fencepost.client.aio.producer import AsyncBulkDelivery as AsyncBulkDelivery
    from fencepost.client.aio.producer import AsyncDelivery as AsyncDelivery
    from fencepost.client.aio.producer import AsyncProducer as AsyncProducer
    from fencepost.client.aio.share_consumer import AsyncShareConsumer as AsyncShareConsumer

__getattr__, __dir__ = loaded_from(
    globals(),
    {
        "AsyncAdmin": "fencepost.client.aio.admin",
        "AsyncBulkDelivery": "fencepost.client.aio.producer",
        "AsyncConsumer": "fencepost.client.aio.consumer",
        "AsyncDelivery": "fencepost.client.aio.producer",
        "AsyncProducer": "fencepost.client.aio.producer",
        "AsyncShareConsumer": "fencepost.client.aio.share_consumer",
    },
)
