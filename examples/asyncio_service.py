"""A service on asyncio: requests come in on one topic, each is answered on another exactly once, until SIGTERM.

Requests of a batch are worked on at the same time; their answers and the positions after them are one transaction.

    python examples/asyncio_service.py --bootstrap-servers localhost:9092 --requests questions --replies answers
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import uuid
from collections.abc import Awaitable, Callable, Sequence

from fencepost import AsyncConsumer, AsyncProducer, Record
from fencepost.errors import AbortableError, ApplicationRecoverableError, RetriableError

log = logging.getLogger("asyncio_service")
Handler = Callable[[bytes], Awaitable[bytes]]


async def answer(question: bytes) -> bytes:
    """Do the work of the service: here, wait 10 ms and return the question reversed."""
    await asyncio.sleep(0.01)
    return question[::-1]


async def serve(
    bootstrap_servers: str,
    requests: str,
    replies: str,
    group: str,
    stopping: asyncio.Event,
    handler: Handler = answer,
    *,
    transaction_timeout_ms: int = 60_000,
) -> int:
    """Answer requests until `stopping` is set; returns how many answers were committed."""
    served = 0
    async with AsyncConsumer(bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([requests])
        while not stopping.is_set():
            try:
                async with AsyncProducer(
                    bootstrap_servers,
                    transactional_id=f"{group}-{uuid.uuid4().hex}",
                    transaction_timeout_ms=transaction_timeout_ms,
                ) as producer:
                    await producer.init_transactions()
                    while not stopping.is_set():
                        served += await serve_once(consumer, producer, replies, handler)
            except (ApplicationRecoverableError, RetriableError) as error:
                log.info("a new producer goes on, from what is committed: %s", error)
    return served


async def serve_once(consumer: AsyncConsumer, producer: AsyncProducer, replies: str, handler: Handler) -> int:
    """One poll and its transaction; returns how many answers were committed."""
    records = await consumer.poll(200)
    if not records:
        return 0
    try:
        async with producer.transaction(consumer):
            await asyncio.gather(*(_reply(producer, replies, record, handler) for record in records))
    except (AbortableError, RetriableError) as error:
        log.info("not committed, the requests will be read again: %s", error)
        return 0
    return len(records)


async def _reply(producer: AsyncProducer, topic: str, record: Record, handler: Handler) -> None:
    await producer.send(topic, await handler(record.value or b""), key=record.key)


async def run(options: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM; a transaction that is under way is finished first."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    served = await serve(options.bootstrap_servers, options.requests, options.replies, options.group, stopping)
    print(f"answered {served} requests")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description="Answer requests exactly once.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--requests", required=True)
    parser.add_argument("--replies", required=True)
    parser.add_argument("--group", default="asyncio-service")
    logging.basicConfig(level=logging.INFO)
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
