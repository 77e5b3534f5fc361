//! What stands for TLS in a build without it: nothing opens.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::fabrics::auth::TlsPsk;
use crate::fabrics::{SecureChannel, Target};

fn unsupported() -> io::Error {
    let reason = "TLS is not part of this build; it is the cargo feature `tls`";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// No session exists.
pub(in crate::tcp) struct Session(Infallible);

impl Session {
    pub(in crate::tcp) fn tcp(&self) -> &TcpStream {
        match self.0 {}
    }

    pub(in crate::tcp) fn may_hold_input(&self) -> bool {
        match self.0 {}
    }

    pub(in crate::tcp) fn is_paused(&self) -> bool {
        match self.0 {}
    }

    pub(in crate::tcp) fn try_read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(in crate::tcp) fn try_write_vectored(&self, _pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0 {}
    }
}

/// No acceptor exists.
pub(in crate::tcp) struct Acceptor(Infallible);

impl Acceptor {
    pub(in crate::tcp) fn new(_target: &Arc<Target>) -> io::Result<Acceptor> {
        Err(unsupported())
    }

    pub(in crate::tcp) async fn accept(
        &self,
        _stream: TcpStream,
    ) -> io::Result<(Session, Arc<SecureChannel>)> {
        match self.0 {}
    }
}

/// Always an error.
pub(in crate::tcp) async fn connect(_stream: TcpStream, _psk: &TlsPsk) -> io::Result<Session> {
    Err(unsupported())
}
