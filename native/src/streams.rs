//! Connections of a server: receives bytes, splits them into frames, and sends responses when the socket accepts them.
//!
//! `Streams` watches all sockets of a server. Its file descriptor is readable while there is work, so a Python event
//! loop watches only that descriptor. `Streams.ready` then receives from the readable sockets, and returns the complete
//! frames. `Stream` implements the methods of asyncio transports that a server needs.
//!
//! Python decides about limits, the order of requests and the content of frames. All calls must come from one thread.

use crate::buffers::{bytes_mut, uninitialized, Input};
use crate::python::without_lock;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use pyo3::exceptions::{PyBaseException, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyTuple};
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read, Result, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PREFIX_BYTES: usize = 4;
/// Size in bytes of the receive buffer that all connections share.
const RECEIVE_BUFFER_BYTES: usize = 64 * 1024;
/// Growth factor of the memory for an incomplete frame. It bounds that memory to a small multiple of the received
/// bytes.
const GROWTH: usize = 4;
/// Bytes to receive from one connection before it is the turn of others.
const TURN_BYTES: usize = 256 * 1024;
/// Estimated memory of a small frame in addition to its content, in bytes.
const FRAME_BYTES: usize = 64;
/// Largest number of connections in one turn.
const MAX_EVENTS: usize = 64;
/// Largest number of buffers in one write.
const MAX_BUFFERS_PER_WRITE: usize = 64;
const WAKE: Token = Token(usize::MAX);

/// End of the input: the client closed the connection, or the connection failed. `CLOSED` follows when it is closed
/// here.
const ENDED: u8 = 1;
/// A frame announces a size that is not accepted; see `Stream.refused_size`.
const REFUSED: u8 = 2;
/// `Stream.is_over_limit` has become false.
const DRAINED: u8 = 4;
/// The connection is closed. This is its last event.
const CLOSED: u8 = 8;
/// An error in this module, such as a lack of memory, has closed the connection; see `Stream.failure`. `CLOSED`
/// follows.
const FAILED: u8 = 16;
/// The memory of an incomplete frame is full. Nothing is received until `Stream.grow` is called.
const FULL: u8 = 32;

/// The state of `Streams` that every stream uses.
struct Shared {
    registry: Registry,
    waker: Waker,
    closed: Mutex<Vec<usize>>,
}

impl Shared {
    fn report_closed(&self, key: usize) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        // If waking fails, `ready` returns the entry with the next event of another connection.
        let _ = self.waker.wake();
    }
}

/// A frame that has arrived in part.
struct PartialFrame {
    memory: Py<PyByteArray>,
    filled: usize,
    size: usize,
}

#[pyclass(module = "fencepost_native")]
pub struct Stream {
    key: usize,
    shared: Arc<Shared>,
    socket: Option<TcpStream>,
    is_closing: bool,
    is_paused: bool,
    /// The bytes of a frame's size that have arrived, if it is not complete.
    size_prefix: Vec<u8>,
    partial: Option<PartialFrame>,
    is_first_frame: bool,
    /// Sizes with these upper 16 bits are the beginning of another protocol, such as TLS or HTTP.
    foreign_prefixes: Vec<i32>,
    #[pyo3(get, set)]
    max_frame_bytes: i64,
    #[pyo3(get)]
    refused_size: i64,
    unsent: VecDeque<Py<PyAny>>,
    unsent_bytes: usize,
    /// Number of bytes of the first unsent buffer that are already sent.
    sent_bytes: usize,
    unsent_limit_bytes: usize,
    /// True from when the unsent bytes exceed the limit until they fall to a quarter of it.
    #[pyo3(get)]
    is_over_limit: bool,
    failure: Option<PyErr>,
}

