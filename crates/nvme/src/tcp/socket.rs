//! A connected socket, encrypted or not.

use std::io::{self, IoSlice, Read};

use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

use super::tls::Session;

/// A connected socket.
pub(super) enum Socket {
    /// Bytes go out as they are.
    Plain(TcpStream),
    /// TLS encrypts them.
    Tls(Session),
}

impl Socket {
    /// What is below.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(session) => session.tcp(),
        }
    }

    /// Waits until reading or writing may succeed.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        if let Socket::Tls(session) = self
            && interest.is_readable()
        {
            if session.is_paused() {
                tokio::task::yield_now().await;
                return Ok(Ready::READABLE);
            }
            if session.may_hold_input() {
                return Ok(Ready::READABLE);
            }
        }
        self.tcp().ready(interest).await
    }

    /// Reads what is there; 0 for the end of the stream. [`io::ErrorKind::UnexpectedEof`] stands for the end of an encrypted stream that the peer
    /// has not announced (close_notify): whoever is between the two may have cut it.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.try_read(buffer),
            Socket::Tls(session) => session.try_read(buffer),
        }
    }

    /// Whether the runtime must have learned of input before it can be polled for.
    pub(super) fn is_polled_by_turns(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// [`Socket::try_read`] that asks the kernel where it can, whether or not the runtime has learned of input.
    pub(super) fn poll_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => (&*SockRef::from(stream)).read(buffer),
            Socket::Tls(session) => session.try_read(buffer),
        }
    }

    /// Writes what the socket takes. After [`io::ErrorKind::WouldBlock`] the next call must begin with the same bytes.
    pub(super) fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.try_write_vectored(pieces),
            Socket::Tls(session) => session.try_write_vectored(pieces),
        }
    }
}
