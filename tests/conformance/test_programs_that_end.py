"""Programs that end, or forget a client, without close(): what was sent arrives, or somebody is told."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
from fencepost.errors import ClosedError, ForkedError, UsageError
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

TP = fencepost.TopicPartition


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """From Python 3.12 on fork() warns of the threads that a broker or client has."""
    return subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )


def stored(broker: BrokerUnderTest, topic: str) -> int:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        return admin.list_offsets({TP(topic, 0): -1})[TP(topic, 0)].offset


def new_topic(broker: BrokerUnderTest) -> str:
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    return topic


SEND = """
import sys, fencepost
producer = fencepost.Producer(sys.argv[1], **eval(sys.argv[3]))
for number in range(1000):
    producer.send(sys.argv[2], b"%d" % number)
"""


def test_what_was_sent_is_delivered_at_the_end_of_the_program(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    done = run(SEND, broker.bootstrap_servers, topic, "{}")
    assert (done.returncode, done.stderr) == (0, "")
    assert stored(broker, topic) == 1000


def test_also_when_the_program_ends_by_an_error(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    done = run(SEND + "raise SystemExit(3)", broker.bootstrap_servers, topic, "{'linger_ms': 1000}")
    assert (done.returncode, done.stderr) == (3, "")
    assert stored(broker, topic) == 1000


def test_also_in_a_child_that_multiprocessing_forks(broker: BrokerUnderTest) -> None:
    """Such a child ends without atexit."""
    topic = new_topic(broker)
    program = """
import multiprocessing, sys, fencepost
def work():
    producer = fencepost.Producer(sys.argv[1], linger_ms=10_000)
    for number in range(1000):
        producer.send(sys.argv[2], b"%d" % number)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
raise SystemExit(child.exitcode)
"""
    done = run(program, broker.bootstrap_servers, topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert stored(broker, topic) == 1000


@pytest.mark.parametrize("loop", ["", "import sys; sys.modules['uvloop'] = None"], ids=["uvloop", "asyncio"])
def test_also_what_is_sent_while_the_program_ends(broker: BrokerUnderTest, loop: str) -> None:
    """By then there are no threads to be had for looking a host's name up."""
    topic = new_topic(broker)
    program = f"""
{loop}
import atexit, sys, fencepost
fencepost.Producer(sys.argv[1]).close()
def last_words():
    fencepost.Producer(sys.argv[1]).send(sys.argv[2], b"bye")
atexit.register(last_words)
"""
    done = run(program, broker.bootstrap_servers.replace("127.0.0.1", "localhost"), topic)
    assert done.returncode == 0
    assert stored(broker, topic) == 1, done.stderr


