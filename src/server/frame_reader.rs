//! Cuts the byte stream of a socket into frames: four bytes of length, then that many bytes.
//!
//! Holds no buffer while the peer is silent, so that an idle connection costs no memory; a frame of its own size is
//! allocated once its length is known, and untouched pages of it cost nothing until the peer really sends them. Where the
//! memory of requests is bounded (`queued.max.request.bytes`), a frame waits until there is room for the whole of it.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::tcp::ReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is read at once while no frame longer than this is under way.
const CHUNK: usize = 16 * 1024;

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
    max_frame: usize,
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
    /// A frame of this length needs its memory first.
    Unaccounted(u32),
}

impl FrameReader {
    /// A reader that refuses frames longer than `max_frame` bytes and takes the others out of `memory`.
    pub fn new(max_frame: usize, memory: Option<Arc<Semaphore>>) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), max_frame, memory, held: None }
    }

    /// The next frame, or `None` when the peer has closed; bytes of a frame that was begun and
    /// not finished are dropped then. Cancel safe: what was read stays in the buffer.
    pub async fn next(&mut self, socket: &mut ReadHalf<'_>) -> Result<Option<Frame>, ReadError> {
        loop {
            let missing = match self.cut()? {
                Cut::Whole(bytes) => return Ok(Some(Frame { bytes, memory: self.held.take() })),
                Cut::Missing(missing) => missing,
                Cut::Unaccounted(length) => {
                    if let Some(memory) = self.memory.clone() {
                        // The semaphore is never closed, and has room for every frame.
                        self.held = memory.acquire_many_owned(length).await.ok();
                    }
                    continue;
                }
            };
            socket.readable().await?;
            self.buffer.reserve(missing);
            match socket.try_read_buf(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.release_if_empty(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A whole frame if the buffer has one, else what it takes to get there.
    fn cut(&mut self) -> Result<Cut, ReadError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else {
            self.release_if_empty();
            return Ok(Cut::Missing(CHUNK));
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
            return Ok(Cut::Missing(body - have));
        }
        self.buffer.advance(PREFIX);
        Ok(Cut::Whole(self.buffer.split_to(body).freeze()))
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

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(listener.accept(), TcpStream::connect(address));
        (ours.unwrap().0, theirs.unwrap())
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
