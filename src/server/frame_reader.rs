//! Cuts the byte stream of a socket into frames: four bytes of length, then that many bytes.
//!
//! Holds no buffer while the peer is silent, so that an idle connection costs no memory; a large frame gets a buffer of its
//! own once its length is known, and untouched pages of it cost nothing until the peer really sends them. Where the
//! memory of requests is bounded (`queued.max.request.bytes`), a frame waits until there is room for the whole of it.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::ReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop::consume_budget;

use crate::wire::buffer::Buffer;

/// What is read at once while the length of the next frame is not known.
const CHUNK: usize = 16 * 1024;

/// The same on a connection whose last frame was longer than a `SMALL` one and no longer than this: several come in one read.
/// After larger ones it would only have to be copied.
const LARGE_CHUNK: usize = 64 * 1024;

/// Memory of small frames is not worth saving reads.
const SMALL: usize = 4 * 1024;

/// Frames longer than `LARGE_CHUNK` and no longer than this are read into memory that is used again.
const REUSED_MAX: usize = 2 << 20;

/// The length prefix.
const PREFIX: usize = 4;

/// Why no frame came.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("frame length {length} is outside 0..={max} (socket.request.max.bytes)")]
    Length { length: i32, max: usize },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The reading side of one connection.
pub struct FrameReader {
    buffer: BytesMut,
    /// A frame under way that has a buffer of its own, and its length; `buffer` is empty then.
    large: Option<(Buffer, usize)>,
    max_frame: usize,
    /// The length of the frame before.
    last: usize,
    /// The bytes that the requests of the whole node may still have, if that is bounded.
    memory: Option<Arc<Semaphore>>,
    /// The bytes of the frame under way.
    held: Option<OwnedSemaphorePermit>,
}

