"""The real runtime: asyncio (or uvloop) tasks, sockets and clock."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import ipaddress
import logging
import random
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fencepost.arguments import address_text
from fencepost.client.net.io_thread import is_shared
from fencepost.client.net.runtime import StreamClosed, StreamRefused
from fencepost.config import CommonConfig
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import WireError
from fencepost.protocol.receiver import Receiver, common_buffer
from fencepost.protocol.records import engine

if TYPE_CHECKING:
    from fencepost.client.proxies import Proxy
    from fencepost.client.sasl import Conversation

log = logging.getLogger("fencepost.client")
_chance = random.SystemRandom()  # has no state: a forked child draws other numbers, and no seed is changed

HIGH_WATER_BYTES = 4 * 1024 * 1024
NEXT_ADDRESS_S = 0.25
PROXY_BYTES = 4096  # maximum size of one read from a proxy
LEAST_ROOM_BYTES = 1024 * 1024  # of a response for which memory is allocated at once
READ_AHEAD_BYTES = 8 * 1024 * 1024  # bytes of received frames that are not taken yet; above it reading pauses
# First bytes of other protocols, in place of the size of a Kafka response.
OTHER_PROTOCOLS = {
    0x1503: "the port answers in TLS; security_protocol has to be SSL or SASL_SSL",
    0x4854: "the port answers in HTTP; it is not a Kafka listener",
}

S = TypeVar("S", "StreamProtocol", socket.socket)

# Opens the transport for a protocol, with or without TLS.
Opener = Callable[[Callable[[], "StreamProtocol"], str, int], Awaitable["StreamProtocol"]]


class AsyncioEvent:
    """Like asyncio.Event, with a timeout that does not need a task of its own."""

    __slots__ = ("_flag", "_loop", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._flag = False
        self._waiters: deque[asyncio.Future[bool]] = deque()

    def set(self) -> None:
        self._flag = True
        if self._loop.is_closed():
            return  # a closed loop runs no waiters
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(True)

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    async def wait(self, timeout_ms: float | None = None) -> bool:
        if self._flag:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        timer = None
        if timeout_ms is not None:
            timer = self._loop.call_later(max(timeout_ms, 0) / 1000, _expire, waiter)
        self._waiters.append(waiter)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class StreamProtocol(asyncio.BufferedProtocol):
    """Frames over an asyncio transport, with flow control in both directions. The receiver allocates their memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._receiver = receiver
        self._received: list[memoryview] = []
        self._received_bytes = 0
        self._reading_paused = False
        self._ended = False
        self._error: Exception | None = None
        self._malformed: WireError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from asyncio's
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._malformed is not None:
            return  # the start of the next frame is unknown
        try:
            frames = self._receiver.received(nbytes)
        except WireError as error:
            self._malformed = error
            self._wake_reader()
            return
        if not frames:
            return
        self._received += frames
        self._received_bytes += sum(map(len, frames))
        if self._received_bytes > READ_AHEAD_BYTES and self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake_reader()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._error = exc
        self._wake_reader()
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._drained is None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or self._ended or transport.is_closing():
            raise self._lost("the connection is closed") from self._error
        transport.writelines(buffers)
        drained = self._drained
        if drained is not None:
            await asyncio.shield(drained)

    async def receive(self) -> list[memoryview]:
        while not self._received:
            if self._malformed is not None:
                raise self._malformed
            if self._ended:
                if self._error is not None:
                    raise self._lost(str(self._error) or type(self._error).__name__) from self._error
                return []
            self._reader = self._loop.create_future()
            await self._reader
        frames, self._received = self._received, []
        self._received_bytes = 0
        if self._reading_paused and self._transport is not None and not self._ended:
            self._reading_paused = False
            self._transport.resume_reading()
        return frames

    def _lost(self, operation: str) -> StreamClosed:
        # A broker that requires a certificate refuses only after the client's part of a TLS 1.3 handshake is complete.
        refused = _tls_refusal(self._error)
        return StreamRefused(refused) if refused is not None else StreamClosed(operation)

    def close(self) -> None:
        self._ended = True
        self._wake_reader()
        if self._transport is not None:
            self._transport.abort()


def _tls_refusal(error: BaseException | None) -> str | None:
    """Return a text if the error is a TLS refusal, so that a retry cannot succeed; else None."""
    if not isinstance(error, ssl.SSLError):
        return None
    from fencepost.client.net import tls  # loaded by clients with TLS

    return tls.refusal(error)


async def open_plaintext(factory: Callable[[], StreamProtocol], host: str, port: int, **options: Any) -> StreamProtocol:
    """Open a plain TCP connection.

    The addresses of a name are tried in turn. If an attempt takes longer than 250 ms, the next starts in parallel
    (RFC 8305).
    """

    async def attempt(address: str) -> StreamProtocol:
        _, stream = await asyncio.get_running_loop().create_connection(factory, address, port, **options)
        return stream

    return await attempt(host) if _is_address(host) else await _open_first(attempt, await _addresses(host, port))