PATIENT = """
import fencepost.client.producer.core
fencepost.client.producer.core.PATIENCE_AFTER_CTRL_C_MS = 60_000  # a busy machine may need more than half a second
"""
INTERRUPTED = {
    "blocking": PATIENT
    + """
import signal, sys, fencepost
settings = eval(sys.argv[3])
with fencepost.Producer(sys.argv[1], **settings) as producer:
    if "transactional_id" in settings:
        producer.init_transactions()
        producer.begin_transaction()
    for number in range(1000):
        producer.send(sys.argv[2], b"%d" % number)
    if "transactional_id" in settings:
        producer.flush()
    signal.raise_signal(signal.SIGINT)
""",
    "asyncio": PATIENT
    + """
import asyncio, signal, sys, fencepost
async def main():
    settings = eval(sys.argv[3])
    async with fencepost.AsyncProducer(sys.argv[1], **settings) as producer:
        if "transactional_id" in settings:
            await producer.init_transactions()
            producer.begin_transaction()
        for number in range(1000):
            await producer.send(sys.argv[2], b"%d" % number)
        if "transactional_id" in settings:
            await producer.flush()
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("program", INTERRUPTED.values(), ids=INTERRUPTED)
def test_ctrl_c_in_a_with_block_delivers_what_was_sent(broker: BrokerUnderTest, program: str) -> None:
    """As it does for a producer that the program leaves open."""
    topic = new_topic(broker)
    done = run(program, broker.bootstrap_servers, topic, "{'linger_ms': 10_000}")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
    assert stored(broker, topic) == 1000


@pytest.mark.parametrize("program", INTERRUPTED.values(), ids=INTERRUPTED)
def test_ctrl_c_in_a_with_block_aborts_an_open_transaction(broker: BrokerUnderTest, program: str) -> None:
    """Otherwise it would hold committed readers back until its timeout."""
    topic, transactional_id = new_topic(broker), broker.name("id")
    done = run(program, broker.bootstrap_servers, topic, f"{{'transactional_id': {transactional_id!r}}}")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        until(lambda: admin.describe_transactions([transactional_id])[0].state != "PrepareAbort")
        assert admin.describe_transactions([transactional_id])[0].state == "CompleteAbort"


def test_what_cannot_be_delivered_is_counted() -> None:
    done = run(SEND, "localhost:1", "orders", "{}")
    assert "records not delivered: 1000 for topic 'orders'" in done.stderr
    assert "Task was destroyed" not in done.stderr


@pytest.mark.parametrize("ending", ["asyncio.run(main())", "asyncio.new_event_loop().run_until_complete(main())"])
def test_an_event_loop_that_ends_first_tells_the_count(broker: BrokerUnderTest, ending: str) -> None:
    program = f"""
import asyncio, sys, fencepost
async def main():
    producer = fencepost.AsyncProducer(sys.argv[1], linger_ms=10_000)
    for number in range(1000):
        await producer.send("orders", b"x")
    kept.append(producer)
kept = []
{ending}
"""
    done = run(program, broker.bootstrap_servers)
    assert "1000" in done.stderr
    assert "not delivered" in done.stderr
    assert "Task was destroyed" not in done.stderr


def test_a_group_is_left_at_the_end_of_the_program(broker: BrokerUnderTest) -> None:
    topic, group = new_topic(broker), broker.name("g")
    program = """
import sys, fencepost
consumer = fencepost.Consumer(sys.argv[1], group_id=sys.argv[3], enable_auto_commit=True, auto_offset_reset="earliest")
consumer.subscribe([sys.argv[2]])
while not consumer.poll(100):
    pass
"""
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"read, and perhaps not worked on")
    done = run(program, broker.bootstrap_servers, topic, group)
    assert (done.returncode, done.stderr) == (0, "")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        assert not admin.describe_group(group).members
        committed = admin.group_offsets(group).get(TP(topic, 0))
        # Nobody said that it was worked on; before it was read, auto-commit may have committed where reading begins.
        assert committed is None or committed.offset == 0


def test_an_embedded_broker_leaves_no_directory(tmp_path: Path) -> None:
    program = """
import os, fencepost
broker = fencepost.Broker().start()
producer = fencepost.Producer(broker.bootstrap_servers, transactional_id="x")
producer.init_transactions()
producer.begin_transaction()
producer.send("orders", b"x")
assert os.path.isdir(broker.data_dir)
if os.fork() == 0:
    raise SystemExit(0)  # a child ends nothing that is its parent's
os.wait()
assert os.path.isdir(broker.data_dir)
producer.commit_transaction()
"""
    done = run(program, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("fencepost-")] == []


def test_a_client_that_is_forgotten_warns_and_delivers(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    producer = fencepost.Producer(broker.bootstrap_servers, linger_ms=10_000)
    delivery = producer.send(topic, b"v")
    with pytest.warns(ResourceWarning, match="^Producer was never closed"):  # noqa: PT031 (both are it)
        del producer
        gc.collect()
    assert delivery.result(120).offset == 0


def test_and_with_asyncio(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)

    async def main() -> None:
        producer = fencepost.AsyncProducer(broker.bootstrap_servers, linger_ms=10_000)
        delivery = await producer.send(topic, b"v")
        with pytest.warns(ResourceWarning, match="^AsyncProducer was never closed"):  # noqa: PT031 (both are it)
            del producer
            gc.collect()
        async with asyncio.timeout(30):
            assert (await delivery).offset == 0

    asyncio.run(main())


def test_a_client_of_one_event_loop_is_refused_in_another(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)

    async def make() -> tuple[fencepost.AsyncProducer, fencepost.AsyncConsumer, fencepost.AsyncAdmin]:
        where = broker.bootstrap_servers
        return fencepost.AsyncProducer(where), fencepost.AsyncConsumer(where), fencepost.AsyncAdmin(where)

    first = asyncio.new_event_loop()
    clients = producer, consumer, admin = first.run_until_complete(make())

    async def use() -> None:
        with pytest.raises(UsageError, match="belongs to the event loop it was made in"):
            await producer.send(topic, b"v")
        with pytest.raises(UsageError, match="make one in each loop"):
            await consumer.poll(100)
        with pytest.raises(UsageError, match="AsyncAdmin"):
            await admin.list_topics()

    asyncio.run(use())
    for client in clients:
        first.run_until_complete(client.close())
    with pytest.raises(ClosedError):
        first.run_until_complete(producer.send(topic, b"v"))
    first.close()


def test_and_in_a_forked_process(broker: BrokerUnderTest) -> None:
    async def make() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers) as producer:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    await producer.flush()
                except ForkedError:
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 (it ends at once)

    asyncio.run(make())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork()")
def test_a_forked_child_ends_nothing_of_its_parent() -> None:
    """The first leaves all blocks, and what is registered for the end of the program runs."""
    program = """
import os, sys, fencepost

def forked(act):
    if (child := os.fork()) == 0:
        act()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def close_all():
    for client in (producer, consumer, admin):
        client.close()
    broker.stop()
    os._exit(8)

def leave_another():
    fencepost.Broker().start()
    sys.exit(9)

with (
    fencepost.Broker() as broker,
    fencepost.Producer(broker.bootstrap_servers.replace("127.0.0.1", "localhost"), transactional_id="x") as producer,
    fencepost.Consumer(broker.bootstrap_servers, group_id="g") as consumer,
    fencepost.Admin(broker.bootstrap_servers) as admin,
):
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"1").result(120)
        print(forked(lambda: sys.exit(7)), forked(close_all), forked(leave_another))
    print(admin.list_offsets({("t", 0): -1})[fencepost.TopicPartition("t", 0)].offset)
"""
    done = run(program)
    assert (done.stdout.split(), done.stderr) == (["7", "8", "9", "2"], "")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork()")
def test_a_forked_child_uses_its_parent_s_broker_as_a_client_only() -> None:
    program = """
import os, fencepost
with fencepost.Broker() as broker:
    if (child := os.fork()) == 0:
        for call in (
            broker.restart, broker.metrics, broker.settle, broker.wait_for_failure, lambda: broker.clock.advance(1)
        ):
            try:
                call()
            except RuntimeError as error:
                print(error, flush=True)
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            print(admin.list_topics(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = run(program)
    assert (done.stdout.splitlines(), done.stderr) == (
        ["the broker runs in the process that started it"] * 5 + ["[]"],
        "",
    )
