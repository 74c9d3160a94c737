"""FastAPI with Kafka: the clients live as long as the application, and a broker that is away is told, not hidden.

The application opens its clients in its lifespan, before it takes the first request, and closes them after the last. It
does not start without a broker. POST /orders answers 202 only when the brokers have the order, and 503 if they do not
or if that is unknown. GET /orders/ID answers from a table that a consumer in the background fills from the topic.

    pip install fastapi uvicorn
    python examples/fastapi_service.py --bootstrap-servers localhost:9092 --topic orders --port 8000
    curl -X POST localhost:8000/orders -H 'Content-Type: application/json' -d '{"id": "a1", "item": "book"}'

The id is the record's key. A caller that got a 503 sends the order again with the same id: the table then has it once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from fencepost import AsyncAdmin, AsyncConsumer, AsyncProducer
from fencepost.errors import KafkaError, ProduceFailedError

log = logging.getLogger("fastapi_service")


class Order(BaseModel):
    """The body of a request."""

    id: str
    item: str


def application(
    bootstrap_servers: str, topic: str, *, start_timeout_ms: int = 10_000, delivery_timeout_ms: int = 10_000
) -> FastAPI:
    """Return the application. Requests wait for `delivery_timeout_ms` at most, and its start for `start_timeout_ms`."""
    table: dict[str, str] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Clients connect at their first call. This one makes a missing broker or topic an error of the start.
        async with AsyncAdmin(bootstrap_servers) as admin:
            await admin.describe_topics([topic], api_timeout_ms=start_timeout_ms)
        async with (
            AsyncProducer(bootstrap_servers, delivery_timeout_ms=delivery_timeout_ms) as producer,
            AsyncConsumer(bootstrap_servers, auto_offset_reset="earliest") as consumer,
        ):
            await consumer.assign([(topic, number) for number in await consumer.partitions_for(topic)])
            app.state.producer = producer
            app.state.reading = asyncio.create_task(_read(consumer, table))
            try:
                yield
            finally:
                app.state.reading.cancel()
                await asyncio.gather(app.state.reading, return_exceptions=True)

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def create(order: Order) -> dict[str, int]:
        producer: AsyncProducer = app.state.producer
        try:
            delivery = await producer.send(topic, order.item.encode(), key=order.id.encode())
            metadata = await delivery
        except ProduceFailedError as error:
            state = "may be" if error.outcome_unknown else "is not"
            raise HTTPException(503, f"order {order.id} {state} written; send it again: {error}") from error
        except KafkaError as error:
            raise HTTPException(503, f"order {order.id} is not written; send it again: {error}") from error
        return {"partition": metadata.partition, "offset": metadata.offset}

    @app.get("/orders/{order_id}")
    async def read(order_id: str) -> Order:
        if order_id not in table:
            raise HTTPException(404, f"no order {order_id}")
        return Order(id=order_id, item=table[order_id])

    @app.get("/health")
    async def health() -> dict[str, str]:
        reading: asyncio.Task[None] = app.state.reading
        if reading.done():  # it reads for ever, so it has failed
            raise HTTPException(503, f"the orders are not read any more: {reading.exception()}")
        return {"status": "ok"}

    return app


async def _read(consumer: AsyncConsumer, table: dict[str, str]) -> None:
    """Keep the table up to date. The consumer itself waits while no broker answers."""
    try:
        async for record in consumer:
            if record.key is not None and record.value is not None:
                table[record.key.decode()] = record.value.decode()
    except Exception:
        log.exception("the orders are not read any more")
        raise


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until Ctrl-C or SIGTERM. Ends with an error if no broker answers at the start."""
    parser = argparse.ArgumentParser(description="Take orders over HTTP into a topic.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    uvicorn.run(application(options.bootstrap_servers, options.topic), port=options.port)


if __name__ == "__main__":
    main()