async def open_through(
    proxy: Proxy, factory: Callable[[], StreamProtocol], host: str, port: int, **options: Any
) -> StreamProtocol:
    """Open a TCP connection through a proxy. The proxy's addresses are tried like a broker's.

    Raises OSError, StreamRefused, StreamClosed.
    """
    from fencepost.client.proxies import ProxyFailed, ProxyRefused  # loaded by clients with a proxy

    async def attempt(address: str) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address, proxy.port))
        except BaseException:
            sock.close()
            raise
        return sock

    through = f"{address_text(host, port)} through proxy {proxy}"
    try:
        found = [proxy.host] if _is_address(proxy.host) else await _addresses(proxy.host, proxy.port)
        sock = await _open_first(attempt, found)
    except (OSError, UnicodeError) as error:
        raise StreamClosed(f"{through}: the proxy cannot be reached: {error}") from error
    try:
        target = host if proxy.resolves_names or _is_address(host) else (await _addresses(host, port))[0]
        await _converse(sock, proxy.conversation(target, port))
        _, stream = await asyncio.get_running_loop().create_connection(factory, sock=sock, **options)
    except ProxyFailed as error:
        sock.close()
        raise (StreamRefused if isinstance(error, ProxyRefused) else StreamClosed)(f"{through}: {error}") from error
    except BaseException:
        sock.close()
        raise
    return stream


async def _converse(sock: socket.socket, conversation: Conversation) -> None:
    """Exchange the proxy protocol's messages. Raises ProxyFailed."""
    from fencepost.client.proxies import ProxyFailed

    loop = asyncio.get_running_loop()
    try:
        to_send = next(conversation)
        while True:
            if to_send:
                await loop.sock_sendall(sock, to_send)
            to_send = conversation.send(await loop.sock_recv(sock, PROXY_BYTES))
    except StopIteration:
        return
    except OSError as error:
        raise ProxyFailed(f"the connection was lost before it answered: {error}") from error


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _addresses(host: str, port: int) -> list[str]:
    """Resolve a host name.

    uvloop's own resolver leaves threads of libuv. A forked child waits for these threads, and crashes.
    """
    look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await in_thread(look_up)  # the loop's own pool would be blocked by a name server that hangs
    except RuntimeError:  # no thread can be started at the end of the program, which waits for this call
        found = look_up()
    return [str(address[0]) for *_, address in found]


