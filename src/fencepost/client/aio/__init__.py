"""The clients for asyncio: `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin`.

Make them inside a running event loop, and use them there: another loop is refused.
"""

from fencepost.client.aio.admin import AsyncAdmin as AsyncAdmin
from fencepost.client.aio.consumer import AsyncConsumer as AsyncConsumer
from fencepost.client.aio.producer import AsyncBulkDelivery as AsyncBulkDelivery
from fencepost.client.aio.producer import AsyncDelivery as AsyncDelivery
from fencepost.client.aio.producer import AsyncProducer as AsyncProducer