fn would_block(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Call `work` again while a signal interrupts it.
fn retry_interrupted<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match work() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Stream {
    /// Register the socket again, so that bytes which have already arrived cause an event.
    fn rearm(&mut self) {
        if let Some(socket) = &mut self.socket {
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.shared.registry.reregister(socket, Token(self.key), interest).is_err() {
                self.close_socket();
            }
        }
    }

    /// Close the socket, and drop all unsent and partly received bytes.
    fn close_socket(&mut self) {
        self.is_closing = true;
        if let Some(mut socket) = self.socket.take() {
            let _ = self.shared.registry.deregister(&mut socket);
            self.shared.report_closed(self.key);
        }
        self.unsent.clear();
        self.unsent_bytes = 0;
        self.partial = None;
    }

    /// Receive the bytes that have arrived, and append complete frames to `frames`. Returns event flags.
    fn receive(
        &mut self,
        py: Python<'_>,
        buffer: &mut [u8],
        is_ended: bool,
        frames: &mut Vec<Py<PyAny>>,
    ) -> PyResult<u8> {
        let mut received = 0;
        loop {
            if self.is_full(py) {
                return Ok(FULL);
            }
            let Some(socket) = &mut self.socket else { return Ok(0) };
            let prefix_bytes = self.size_prefix.len();
            let (room, result) = match &mut self.partial {
                None => {
                    let room = &mut buffer[prefix_bytes..];
                    (room.len(), retry_interrupted(|| socket.read(room)))
                }
                Some(partial) => {
                    let memory = partial.memory.bind(py);
                    let room = &mut bytes_mut(memory)[partial.filled..];
                    (room.len(), retry_interrupted(|| socket.read(room)))
                }
            };
            let count = match result {
                Ok(0) => return Ok(ENDED),
                Ok(count) => count,
                Err(error) if would_block(&error) => return Ok(0),
                Err(_) => return Ok(ENDED),
            };
            if !self.process(py, buffer, count, frames)? {
                return Ok(REFUSED);
            }
            received += count;
            if count < room && !is_ended {
                return Ok(0);
            }
            if received + FRAME_BYTES * frames.len() >= TURN_BYTES && !self.is_full(py) {
                self.rearm();
                return Ok(0);
            }
        }
    }

    /// Process `count` received bytes. Returns false if a frame has a size that is not accepted.
    fn process(
        &mut self,
        py: Python<'_>,
        buffer: &mut [u8],
        count: usize,
        frames: &mut Vec<Py<PyAny>>,
    ) -> PyResult<bool> {
        let Some(partial) = &mut self.partial else { return self.split_frames(py, buffer, count, frames) };
        partial.filled += count;
        if partial.filled == partial.size {
            frames.push(partial.memory.clone_ref(py).into_any());
            self.partial = None;
        }
        Ok(true)
    }

    fn is_full(&self, py: Python<'_>) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.filled == partial.memory.bind(py).len())
    }

    /// Split the receive buffer into frames. `count` new bytes follow the incomplete size in it.
    fn split_frames(
        &mut self,
        py: Python<'_>,
        buffer: &mut [u8],
        count: usize,
        frames: &mut Vec<Py<PyAny>>,
    ) -> PyResult<bool> {
        let filled = self.size_prefix.len() + count;
        buffer[..self.size_prefix.len()].copy_from_slice(&self.size_prefix);
        self.size_prefix.clear();
        let mut rest = &buffer[..filled];
        while let Some((prefix, after)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let announced = i32::from_be_bytes(*prefix);
            let Some(size) = self.accept_size(announced) else {
                self.refused_size = i64::from(announced);
                return Ok(false);
            };
            if let Some((frame, others)) = after.split_at_checked(size) {
                frames.push(PyBytes::new(py, frame).into_any().unbind());
                rest = others;
                continue;
            }
            let memory = uninitialized(py, size.min(GROWTH * RECEIVE_BUFFER_BYTES))?;
            bytes_mut(&memory)[..after.len()].copy_from_slice(after);
            self.partial = Some(PartialFrame { memory: memory.unbind(), filled: after.len(), size });
            return Ok(true);
        }
        self.size_prefix.extend_from_slice(rest);
        Ok(true)
    }

    fn accept_size(&mut self, announced: i32) -> Option<usize> {
        let size = usize::try_from(announced).ok()?;
        let is_foreign = self.is_first_frame && self.foreign_prefixes.contains(&(announced >> 16));
        if is_foreign || i64::from(announced) > self.max_frame_bytes {
            return None;
        }
        self.is_first_frame = false;
        Some(size)
    }

    /// Send as much as the socket accepts. Close a connection that is closing when everything is sent.
    fn send(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.unsent_bytes > 0 {
            let Some(socket) = &mut self.socket else { break };
            let buffers = self.unsent.iter().take(MAX_BUFFERS_PER_WRITE).map(|each| Input::of(each.bind(py)));
            let buffers = buffers.collect::<PyResult<Vec<_>>>()?;
            let mut slices: Vec<_> = buffers.iter().map(|buffer| IoSlice::new(buffer.bytes())).collect();
            let mut slices = &mut slices[..];
            IoSlice::advance_slices(&mut slices, self.sent_bytes);
            let size: usize = slices.iter().map(|slice| slice.len()).sum();
            let slices = &*slices;
            let result = without_lock(py, size, || retry_interrupted(|| socket.write_vectored(slices)));
            let lengths: Vec<_> = buffers.iter().map(|buffer| buffer.bytes().len()).collect();
            drop(buffers);
            match result {
                Ok(count) => self.drop_sent(count, &lengths),
                Err(error) if would_block(&error) => break,
                Err(_) => {
                    self.close_socket();
                    return Ok(());
                }
            }
        }
        if self.is_closing && self.unsent_bytes == 0 {
            self.close_socket();
        }
        self.is_over_limit = self.unsent_bytes > self.unsent_limit_bytes / if self.is_over_limit { 4 } else { 1 };
        Ok(())
    }

    /// Send and receive after an event. Returns event flags. On failure, `frames` has the frames that were complete
    /// before.
    fn handle(
        &mut self,
        py: Python<'_>,
        event: &Event,
        buffer: &mut [u8],
        frames: &mut Vec<Py<PyAny>>,
    ) -> PyResult<u8> {
        let mut flags = 0;
        if event.is_writable() && self.unsent_bytes > 0 {
            let was_over_limit = self.is_over_limit;
            self.send(py)?;
            if was_over_limit && !self.is_over_limit {
                flags |= DRAINED;
            }
        }
        let is_ended = event.is_read_closed() || event.is_error();
        if (event.is_readable() || is_ended) && !self.is_paused && !self.is_closing {
            flags |= self.receive(py, buffer, is_ended, frames)?;
        }
        Ok(flags)
    }

    /// Close the connection after an error in this module. Returns event flags.
    fn fail(&mut self, error: PyErr) -> u8 {
        self.failure = Some(error);
        self.close_socket();
        FAILED
    }

    /// Drop buffers that are completely sent. `lengths` are the sizes of the first buffers.
    fn drop_sent(&mut self, count: usize, lengths: &[usize]) {
        self.unsent_bytes -= count;
        self.sent_bytes += count;
        for length in lengths {
            if self.sent_bytes < *length || self.unsent.is_empty() {
                break;
            }
            self.sent_bytes -= length;
            self.unsent.pop_front();
        }
    }
}

#[pymethods]
impl Stream {
    /// Memory of the incomplete frame, in bytes.
    #[getter]
    fn held_bytes(&self, py: Python<'_>) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.memory.bind(py).len())
    }

    /// The error that made this module close the connection, or None.
    #[getter]
    fn failure(&self, py: Python<'_>) -> Option<Py<PyBaseException>> {
        self.failure.as_ref().map(|error| error.clone_ref(py).into_value(py))
    }

    fn get_write_buffer_size(&self) -> usize {
        self.unsent_bytes
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn is_reading(&self) -> bool {
        !self.is_paused && !self.is_closing
    }

    /// File descriptor of the socket; -1 if it is closed.
    fn fileno(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, TcpStream::as_raw_fd)
    }

    fn pause_reading(&mut self) {
        self.is_paused = true;
    }

    fn resume_reading(&mut self) {
        if std::mem::replace(&mut self.is_paused, false) {
            self.rearm();
        }
    }

    /// Allocate more memory for an incomplete frame whose memory is full.
    fn grow(&mut self, py: Python<'_>) -> PyResult<()> {
        if !self.is_full(py) {
            return Ok(());
        }
        if let Some(partial) = &mut self.partial {
            let larger = uninitialized(py, partial.size.min(GROWTH * partial.filled))?;
            bytes_mut(&larger)[..partial.filled].copy_from_slice(bytes_mut(partial.memory.bind(py)));
            partial.memory = larger.unbind();
        }
        self.rearm();
        Ok(())
    }

    /// Send a buffer. Its content must not change afterwards.
    fn write(&mut self, py: Python<'_>, data: Bound<'_, PyAny>) -> PyResult<()> {
        self.enqueue(data)?;
        self.send(py)
    }

    /// Send buffers one after another. Their content must not change afterwards.
    fn writelines(&mut self, py: Python<'_>, buffers: Bound<'_, PyAny>) -> PyResult<()> {
        for data in buffers.try_iter()? {
            self.enqueue(data?)?;
        }
        self.send(py)
    }

    /// Close the connection when everything is sent.
    fn close(&mut self) {
        self.is_closing = true;
        if self.unsent_bytes == 0 {
            self.close_socket();
        }
    }

    /// Close the connection at once, and drop unsent bytes.
    fn abort(&mut self) {
        self.close_socket();
    }
}

impl Stream {
    fn enqueue(&mut self, data: Bound<'_, PyAny>) -> PyResult<()> {
        let length = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes().len(),
            Err(_) => Input::of(&data)?.bytes().len(),
        };
        if length > 0 && self.socket.is_some() && !self.is_closing {
            self.unsent_bytes += length;
            self.unsent.push_back(data.unbind());
        }
        Ok(())
    }
}

