"""Attacks on a broker, over real sockets."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from uuid import UUID

from fencepost.protocol import codec, fetch_wire, frame, produce_wire
from fencepost.protocol.codec import encode_request
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.receiver import Receiver
from tests.support.fuzz.batches import CODECS, bomb
from tests.support.fuzz.damage import HUGE, cut_everywhere, damaged
from tests.support.fuzz.requests import FETCH, PRODUCE, TOPICS, Question, Requests, every_version
from tests.support.raw_client import RawClient

__all__ = ["Attacker", "descriptors", "prepare"]

MAY_WAIT = (FETCH, 11, 14)
"""Fetch, JoinGroup and SyncGroup are answered when something happens, and hold up what is behind them."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "", "x" * 500)
TOKENS = (b"\0alice\0wrong", b"n,,n=alice,r=rOprNGfwEbeRWgbNEkqO", b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=AAAA", bytes(300))
PATIENCE_S = 60.0
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
SOON_S = 0.01
MARK = 77_777
BOMB_BYTES = 100 << 20
RESERVE = 500


@contextmanager
def descriptors() -> Iterator[int]:
    """While the context lasts, as many descriptors as this process may have; for how many connections they are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield (hard - RESERVE) // 2  # both ends are in this process
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def prepare(servers: str) -> Mapping[str, UUID]:
    """Make the `TOPICS` with a few megabytes in each; their ids."""
    with RawClient(servers) as client:
        for topic in TOPICS:
            client.create_topic(topic)
            for _ in range(5):
                client.produce(topic, [bytes(1_000_000)])
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
        return {topic.name: topic.topic_id for topic in client.call(request, 12).topics}


class Attacker:
    """Does harm to the broker at `address`. `after` is called after each piece of it; `happened` counts what became of
    it.

    Raises AssertionError when an answer is malformed, or a request is neither answered nor refused by closing.
    """

    def __init__(
        self, address: str, requests: Requests, random: Random, after: Callable[[], None], happened: Counter[str]
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._requests = requests
        self._random = random
        self._after = after
        self._happened = happened
        self._now_ms = int(time.time() * 1000)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self._address, timeout=PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    # --- requests ---

    def every_request(self) -> None:
        """Each API in each version, whole, damaged, and in one of the versions cut at every length."""
        for key, version in every_version():
            whole = self._requests.draw(key, version)
            self._ask([whole])
            for _ in range(4):
                question = self._requests.draw(key, version)
                self._ask([Question(key, version, damaged(question.body, self._random))])
            self._after()
        for key in {key for key, _ in every_version()}:
            version = self._random.choice([version for other_key, version in every_version() if other_key == key])
            body = self._requests.draw(key, version).body
            self._ask([Question(key, version, cut) for cut in list(cut_everywhere(body))[-200:]], at_once=False)
            self._after()

    def random_requests(self, count: int) -> None:
        """Several on a connection, whole or damaged."""
        versions = list(every_version())
        for _ in range(count):
            questions = []
            for _ in range(self._random.choice((1, 1, 3, 10))):
                question = self._requests.draw(*self._random.choice(versions))
                if self._random.random() < 0.6:
                    body = damaged(question.body, self._random)
                    question = Question(question.api_key, question.version, body)
                questions.append(question)
            self._ask(questions)
            self._after()

    def _ask(self, questions: Sequence[Question], *, at_once: bool = True) -> None:
        """Ask, all on one connection or each on its own, and look at what comes back."""
        for some in [questions] if at_once else [[question] for question in questions]:
            with self.connect() as connection:
                frames = [
                    frame.encode_request_frame(question.api_key, question.version, number, "fuzz", question.body)
                    for number, question in enumerate(some)
                ]
                frames.append(frame.encode_request_frame(API_VERSIONS, 0, MARK, "fuzz", b""))
                connection.sendall(b"".join(frames))
                self._listen(connection, some)

    def _listen(self, connection: socket.socket, questions: Sequence[Question]) -> None:
        """Until the last request is answered, or the connection closed; who may wait is not waited for."""
        waits = any(question.api_key in MAY_WAIT for question in questions)
        patience_s = SOON_S if waits else PATIENCE_S
        connection.settimeout(patience_s)
        received = Receiver(2**31 - 1)
        while True:
            try:
                data = connection.recv(1 << 20)
            except TimeoutError:
                if not waits:
                    raise AssertionError(f"neither answered nor closed: {questions}") from None
                self._happened["parked"] += 1
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._happened["closed"] += 1
                return
            for answer in received.feed(data):
                (correlation_id,) = struct.unpack_from(">i", answer)
                if correlation_id == MARK:
                    return
                self._happened["answered"] += 1
                decode(questions[correlation_id], answer)

    def before_login(self, count: int) -> None:
        """On a listener that asks who one is: tokens that are none, in and out of requests, and requests too early."""
        handshakes = [encode_request(SaslHandshakeRequest(mechanism=name), 1) for name in MECHANISMS]
        for _ in range(count):
            token = damaged(self._random.choice(TOKENS), self._random)
            login = [
                Question(SASL_HANDSHAKE, self._random.choice((0, 1)), self._random.choice(handshakes)),
                Question(SASL_AUTHENTICATE, 2, encode_request(SaslAuthenticateRequest(auth_bytes=token), 2)),
                self._requests.draw(*self._random.choice(list(every_version()))),
            ]
            self._random.shuffle(login)
            self._ask(login[: self._random.choice((1, 2, 3))])
            with self.connect() as connection:  # v0: what follows has no header
                shaken = frame.encode_request_frame(SASL_HANDSHAKE, 0, 1, "fuzz", handshakes[0])
                self._send(connection, shaken + struct.pack(">i", len(token)) + token + token)
            self._after()

    # --- bytes ---

    def lying_sizes(self) -> None:
        """Sizes that are negative, huge, or promised and never sent; streams that are nothing at all."""
        with ExitStack() as stack:
            for _ in range(40):
                connection = stack.enter_context(self.connect())
                promised = self._random.choice((HUGE, -1, -(2**31), 100 << 20, 5, 0))
                connection.sendall(struct.pack(">i", promised) + self._random.randbytes(self._random.randrange(40)))
            for _ in range(20):
                self._send(stack.enter_context(self.connect()), self._random.randbytes(300))
            self._send(stack.enter_context(self.connect()), b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n")
            self._send(stack.enter_context(self.connect()), bytes.fromhex("16030100c2010000be0303") + bytes(200))
            self._after()

    def a_byte_at_a_time(self) -> None:
        """A request that is whole in the end is answered, however slowly it comes."""
        request = frame.encode_request_frame(API_VERSIONS, 0, MARK, "slow", b"")
        with self.connect() as connection:
            for number in range(len(request)):
                connection.sendall(request[number : number + 1])
                if number % 8 == 0:
                    self._after()
            if len(connection.recv(1 << 16)) < 100:
                raise AssertionError("a slow request is not answered")

    def _send(self, connection: socket.socket, data: bytes) -> None:
        try:
            connection.sendall(data)
        except OSError as error:  # it was closed in the middle of it
            self._happened[type(error).__name__] += 1

    # --- resources ---

    def unread_answers(self, connections: int = 120) -> None:
        """Ask for much on many connections, and never read."""
        wanted = [fetch_wire.FetchTopic(name, None, [fetch_wire.FetchPartition(0, 0, HUGE)]) for name in TOPICS]
        fetch = fetch_wire.FetchRequest(max_wait_ms=0, max_bytes=HUGE, topics=wanted)
        body = b"".join(fetch_wire.encode_request(fetch, 12))
        request = frame.encode_request_frame(FETCH, 12, 1, "deaf", body)
        metadata = frame.encode_request_frame(3, 0, 1, "deaf", bytes(4))
        with ExitStack() as stack:
            for number in range(connections):
                asked = metadata * 300 if number % 6 == 0 else request * 20
                self._send_ahead(stack.enter_context(self.connect()), asked)
            for _ in range(20):  # meanwhile the broker answers as many of them as it will
                self._after()

    def _send_ahead(self, connection: socket.socket, data: bytes) -> None:
        """As much as is taken at once."""
        connection.setblocking(False)
        try:
            self._happened["sent ahead"] += connection.send(data)
        except OSError as error:
            self._happened[type(error).__name__] += 1

    def crowd(self, count: int) -> None:
        """So many connections at once: silent, in the middle of a request, and such that have asked."""
        asked = frame.encode_request_frame(API_VERSIONS, 0, MARK, "crowd", b"")
        sayings = (b"", asked[:3], asked[:9], asked, struct.pack(">i", 10_000_000))
        with ExitStack() as stack:
            for number in range(count):
                connection = stack.enter_context(self.connect())
                self._send(connection, sayings[number % len(sayings)])
                if number % 500 == 499:
                    self._after()
            self._after()
            self._happened["connections of a crowd"] += count

    def bombs(self) -> None:
        """Batches of a few kilobytes that are a hundred megabytes, eight of them in a request."""
        for codec_name in CODECS:
            records = bomb(codec_name, BOMB_BYTES, self._now_ms)
            wanted = [produce_wire.ProducePartition(TOPICS[0], None, 0, records)] * 8
            body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, -1, 30_000, wanted), 9))
            self._ask([Question(PRODUCE, 9, body)])
            self._after()


def decode(question: Question, answer: memoryview) -> None:
    """Raises AssertionError for an answer that cannot be read."""
    key, version = question.api_key, question.version
    try:
        _, start = frame.decode_response_header(key, version, answer)
        if key == PRODUCE:
            produce_wire.decode_response(answer[start:], version)
        elif key == FETCH:
            fetch_wire.decode_response(answer[start:], version)
        else:
            codec.decode_response(key, version, answer[start:])
    except ValueError as error:
        raise AssertionError(f"the answer to {question} is {bytes(answer[:200])!r}: {error}") from error
