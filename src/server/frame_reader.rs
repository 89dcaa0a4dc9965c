//! Cuts the byte stream of a socket into frames: four bytes of length, then that many bytes.
//!
//! Holds no buffer while the peer is silent, so that an idle connection costs no memory; a frame of its own size is
//! allocated once its length is known, and untouched pages of it cost nothing until the peer really sends them.

use std::io;
use std::ops::ControlFlow;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::tcp::ReadHalf;

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
}

impl FrameReader {
    /// A reader that refuses frames longer than `max_frame` bytes.
    pub fn new(max_frame: usize) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), max_frame }
    }

    /// The next frame without its length prefix, or `None` when the peer has closed; bytes of a frame that was begun and
    /// not finished are dropped then. Cancel safe: what was read stays in the buffer.
    pub async fn next(&mut self, socket: &mut ReadHalf<'_>) -> Result<Option<Bytes>, ReadError> {
        loop {
            let missing = match self.cut()? {
                ControlFlow::Break(frame) => return Ok(Some(frame)),
                ControlFlow::Continue(missing) => missing,
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

    /// A whole frame if the buffer has one, else how many bytes to make room for.
    fn cut(&mut self) -> Result<ControlFlow<Bytes, usize>, ReadError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else {
            self.release_if_empty();
            return Ok(ControlFlow::Continue(CHUNK));
        };
        let length = i32::from_be_bytes(*prefix);
        let body = usize::try_from(length).ok().filter(|&body| body <= self.max_frame);
        let Some(body) = body else {
            return Err(ReadError::Length { length, max: self.max_frame });
        };
        let have = self.buffer.len() - PREFIX;
        if have < body {
            return Ok(ControlFlow::Continue(body - have));
        }
        self.buffer.advance(PREFIX);
        Ok(ControlFlow::Break(self.buffer.split_to(body).freeze()))
    }

    fn release_if_empty(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }
}