async def _open_first(attempt: Callable[[str], Coroutine[Any, Any, S]], addresses: Sequence[str]) -> S:
    """Return the first connection that opens.

    asyncio's `happy_eyeballs_delay` is not used, because it leaves sockets open if it is cancelled.
    """
    tasks: list[asyncio.Task[S]] = []
    winner: asyncio.Task[S] | None = None
    try:
        while winner is None:
            if len(tasks) < len(addresses):
                tasks.append(asyncio.ensure_future(attempt(addresses[len(tasks)])))
            trying = [task for task in tasks if not task.done()]
            if trying:
                pause_s = NEXT_ADDRESS_S if len(tasks) < len(addresses) else None
                await asyncio.wait(trying, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            winner = next((task for task in tasks if task.done() and _is_final(task)), None)
            if winner is None and len(tasks) == len(addresses) and all(task.done() for task in tasks):
                raise _refused([task.exception() for task in tasks])
        return winner.result()
    finally:
        for task in tasks:
            if task is not winner:
                task.cancel()
                task.add_done_callback(_close_unwanted)


def _is_final(task: asyncio.Task[S]) -> bool:
    """Return true if other addresses need not be tried, because a connection was established."""
    error = task.exception()
    return not isinstance(error, OSError) or isinstance(
        error, (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)
    )


def _refused(errors: Sequence[BaseException | None]) -> OSError:
    refusals = [error for error in errors if isinstance(error, OSError)]
    return refusals[0] if len(refusals) == 1 else OSError(refusals[-1].errno, "; ".join(map(str, refusals)))


def _close_unwanted(task: asyncio.Task[S]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def open_tls(
    context: Callable[[], ssl.SSLContext],
    open_tcp: Callable[..., Awaitable[StreamProtocol]],
    factory: Callable[[], StreamProtocol],
    host: str,
    port: int,
) -> StreamProtocol:
    """Open TLS over `open_tcp`. Sends the host name (SNI), and checks it if the context requires that."""
    try:
        return await open_tcp(factory, host, port, ssl=context(), server_hostname=host)
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, EOFError) as error:
        refused = _tls_refusal(error)
        if refused is not None:
            raise StreamRefused(f"{address_text(host, port)}: {refused}") from error
        raise StreamClosed(
            f"{address_text(host, port)}: closed during the TLS handshake ({str(error) or type(error).__name__}); "
            "a plaintext listener does that (security_protocol), and a broker that is just stopping"
        ) from error


def runtime_for(config: CommonConfig) -> AsyncioRuntime:
    """Return the runtime of a client in the running loop, with the TLS and proxy of the settings.

    Raises ConfigurationError.
    """
    open_tcp: Callable[..., Awaitable[StreamProtocol]] = open_plaintext
    if config.proxy_url is not None:
        from fencepost.client.proxies import proxy_of  # only clients with a proxy load it

        open_tcp = functools.partial(open_through, proxy_of(config.proxy_url))
    if "SSL" not in config.security_protocol:
        return AsyncioRuntime(open_tcp)
    from fencepost.client.net import tls  # only clients with TLS load it

    return AsyncioRuntime(functools.partial(open_tls, tls.Contexts(config).current, open_tcp))


def in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run a function that may block in a daemon thread of its own. Return a future of its result.

    asyncio's pool has few threads, which name resolution needs: functions that hang would stop all clients. The end of
    the program would also wait for the pool's threads.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: Any, error: Exception | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def run() -> None:
        value: Any = None
        failure: Exception | None = None
        try:
            value = context.run(function)
        except StopIteration as error:
            failure = RuntimeError(f"raised {error!r}")  # a future cannot hold a StopIteration
        except Exception as error:  # noqa: BLE001 (raised where the result is awaited)
            failure = error
        except BaseException as error:  # noqa: BLE001 (SystemExit must not end the loop)
            failure = RuntimeError(f"raised {error!r}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(deliver, value, failure)

    threading.Thread(target=run, name="fencepost-function", daemon=True).start()
    return result


def own_loop(owner: object) -> asyncio.AbstractEventLoop:
    """Return a new event loop in a daemon thread of its own. The loop ends when `owner` is collected."""
    loop = asyncio.new_event_loop()

    def serve() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    threading.Thread(target=serve, name="fencepost-coroutines", daemon=True).start()
    weakref.finalize(owner, loop.call_soon_threadsafe, loop.stop)
    return loop


class AsyncioRuntime:
    """`Runtime` for the running event loop. `opener` opens streams: `open_plaintext`, `open_through` or `open_tls`."""

    def __init__(self, opener: Opener = open_plaintext) -> None:
        self.loop = asyncio.get_running_loop()
        self._opener = opener
        self._common = common_buffer()
        self._tasks: set[asyncio.Task[None]] = set()
        # Loop for the application's coroutines, created on first use.
        self._own_loop: asyncio.AbstractEventLoop | None = None

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, ms: float) -> None:
        await asyncio.sleep(max(ms, 0) / 1000)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a client task failed", exc_info=task.exception())

    def silence(self) -> None:
        """Suppress asyncio's warnings about the pending tasks of a loop that is gone."""
        for task in self._tasks:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010 (asyncio.gather does the same; the attribute is not in its types)

    def event(self) -> AsyncioEvent:
        return AsyncioEvent(self.loop)

    async def open(self, host: str, port: int, max_frame_bytes: int) -> StreamProtocol:
        def stream() -> StreamProtocol:
            return StreamProtocol(self.loop, Receiver(max_frame_bytes, self._common, OTHER_PROTOCOLS, _room_for))

        try:
            return await self._opener(stream, host, port)
        except OSError as error:
            raise StreamClosed(f"{address_text(host, port)}: {error}") from error
        except UnicodeError as error:  # a label of the host name is empty or too long
            raise StreamClosed(f"{address_text(host, port)}: that cannot be the name of a host ({error})") from error

    def random(self) -> float:
        return _chance.random()

    def nonce(self) -> str:
        import secrets  # only logins need it

        return secrets.token_urlsafe(24)

    async def run_callback(self, function: Callable[[], Any]) -> Any:
        if inspect.iscoroutinefunction(function):
            return await self._awaited(function())
        result = await in_thread(function)
        return await self._awaited(result) if inspect.isawaitable(result) else result

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        """Await the application's coroutine. It may block, so it does not run in the loop that all clients share."""
        if not is_shared(self.loop):
            return await result
        if self._own_loop is None:
            self._own_loop = own_loop(self)

        async def wait() -> Any:
            try:
                return await result
            except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop, and every later coroutine wait
                raise RuntimeError(f"raised {error!r}") from error

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wait(), self._own_loop))


def _room_for(size_bytes: int) -> memoryview | None:
    """Return untouched memory for a large response; None for a small one, and without the native module.

    Pages are committed on first write, so a forged size costs no memory. The standard library fills all memory that it
    allocates. This memory reuses pages; pages that are new to the process cost more than the copy of the data into
    them.
    """
    if size_bytes < LEAST_ROOM_BYTES or not engine.is_native:
        return None
    return memoryview(engine.native.uninitialized_bytes(size_bytes))