#[pyclass(module = "fencepost_native")]
pub struct Streams {
    poll: Poll,
    events: Events,
    shared: Arc<Shared>,
    buffer: Vec<u8>,
    streams: HashMap<usize, (Py<Stream>, Py<PyAny>)>,
    next: usize,
    unsent_limit_bytes: usize,
    foreign_prefixes: Vec<i32>,
}

#[pymethods]
impl Streams {
    /// `unsent_limit_bytes`: unsent bytes of a connection above which its `is_over_limit` is true. `foreign_prefixes`:
    /// the upper 16 bits of sizes that are the beginning of another protocol.
    #[new]
    fn new(unsent_limit_bytes: usize, foreign_prefixes: Vec<i32>) -> PyResult<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKE)?;
        let shared = Arc::new(Shared { registry, waker, closed: Mutex::default() });
        Ok(Self {
            poll,
            events: Events::with_capacity(MAX_EVENTS),
            shared,
            buffer: vec![0; RECEIVE_BUFFER_BYTES],
            streams: HashMap::new(),
            next: 0,
            unsent_limit_bytes,
            foreign_prefixes,
        })
    }

    #[classattr]
    const ENDED: u8 = ENDED;
    #[classattr]
    const REFUSED: u8 = REFUSED;
    #[classattr]
    const DRAINED: u8 = DRAINED;
    #[classattr]
    const CLOSED: u8 = CLOSED;
    #[classattr]
    const FAILED: u8 = FAILED;
    #[classattr]
    const FULL: u8 = FULL;

    /// File descriptor that is readable while there is work.
    fn fileno(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Take ownership of a connected, non-blocking socket. Its descriptor is closed with the stream, or when this call
    /// fails.
    fn add(
        &mut self,
        py: Python<'_>,
        descriptor: RawFd,
        owner: Py<PyAny>,
        max_frame_bytes: i64,
    ) -> PyResult<Py<Stream>> {
        let mut socket = crate::buffers::owned_socket(descriptor)
            .map(TcpStream::from_std)
            .ok_or_else(|| PyValueError::new_err(format!("{descriptor} is no descriptor")))?;
        let key = self.next;
        self.next += 1;
        self.shared.registry.register(&mut socket, Token(key), Interest::READABLE | Interest::WRITABLE)?;
        let stream = Stream {
            key,
            shared: Arc::clone(&self.shared),
            socket: Some(socket),
            is_closing: false,
            is_paused: false,
            size_prefix: Vec::new(),
            partial: None,
            is_first_frame: true,
            foreign_prefixes: self.foreign_prefixes.clone(),
            max_frame_bytes,
            refused_size: 0,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            sent_bytes: 0,
            unsent_limit_bytes: self.unsent_limit_bytes,
            is_over_limit: false,
            failure: None,
        };
        let stream = Py::new(py, stream)?;
        self.streams.insert(key, (stream.clone_ref(py), owner));
        Ok(stream)
    }

    /// Receive and send without blocking, for at most 64 connections.
    ///
    /// Returns a list of (owner, frames, event flags). It includes connections whose only change is the memory they
    /// hold.
    fn ready<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(PyOSError::new_err(error)),
            _ => {}
        }
        let mut found: Vec<Bound<'py, PyTuple>> = Vec::new();
        for event in &self.events {
            let Some((stream, owner)) = self.streams.get(&event.token().0) else { continue };
            let mut stream = stream.bind(py).try_borrow_mut()?;
            let mut frames = Vec::new();
            let held = stream.held_bytes(py);
            let flags = match stream.handle(py, event, &mut self.buffer, &mut frames) {
                Ok(flags) => flags,
                Err(error) => stream.fail(error), // do not return: the events of other connections would be lost
            };
            let is_reported = flags != 0 || !frames.is_empty() || stream.held_bytes(py) != held;
            drop(stream);
            if is_reported {
                found.push((owner, PyList::new(py, frames)?, flags).into_pyobject(py)?);
            }
        }
        let closed = std::mem::take(&mut *self.shared.closed.lock().unwrap_or_else(PoisonError::into_inner));
        for key in closed {
            if let Some((_, owner)) = self.streams.remove(&key) {
                found.push((owner, PyList::empty(py), CLOSED).into_pyobject(py)?);
            }
        }
        PyList::new(py, found)
    }
}
