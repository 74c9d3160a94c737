//! Connections of a server: bytes in, whole frames out, and answers written when the socket accepts them.
//!
//! `Streams` watches all sockets of a server. Its descriptor is readable while there is work, so that an event loop of
//! Python watches that one descriptor. `Streams.ready` then receives from the sockets that have something, and returns
//! the frames that are complete. A `Stream` has the methods of a transport of asyncio that a server needs.
//!
//! Limits, the order of requests and what a frame means are decided in Python. All calls come from one thread.

use crate::buffers::{inside, untouched, Input};
use crate::python::working;
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
/// Size of the receive buffer that all connections use in turn.
const SPACE_BYTES: usize = 64 * 1024;
/// Memory for an incomplete frame grows by this factor, so that it is a small multiple of what has been received.
const GROWTH: usize = 4;
/// Most memory for what is received from a connection before others have their turn.
const TURN_BYTES: usize = 256 * 1024;
/// Memory of a small frame beside its bytes.
const FRAME_BYTES: usize = 64;
/// Most connections in one turn.
const MOST_EVENTS: usize = 64;
/// Most buffers of one write.
const MOST_PIECES: usize = 64;
const WAKE: Token = Token(usize::MAX);

/// The connection has ended: the client closed it, or it failed. A last entry of `ready` follows when it is closed.
const ENDED: u8 = 1;
/// A frame announces a size that is not accepted: `Stream.refused_size`.
const REFUSED: u8 = 2;
/// `Stream.is_over` has become false.
const DRAINED: u8 = 4;
/// The connection is closed, and nothing more comes of it.
const CLOSED: u8 = 8;
/// Bytes of the connection could not be handled, for want of memory for example: `Stream.failure`. `CLOSED` follows.
const FAILED: u8 = 16;
/// The memory of an incomplete frame is full. Nothing more is received until `Stream.grow`.
const FULL: u8 = 32;

/// The parts of `Streams` that a stream uses.
struct Shared {
    registry: Registry,
    waker: Waker,
    closed: Mutex<Vec<usize>>,
}

impl Shared {
    fn closed(&self, key: usize) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        // If this fails, the entry is returned with the next event of another connection.
        let _ = self.waker.wake();
    }
}

/// A frame of which only a part has arrived.
struct Partial {
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
    /// The received part of a size.
    begun: Vec<u8>,
    partial: Option<Partial>,
    is_first: bool,
    /// The first 16 bits of sizes that other protocols begin with.
    strangers: Vec<i32>,
    #[pyo3(get, set)]
    max_frame_bytes: i64,
    #[pyo3(get)]
    refused_size: i64,
    unsent: VecDeque<Py<PyAny>>,
    unsent_bytes: usize,
    /// Bytes of the first unsent buffer that are sent.
    sent_bytes: usize,
    most_unsent: usize,
    /// The unsent bytes have exceeded the limit, and have not fallen below a quarter of it since.
    #[pyo3(get)]
    is_over: bool,
    failure: Option<PyErr>,
}