/// A frame without its length prefix.
#[derive(Debug)]
pub struct Frame {
    pub bytes: Bytes,
    /// Its share of the memory of requests.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// What there is of a frame.
enum Cut {
    Whole(Bytes),
    /// So many bytes are to be read, or a few more.
    Missing(usize),
    /// A frame of this length is to be read into a buffer of its own.
    Large(usize),
    /// A frame of this length needs its memory first.
    Unaccounted(u32),
}

impl FrameReader {
    /// A reader that refuses frames longer than `max_frame` bytes and takes the others out of `memory`.
    pub fn new(max_frame: usize, memory: Option<Arc<Semaphore>>) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), large: None, max_frame, last: 0, memory, held: None }
    }

    /// The next frame, or `None` when the peer has closed; bytes of a frame that was begun and
    /// not finished are dropped then. Cancel safe: what was read stays in the buffer.
    pub async fn next(&mut self, socket: &mut ReadHalf<'_>) -> Result<Option<Frame>, ReadError> {
        loop {
            // A read without budget is pending although there is something to read: who asks again at once would do so for ever.
            consume_budget().await;
            if let Some(whole) = self.cut_large() {
                return Ok(Some(Frame { bytes: whole, memory: self.held.take() }));
            }
            if let Some((large, length)) = &mut self.large {
                let missing = *length - large.len();
                socket.readable().await?;
                match socket.read(large.room(missing)).now_or_never() {
                    Some(Ok(0)) => return Ok(None),
                    Some(Ok(read)) => large.fill(read),
                    None => {}
                    Some(Err(error)) => return Err(error.into()),
                }
                continue;
            }
            let missing = match self.cut()? {
                Cut::Whole(bytes) => return Ok(Some(Frame { bytes, memory: self.held.take() })),
                Cut::Missing(missing) => missing,
                Cut::Large(length) => {
                    self.begin_large(length);
                    continue;
                }
                Cut::Unaccounted(length) => {
                    if let Some(memory) = self.memory.clone() {
                        // The semaphore is never closed, and has room for every frame.
                        self.held = memory.acquire_many_owned(length).await.ok();
                    }
                    continue;
                }
            };
            socket.readable().await?;
            self.make_room(missing);
            // A read that gets less than it has room for tells tokio that there is no more, which spares the next one.
            match socket.read_buf(&mut self.buffer).now_or_never() {
                Some(Ok(0)) => return Ok(None),
                Some(Ok(_)) => {}
                None => self.release_if_empty(),
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }

    /// Makes room for `missing` bytes, and for what may follow when that is little.
    fn make_room(&mut self, missing: usize) {
        let reads_ahead = self.memory.is_none() && (SMALL..LARGE_CHUNK).contains(&self.last);
        let chunk = if reads_ahead { LARGE_CHUNK } else { CHUNK };
        let room = self.buffer.capacity() - self.buffer.len();
        let wanted = if self.buffer.is_empty() { CHUNK } else { missing };
        if room < wanted {
            self.buffer.reserve(if missing <= CHUNK { chunk } else { missing });
        }
    }

    /// A whole frame if the buffer has one, else what it takes to get there.
    fn cut(&mut self) -> Result<Cut, ReadError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else {
            self.release_if_empty();
            return Ok(Cut::Missing(PREFIX));
        };
        let length = i32::from_be_bytes(*prefix);
        let body = usize::try_from(length).ok().filter(|&body| body <= self.max_frame);
        let Some(body) = body else {
            return Err(ReadError::Length { length, max: self.max_frame });
        };
        if self.memory.is_some() && self.held.is_none() {
            return Ok(Cut::Unaccounted(length.unsigned_abs()));
        }
        let have = self.buffer.len() - PREFIX;
        if have < body {
            if (LARGE_CHUNK..=REUSED_MAX).contains(&body) {
                return Ok(Cut::Large(body));
            }
            return Ok(Cut::Missing(body - have));
        }
        self.last = body;
        self.buffer.advance(PREFIX);
        Ok(Cut::Whole(self.buffer.split_to(body).freeze()))
    }

    /// Moves what there is of a frame into a buffer of its own.
    fn begin_large(&mut self, length: usize) {
        let mut large = Buffer::for_len(length);
        let have = &self.buffer[PREFIX..];
        large.room(have.len()).copy_from_slice(have);
        large.fill(have.len());
        self.buffer = BytesMut::new();
        self.large = Some((large, length));
    }

    fn cut_large(&mut self) -> Option<Bytes> {
        let (large, length) = self.large.take_if(|(large, length)| large.len() == *length)?;
        self.last = length;
        Some(large.freeze(0..length))
    }

    fn release_if_empty(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::coop::has_budget_remaining;
    use tokio::task::yield_now;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(listener.accept(), TcpStream::connect(address));
        (ours.unwrap().0, theirs.unwrap())
    }

    /// Frames around every length at which reading changes its ways, as they come through a socket.
    #[tokio::test]
    async fn frames_of_all_sizes_come_whole_and_in_order() {
        let edges = [0, PREFIX, SMALL, CHUNK, LARGE_CHUNK, 3 * LARGE_CHUNK, REUSED_MAX];
        let around = |edge: usize| (edge.saturating_sub(PREFIX + 1)..=edge + PREFIX + 1).step_by(3);
        let mut lengths: Vec<usize> = edges.into_iter().flat_map(around).collect();
        // So that each size also comes after a much smaller or larger one.
        lengths.extend_from_within(..);
        lengths[..].chunks_mut(5).for_each(<[usize]>::reverse);
        let frame = |(index, length): (usize, &usize)| vec![index as u8; *length];
        let frames: Vec<Vec<u8>> = lengths.iter().enumerate().map(frame).collect();

        let (mut stream, mut peer) = connection().await;
        let sent = frames.clone();
        let sender = tokio::spawn(async move {
            for frame in sent {
                peer.write_all(&(frame.len() as u32).to_be_bytes()).await.unwrap();
                peer.write_all(&frame).await.unwrap();
            }
        });
        let mut reader = FrameReader::new(2 * REUSED_MAX, None);
        let (mut socket, _writer) = stream.split();
        for (index, expected) in frames.iter().enumerate() {
            let frame = reader.next(&mut socket).await.unwrap().unwrap();
            assert!(frame.bytes == expected[..], "frame {index} of {} bytes", expected.len());
        }
        sender.await.unwrap();
        assert!(reader.next(&mut socket).await.unwrap().is_none());
    }

    /// A task that has done much in one go yields before it reads on, whatever it has budget left for.
    #[tokio::test]
    async fn frames_come_to_a_task_of_any_budget() {
        let lengths = [PREFIX, CHUNK, LARGE_CHUNK + 1];
        let (mut stream, mut peer) = connection().await;
        let mut reader = FrameReader::new(REUSED_MAX, None);
        let (mut socket, _writer) = stream.split();
        for spare in 0..8 {
            for length in lengths {
                peer.write_all(&(length as u32).to_be_bytes()).await.unwrap();
                let send = async { peer.write_all(&vec![7; length]).await.unwrap() };
                let read = async {
                    socket.readable().await.unwrap();
                    yield_now().await;
                    spend_budget(spare).await;
                    reader.next(&mut socket).await.unwrap().unwrap()
                };
                let (frame, ()) = tokio::join!(read, send);
                assert_eq!(frame.bytes.len(), length);
            }
        }
    }

    /// Leaves so much of the budget that a task has before it must yield.
    async fn spend_budget(spare: usize) {
        let mut whole = 0;
        while has_budget_remaining() {
            consume_budget().await;
            whole += 1;
        }
        yield_now().await;
        for _ in spare..whole {
            consume_budget().await;
        }
    }

    #[tokio::test]
    async fn a_frame_waits_for_its_memory() {
        let memory = Arc::new(Semaphore::new(5));
        let (mut first, mut first_peer) = connection().await;
        let (mut second, mut second_peer) = connection().await;
        first_peer.write_all(b"\0\0\0\x03abc").await.unwrap();
        second_peer.write_all(b"\0\0\0\x04defg\0\0\0\0").await.unwrap();

        let mut reader = FrameReader::new(5, Some(Arc::clone(&memory)));
        let held = reader.next(&mut first.split().0).await.unwrap().unwrap();
        assert_eq!((&held.bytes[..], memory.available_permits()), (&b"abc"[..], 2));

        let (mut socket, _writer) = second.split();
        let mut reader = FrameReader::new(5, Some(Arc::clone(&memory)));
        socket.readable().await.unwrap();
        assert!(reader.next(&mut socket).now_or_never().is_none());
        drop(held);
        let frame = reader.next(&mut socket).await.unwrap().unwrap();
        assert_eq!((&frame.bytes[..], memory.available_permits()), (&b"defg"[..], 1));
        let empty = reader.next(&mut socket).await.unwrap().unwrap();
        assert_eq!(empty.bytes, Bytes::new());
        drop((frame, empty, reader));
        assert_eq!(memory.available_permits(), 5);
    }
}