fn is_patient(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Do `work` again while a signal interrupts it.
fn again<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match work() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Stream {
    /// Ask for an event if the socket has something, although no more may come.
    fn rearm(&mut self) {
        if let Some(socket) = &mut self.socket {
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.shared.registry.reregister(socket, Token(self.key), interest).is_err() {
                self.end();
            }
        }
    }

    /// Close the socket.
    fn end(&mut self) {
        self.is_closing = true;
        if let Some(mut socket) = self.socket.take() {
            let _ = self.shared.registry.deregister(&mut socket);
            self.shared.closed(self.key);
        }
        self.unsent.clear();
        self.unsent_bytes = 0;
        self.partial = None;
    }

    /// Receive what has arrived; return news.
    fn receive(
        &mut self,
        py: Python<'_>,
        space: &mut [u8],
        is_ended: bool,
        frames: &mut Vec<Py<PyAny>>,
    ) -> PyResult<u8> {
        let mut received = 0;
        loop {
            if self.is_full(py) {
                return Ok(FULL);
            }
            let Some(socket) = &mut self.socket else { return Ok(0) };
            let begun = self.begun.len();
            let (room, result) = match &mut self.partial {
                None => {
                    let room = &mut space[begun..];
                    (room.len(), again(|| socket.read(room)))
                }
                Some(partial) => {
                    let memory = partial.memory.bind(py);
                    let room = &mut inside(memory)[partial.filled..];
                    (room.len(), again(|| socket.read(room)))
                }
            };
            let count = match result {
                Ok(0) => return Ok(ENDED),
                Ok(count) => count,
                Err(error) if is_patient(&error) => return Ok(0),
                Err(_) => return Ok(ENDED),
            };
            if !self.took(py, space, count, frames)? {
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

    /// Process bytes that were received; return false if a frame is refused.
    fn took(&mut self, py: Python<'_>, space: &mut [u8], count: usize, frames: &mut Vec<Py<PyAny>>) -> PyResult<bool> {
        let Some(partial) = &mut self.partial else { return self.cut(py, space, count, frames) };
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

    /// Cut frames from the receive buffer, in which `count` bytes follow the begun size.
    fn cut(&mut self, py: Python<'_>, space: &mut [u8], count: usize, frames: &mut Vec<Py<PyAny>>) -> PyResult<bool> {
        let filled = self.begun.len() + count;
        space[..self.begun.len()].copy_from_slice(&self.begun);
        self.begun.clear();
        let mut rest = &space[..filled];
        while let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let announced = i32::from_be_bytes(*prefix);
            let Some(size) = self.accepted(announced) else {
                self.refused_size = i64::from(announced);
                return Ok(false);
            };
            if let Some((frame, others)) = behind.split_at_checked(size) {
                frames.push(PyBytes::new(py, frame).into_any().unbind());
                rest = others;
                continue;
            }
            let memory = untouched(py, size.min(GROWTH * SPACE_BYTES))?;
            inside(&memory)[..behind.len()].copy_from_slice(behind);
            self.partial = Some(Partial { memory: memory.unbind(), filled: behind.len(), size });
            return Ok(true);
        }
        self.begun.extend_from_slice(rest);
        Ok(true)
    }

    fn accepted(&mut self, announced: i32) -> Option<usize> {
        let size = usize::try_from(announced).ok()?;
        let is_strange = self.is_first && self.strangers.contains(&(announced >> 16));
        if is_strange || i64::from(announced) > self.max_frame_bytes {
            return None;
        }
        self.is_first = false;
        Some(size)
    }

    /// Write what the socket accepts. A connection that is closing is closed when all is written.
    fn send(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.unsent_bytes > 0 {
            let Some(socket) = &mut self.socket else { break };
            let pieces = self.unsent.iter().take(MOST_PIECES).map(|each| Input::of(each.bind(py)));
            let pieces = pieces.collect::<PyResult<Vec<_>>>()?;
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece.bytes())).collect();
            let mut slices = &mut slices[..];
            IoSlice::advance_slices(&mut slices, self.sent_bytes);
            let size: usize = slices.iter().map(|slice| slice.len()).sum();
            let slices = &*slices;
            let result = working(py, size, || again(|| socket.write_vectored(slices)));
            let lengths: Vec<_> = pieces.iter().map(|piece| piece.bytes().len()).collect();
            drop(pieces);
            match result {
                Ok(count) => self.sent(count, &lengths),
                Err(error) if is_patient(&error) => break,
                Err(_) => {
                    self.end();
                    return Ok(());
                }
            }
        }
        if self.is_closing && self.unsent_bytes == 0 {
            self.end();
        }
        self.is_over = self.unsent_bytes > self.most_unsent / if self.is_over { 4 } else { 1 };
        Ok(())
    }

    /// Send and receive after an event; return news. The frames that were complete before a failure are in `frames`.
    fn attend(&mut self, py: Python<'_>, event: &Event, space: &mut [u8], frames: &mut Vec<Py<PyAny>>) -> PyResult<u8> {
        let mut news = 0;
        if event.is_writable() && self.unsent_bytes > 0 {
            let was_over = self.is_over;
            self.send(py)?;
            if was_over && !self.is_over {
                news |= DRAINED;
            }
        }
        let is_ended = event.is_read_closed() || event.is_error();
        if (event.is_readable() || is_ended) && !self.is_paused && !self.is_closing {
            news |= self.receive(py, space, is_ended, frames)?;
        }
        Ok(news)
    }

    /// Close the connection, whose bytes could not be handled; return news.
    fn fail(&mut self, error: PyErr) -> u8 {
        self.failure = Some(error);
        self.end();
        FAILED
    }

    /// Drop the buffers that are sent.
    fn sent(&mut self, count: usize, lengths: &[usize]) {
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

    /// The error of a connection whose bytes could not be handled.
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

    /// Descriptor of the socket; -1 if it is closed.
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

    /// Make room for more of an incomplete frame whose memory is full.
    fn grow(&mut self, py: Python<'_>) -> PyResult<()> {
        if !self.is_full(py) {
            return Ok(());
        }
        if let Some(partial) = &mut self.partial {
            let larger = untouched(py, partial.size.min(GROWTH * partial.filled))?;
            inside(&larger)[..partial.filled].copy_from_slice(inside(partial.memory.bind(py)));
            partial.memory = larger.unbind();
        }
        self.rearm();
        Ok(())
    }

    /// Write a buffer. It must not change afterwards.
    fn write(&mut self, py: Python<'_>, data: Bound<'_, PyAny>) -> PyResult<()> {
        self.put(data)?;
        self.send(py)
    }

    /// Write buffers one after another. They must not change afterwards.
    fn writelines(&mut self, py: Python<'_>, buffers: Bound<'_, PyAny>) -> PyResult<()> {
        for data in buffers.try_iter()? {
            self.put(data?)?;
        }
        self.send(py)
    }

    /// Close the connection when all written bytes are sent.
    fn close(&mut self) {
        self.is_closing = true;
        if self.unsent_bytes == 0 {
            self.end();
        }
    }

    /// Close the connection at once.
    fn abort(&mut self) {
        self.end();
    }
}

impl Stream {
    fn put(&mut self, data: Bound<'_, PyAny>) -> PyResult<()> {
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
    space: Vec<u8>,
    streams: HashMap<usize, (Py<Stream>, Py<PyAny>)>,
    next: usize,
    most_unsent: usize,
    strangers: Vec<i32>,
}

#[pymethods]
impl Streams {
    /// `most_unsent`: `DRAINED` is told after so many unsent bytes of a connection. `strangers`: see `Stream`.
    #[new]
    fn new(most_unsent: usize, strangers: Vec<i32>) -> PyResult<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKE)?;
        let shared = Arc::new(Shared { registry, waker, closed: Mutex::default() });
        Ok(Self {
            poll,
            events: Events::with_capacity(MOST_EVENTS),
            shared,
            space: vec![0; SPACE_BYTES],
            streams: HashMap::new(),
            next: 0,
            most_unsent,
            strangers,
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

    /// The descriptor that is readable while there is work.
    fn fileno(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Own a connected socket that does not block. Its descriptor is closed with the stream, or if this call fails.
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
            begun: Vec::new(),
            partial: None,
            is_first: true,
            strangers: self.strangers.clone(),
            max_frame_bytes,
            refused_size: 0,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            sent_bytes: 0,
            most_unsent: self.most_unsent,
            is_over: false,
            failure: None,
        };
        let stream = Py::new(py, stream)?;
        self.streams.insert(key, (stream.clone_ref(py), owner));
        Ok(stream)
    }

    /// Receive and send where it is possible now; return a list of (owner, frames, news), for at most 64 connections.
    /// A connection that only holds more memory, or less, is in the list as well.
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
            let news = match stream.attend(py, event, &mut self.space, &mut frames) {
                Ok(news) => news,
                Err(error) => stream.fail(error), // the events of the others come only once
            };
            let is_told = news != 0 || !frames.is_empty() || stream.held_bytes(py) != held;
            drop(stream);
            if is_told {
                found.push((owner, PyList::new(py, frames)?, news).into_pyobject(py)?);
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
