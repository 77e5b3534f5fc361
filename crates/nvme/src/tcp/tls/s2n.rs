//! TLS by s2n-tls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config::{self, Config};
use s2n_tls::connection::{Builder, Connection};
use s2n_tls::enums::{Mode, PskHmac};
use s2n_tls::error::Error;
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;
use s2n_tls_tokio::{TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::fabrics::auth::{AuthHash, TlsPsk};
use crate::fabrics::{DISCOVERY_NQN, Hosts, SecureChannel, Target};

/// TLS 1.3 alone, with AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305, and X25519, P-256 and P-384. Numbered policies of s2n-tls do not change.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3-2023";
/// Small pieces of output are gathered into a record of up to this many bytes.
const RECORD: usize = 16 << 10;

/// Reads of the socket in a row, of up to 16 KiB each, after which other tasks get a turn. s2n-tls itself reads on for as long as what arrives
/// (empty records, KeyUpdates, in a handshake records that change nothing) gives its caller no data.
const MAX_READS: u32 = 8;

/// A socket that a session and its owner share.
struct Shared {
    socket: Arc<TcpStream>,
    /// Successful reads in a row.
    reads: u32,
    /// The last reading was refused because of [`MAX_READS`], not because the socket had nothing.
    paused: bool,
}

impl Shared {
    fn new(socket: &Arc<TcpStream>) -> Shared {
        Shared {
            socket: Arc::clone(socket),
            reads: 0,
            paused: false,
        }
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.paused = self.reads == MAX_READS;
        if self.paused {
            self.reads = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            match self.socket.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    self.reads += 1;
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.reads = 0;
                    ready!(self.socket.poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.socket.try_write(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The owner closes the socket.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A session whose handshake is complete.
pub(in crate::tcp) struct Session {
    socket: Arc<TcpStream>,
    stream: Mutex<Stream>,
    /// The last reading found something, so there may be more that has been taken from the socket already.
    may_hold_input: AtomicBool,
    /// The last reading stopped so that others get a turn.
    paused: AtomicBool,
}

struct Stream {
    tls: TlsStream<Shared>,
    gathered: Vec<u8>,
}

impl Session {
    fn new(socket: Arc<TcpStream>, tls: TlsStream<Shared>) -> Session {
        Session {
            socket,
            stream: Mutex::new(Stream {
                tls,
                gathered: Vec::new(),
            }),
            may_hold_input: AtomicBool::new(true),
            paused: AtomicBool::new(false),
        }
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::tcp) fn tcp(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether reading may succeed though the socket has nothing.
    pub(in crate::tcp) fn may_hold_input(&self) -> bool {
        self.may_hold_input.load(Ordering::Relaxed)
    }

    /// Whether other tasks must have a turn before the next reading.
    pub(in crate::tcp) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Reads what is there; 0 for the end that the peer has announced. [`io::ErrorKind::UnexpectedEof`] stands for one that it has not.
    pub(in crate::tcp) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut context = Context::from_waker(Waker::noop());
        let mut buffer = ReadBuf::new(buffer);
        let (polled, paused) = {
            let tls = &mut self.stream().tls;
            tls.get_mut().reads = 0;
            let polled = Pin::new(&mut *tls).poll_read(&mut context, &mut buffer);
            (polled, tls.get_ref().paused)
        };
        self.may_hold_input
            .store(polled.is_ready(), Ordering::Relaxed);
        self.paused
            .store(polled.is_pending() && paused, Ordering::Relaxed);
        match polled {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(result) => result.map(|()| buffer.filled().len()),
        }
    }

    pub(in crate::tcp) fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut stream = self.stream();
        let Stream { tls, gathered } = &mut *stream;
        let first = pieces.first().map_or(&[][..], |piece| piece);
        let bytes = if first.len() >= RECORD || pieces.len() == 1 {
            first
        } else {
            gathered.clear();
            for piece in pieces {
                let room = RECORD - gathered.len();
                gathered.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            gathered
        };
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(tls).poll_write(&mut context, bytes) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(result) => result,
        }
    }
}

impl Drop for Session {
    /// Says that nothing follows, if the socket takes it.
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut self.stream().tls).poll_shutdown(&mut context);
    }
}

/// What connections of both sides have in common.
fn settings() -> Result<config::Builder, Error> {
    let mut config = Config::builder();
    // No certificate is of use, neither one's own nor one that the system trusts: without a common key no handshake succeeds.
    config.with_system_certs(false)?;
    config.set_security_policy(&Policy::from_version(POLICY)?)?;
    // Delays after errors hide the timing of padding checks, which AEAD ciphers do not have.
    config.set_max_blinding_delay(0)?;
    Ok(config)
}

/// Makes connections.
#[derive(Clone)]
struct Connections {
    config: Config,
    /// What a host offers.
    offered: Option<Arc<Psk>>,
}

impl Builder for Connections {
    type Output = Connection;

    fn build_connection(&self, mode: Mode) -> Result<Connection, Error> {
        let mut connection = self.config.build_connection(mode)?;
        connection.prefer_throughput()?;
        connection.set_receive_buffering(true)?;
        if let Some(psk) = &self.offered {
            connection.append_psk(psk)?;
        }
        Ok(connection)
    }
}

/// The key as s2n-tls takes it.
fn read(psk: &TlsPsk) -> Result<Psk, Error> {
    let mut builder = Psk::builder()?;
    builder.set_identity(psk.identity.as_bytes())?;
    builder.set_secret(&psk.secret)?;
    builder.set_hmac(match psk.hash {
        AuthHash::Sha384 => PskHmac::SHA384,
        _ => PskHmac::SHA256,
    })?;
    builder.build()
}

/// The keys of the target's hosts, by their identities. A connection gets the first one that its host offers, so that a handshake costs the same
/// however many hosts there are.
struct Known {
    target: Arc<Target>,
    keys: HashMap<Vec<u8>, (Psk, Arc<SecureChannel>)>,
}

impl Known {
    fn append_to(&self, connection: &mut Connection) -> Result<(), Error> {
        let hello = connection.client_hello()?.raw_message()?;
        for identity in offered(&hello) {
            if let Some((psk, _)) = self.keys.get(identity) {
                return connection.append_psk(psk).map(drop);
            }
            if let Some((psk, _)) = self.target.generated_key(identity, Instant::now()) {
                return connection.append_psk(&read(&psk)?).map(drop);
            }
        }
        Ok(())
    }

    /// The channel of a key that a handshake has used. A generated one may have been forgotten meanwhile.
    fn channel(&self, identity: &[u8]) -> Option<Arc<SecureChannel>> {
        if let Some((_, channel)) = self.keys.get(identity) {
            return Some(Arc::clone(channel));
        }
        let (_, channel) = self.target.generated_key(identity, Instant::now())?;
        Some(channel)
    }
}

/// Gives a connection its key when the host has said which it has.
struct OnHello(Arc<Known>);

impl ClientHelloCallback for OnHello {
    fn on_client_hello(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<Pin<Box<dyn ConnectionFuture>>>, Error> {
        self.0.append_to(connection)?;
        Ok(None)
    }
}

/// The identities in the extension pre_shared_key of a ClientHello (RFC 8446, 4.1.2 and 4.2.11); none after what is malformed.
fn offered(hello: &[u8]) -> Vec<&[u8]> {
    let mut identities = Vec::new();
    let mut rest = offered_bytes(hello).unwrap_or_default();
    // Each is followed by the age of a ticket, 4 bytes.
    while let Some(identity) = vector::<2>(&mut rest)
        && rest.split_off(..4).is_some()
    {
        identities.push(identity);
    }
    identities
}

/// The list of identities.
fn offered_bytes(mut hello: &[u8]) -> Option<&[u8]> {
    const PRE_SHARED_KEY: [u8; 2] = [0, 41];
    // Version and random, session, cipher suites, compression methods.
    hello.split_off(..34)?;
    vector::<1>(&mut hello)?;
    vector::<2>(&mut hello)?;
    vector::<1>(&mut hello)?;
    let mut extensions = vector::<2>(&mut hello)?;
    loop {
        let kind = extensions.split_off(..2)?;
        let mut content = vector::<2>(&mut extensions)?;
        if kind == PRE_SHARED_KEY {
            return vector::<2>(&mut content);
        }
    }
}

/// Takes a vector off the front of `bytes`, whose length stands before it in `N` bytes.
fn vector<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = bytes.split_off(..N)?;
    let len = len
        .iter()
        .fold(0, |len, byte| len << 8 | usize::from(*byte));
    bytes.split_off(..len)
}

/// The identity of the key that a handshake has used.
fn identity(connection: &Connection) -> io::Result<Vec<u8>> {
    let mut identity = vec![0; connection.negotiated_psk_identity_length()?];
    if identity.is_empty() {
        return Err(io::Error::other("the handshake used no pre-shared key"));
    }
    connection.negotiated_psk_identity(&mut identity)?;
    Ok(identity)
}

/// The target's side.
pub(in crate::tcp) struct Acceptor {
    known: Arc<Known>,
    acceptor: TlsAcceptor<Connections>,
}

impl Acceptor {
    /// Knows the keys of all hosts, for their subsystems and for discovery.
    pub(in crate::tcp) fn new(target: &Arc<Target>) -> io::Result<Acceptor> {
        let mut keys = HashMap::new();
        for subsystem in target.subsystems() {
            let Hosts::Listed(hosts) = &subsystem.hosts else {
                continue;
            };
            for host in hosts {
                let Some(key) = &host.tls_key else {
                    continue;
                };
                for sub_nqn in [subsystem.nqn.as_str(), DISCOVERY_NQN] {
                    for psk in key.accepted(&host.nqn, sub_nqn) {
                        let channel = SecureChannel {
                            host_nqn: host.nqn.clone(),
                            sub_nqn: sub_nqn.to_owned(),
                            generated: false,
                        };
                        // A host may have the same key in several subsystems, or several for discovery: the first of an identity holds.
                        let identity = psk.identity.clone().into_bytes();
                        if let Entry::Vacant(entry) = keys.entry(identity) {
                            entry.insert((read(&psk)?, Arc::new(channel)));
                        }
                    }
                }
            }
        }
        let target = Arc::clone(target);
        let known = Arc::new(Known { target, keys });
        let mut config = settings()?;
        config.set_client_hello_callback(OnHello(Arc::clone(&known)))?;
        let acceptor = TlsAcceptor::new(Connections {
            config: config.build()?,
            offered: None,
        });
        Ok(Acceptor { known, acceptor })
    }

    /// The handshake with a host.
    pub(in crate::tcp) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(Session, Arc<SecureChannel>)> {
        let socket = Arc::new(stream);
        let accepted = self.acceptor.accept(Shared::new(&socket)).await;
        let tls = accepted.map_err(|error| match error.name() {
            // Without a common key s2n-tls looks for a certificate.
            "S2N_ERR_NO_VALID_SIGNATURE_SCHEME" => {
                io::Error::other("the host offers no key that the target knows")
            }
            _ => error.into(),
        })?;
        let channel = self.known.channel(&identity(tls.as_ref())?);
        let channel = channel.ok_or_else(|| io::Error::other("the key has expired"))?;
        Ok((Session::new(socket, tls), channel))
    }
}

/// The handshake with a controller, which must know the key too.
pub(in crate::tcp) async fn connect(stream: TcpStream, psk: &TlsPsk) -> io::Result<Session> {
    let socket = Arc::new(stream);
    let connector = TlsConnector::new(Connections {
        config: settings()?.build()?,
        offered: Some(Arc::new(read(psk)?)),
    });
    // No server name: the key's identity names the subsystem.
    let tls = connector.connect("", Shared::new(&socket)).await?;
    if identity(tls.as_ref())? != psk.identity.as_bytes() {
        return Err(io::Error::other("the handshake used another key"));
    }
    Ok(Session::new(socket, tls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabrics::auth::TlsKey;
    use crate::fabrics::{AllowedHost, Limits, Subsystem};
    use crate::tcp::socket::Socket;
    use crate::testing::RamController;
    use crate::{Controller, Namespace};
    use s2n_tls::enums::PeerKeyUpdate;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
    use tokio::net::TcpListener;

    const HOST: &str = "nqn.2024-01.io.example:host";
    const SUB: &str = "nqn.2024-01.io.example:drive";

    fn target(key: &TlsKey, limits: Limits) -> Arc<Target> {
        let ram = Arc::new(RamController::new(Namespace::new(1, 4096, 1, 0).unwrap()));
        let subsystem = Subsystem {
            nqn: SUB.into(),
            storage: Arc::new(move |_: &str| Ok(Arc::clone(&ram) as Arc<dyn Controller>)),
            hosts: Hosts::Listed(vec![AllowedHost {
                tls_key: Some(key.clone()),
                ..AllowedHost::new(HOST)
            }]),
        };
        Target::new(vec![subsystem], limits, None).unwrap()
    }

    fn acceptor(key: &TlsKey) -> Acceptor {
        Acceptor::new(&target(key, Limits::default())).unwrap()
    }

    async fn streams() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    async fn write(session: &Session, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // As two pieces, of which the first is small.
            let (head, tail) = bytes.split_at(bytes.len().min(9));
            match session.try_write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    session.tcp().ready(Interest::WRITABLE).await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn read(session: &Session, len: usize) -> Vec<u8> {
        let mut got = Vec::new();
        let mut buffer = vec![0; 5000];
        while got.len() < len {
            match session.try_read(&mut buffer) {
                Ok(0) => panic!("the end after {} bytes", got.len()),
                Ok(count) => got.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(!session.may_hold_input());
                    session.tcp().ready(Interest::READABLE).await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        got
    }

    /// `len` bytes each way at once, more than the sockets hold.
    async fn exchange(one: &Session, other: &Session, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
        let (_, _, a, b) = tokio::join!(
            write(one, &bytes),
            write(other, &bytes),
            read(one, len),
            read(other, len)
        );
        assert!(a == bytes && b == bytes);
    }

    fn update_keys(session: &Session) {
        let mut stream = session.stream();
        let connection: &mut Connection = stream.tls.as_mut();
        connection
            .request_key_update(PeerKeyUpdate::KeyUpdateNotRequested)
            .unwrap();
    }

    #[tokio::test]
    async fn every_identity_of_a_key_opens_a_session_that_changes_its_keys() {
        for hash in [AuthHash::Sha256, AuthHash::Sha384] {
            let key = TlsKey::generate(hash).unwrap();
            let acceptor = acceptor(&key);
            for psk in key.accepted(HOST, SUB) {
                let (near, far) = streams().await;
                let (client, accepted) = tokio::join!(connect(near, &psk), acceptor.accept(far));
                let (client, (server, channel)) = (client.unwrap(), accepted.unwrap());
                assert_eq!(
                    (channel.host_nqn.as_str(), channel.sub_nqn.as_str()),
                    (HOST, SUB)
                );
                exchange(&client, &server, 1 << 20).await;
                for session in [&client, &server, &client] {
                    update_keys(session);
                    exchange(&client, &server, 100_000).await;
                }
                // The end is told, and what came before it arrives.
                write(&client, b"last").await;
                drop(client);
                assert_eq!(read(&server, 4).await, b"last");
                server.tcp().ready(Interest::READABLE).await.unwrap();
                assert_eq!(server.try_read(&mut [0; 8]).unwrap(), 0);
            }
        }
    }

    #[tokio::test]
    async fn an_end_without_close_notify_is_not_taken_for_one() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        let acceptor = acceptor(&key);
        let psk = key.psk(HOST, SUB);
        let (near, far) = streams().await;
        let (client, accepted) = tokio::join!(connect(near, &psk), acceptor.accept(far));
        let (client, (server, _)) = (client.unwrap(), accepted.unwrap());
        // As if someone between the two sent FIN to both of them.
        for (session, other) in [(&client, &server), (&server, &client)] {
            write(session, b"last").await;
            let socket = socket2::SockRef::from(session.tcp());
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(read(other, 4).await, b"last");
            other.tcp().ready(Interest::READABLE).await.unwrap();
            let error = other.try_read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// Fills the buffers between two sockets with copies of `piece`.
    fn flood(stream: &TcpStream, piece: &[u8]) {
        let pieces = piece.repeat(4096);
        let mut sent = 0;
        while let Ok(count) = stream.try_write(&pieces[sent % piece.len()..]) {
            sent += count;
        }
        assert!(sent > 3 * MAX_READS as usize * RECORD, "{sent}");
    }

    #[tokio::test]
    async fn records_without_use_do_not_keep_others_from_their_turn() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        let acceptor = acceptor(&key);
        // A host's first message, which whoever has seen it can repeat: its binder covers nothing else.
        let psk = key.psk(HOST, SUB);
        let (near, mut far) = streams().await;
        let host = tokio::spawn(async move { connect(near, &psk).await.map(drop) });
        let mut hello = vec![0; 4096];
        let count = far.read(&mut hello).await.unwrap();
        host.abort();
        // Then records that TLS 1.3 ignores in a handshake: change_cipher_spec.
        let (near, far) = streams().await;
        near.writable().await.unwrap();
        assert_eq!(near.try_write(&hello[..count]).unwrap(), count);
        flood(&near, &[20, 3, 3, 0, 1, 1]);
        let far = far.into_std().unwrap();
        let watched = far.try_clone().unwrap();
        let unread = || watched.peek(&mut [0]).is_ok();
        let mut accepted = Box::pin(acceptor.accept(TcpStream::from_std(far).unwrap()));
        let mut turns = 0;
        while unread() {
            let polled = futures::poll!(&mut accepted);
            assert!(polled.is_pending(), "{:?}", polled.map_ok(|_| ()));
            turns += 1;
            tokio::task::yield_now().await;
        }
        assert!(turns > 3, "{turns}");
    }

    #[tokio::test]
    async fn a_paused_session_waits_for_its_turn_alone() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        let acceptor = acceptor(&key);
        let psk = key.psk(HOST, SUB);
        let (near, far) = streams().await;
        let (client, accepted) = tokio::join!(connect(near, &psk), acceptor.accept(far));
        let (_client, (server, _)) = (client.unwrap(), accepted.unwrap());
        // As after so many reads in a row; nothing has arrived.
        server.stream().tls.get_mut().reads = MAX_READS;
        server.paused.store(true, Ordering::Relaxed);
        let socket = Socket::Tls(server);
        let mut ready = Box::pin(socket.ready(Interest::READABLE));
        assert!(futures::poll!(&mut ready).is_pending());
        assert!(ready.await.unwrap().is_readable());
        let blocked = socket.try_read(&mut [0; 8]).unwrap_err();
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        let Socket::Tls(server) = socket else {
            unreachable!()
        };
        assert!(!server.is_paused() && !server.may_hold_input());
    }

    #[tokio::test]
    async fn a_handshake_does_not_keep_a_generated_key() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        let target = target(
            &key,
            Limits {
                controllers_per_host: 1,
                ..Limits::default()
            },
        );
        let acceptor = Acceptor::new(&target).unwrap();
        let generate = || {
            let psk = TlsKey::generate(AuthHash::Sha256).unwrap().psk(HOST, SUB);
            target.keep_key(psk.clone(), (HOST, SUB), Instant::now());
            psk
        };
        for forgotten in [false, true] {
            let psk = generate();
            let (near, held) = streams().await;
            let (relay, far) = streams().await;
            let host = tokio::spawn(async move { connect(near, &psk).await });
            let (mut from_host, mut to_host) = held.into_split();
            let (mut from_target, mut to_target) = relay.into_split();
            let back = tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_target, &mut to_host).await;
            });
            let mut accepted = Box::pin(acceptor.accept(far));
            // What the host says first, and then not what ends the handshake.
            let mut bytes = vec![0; 8192];
            let count = from_host.read(&mut bytes).await.unwrap();
            to_target.write_all(&bytes[..count]).await.unwrap();
            let mut last = vec![0; 8192];
            let count = tokio::select! {
                count = from_host.read(&mut last) => count.unwrap(),
                accepted = &mut accepted => panic!("{:?}", accepted.map(drop)),
            };
            if forgotten {
                // As many as a host may have: the one that nobody uses makes room.
                generate();
            }
            to_target.write_all(&last[..count]).await.unwrap();
            let forth = tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_host, &mut to_target).await;
            });
            let accepted = accepted.await;
            if forgotten {
                let error = accepted.map(drop).unwrap_err();
                assert_eq!(error.to_string(), "the key has expired");
            } else {
                let (_, channel) = accepted.unwrap();
                assert!(channel.generated && channel.host_nqn == HOST);
            }
            let _ = host.await.unwrap();
            back.abort();
            forth.abort();
        }
    }

    #[tokio::test]
    async fn a_connection_gets_the_key_that_its_host_offers_and_no_other() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        let known = acceptor(&key).known;
        assert_eq!(known.keys.len(), 6);
        let good = key.psk(HOST, SUB);
        let hello = |identities: &[&[u8]]| {
            let mut list = Vec::new();
            for identity in identities {
                list.extend_from_slice(&(identity.len() as u16).to_be_bytes());
                list.extend_from_slice(identity);
                list.extend_from_slice(&[0; 4]);
            }
            let mut content = (list.len() as u16).to_be_bytes().to_vec();
            content.extend_from_slice(&list);
            // Another extension stands before it, an empty one.
            let mut extensions = vec![0, 43, 0, 0, 0, 41];
            extensions.extend_from_slice(&(content.len() as u16).to_be_bytes());
            extensions.extend_from_slice(&content);
            let mut hello = vec![3; 34];
            hello.extend_from_slice(&[1, 7, 0, 2, 0x13, 0x01, 1, 0]);
            hello.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
            hello.extend_from_slice(&extensions);
            hello
        };
        let identity = good.identity.as_bytes();
        let bytes = hello(&[b"", b"another", identity]);
        assert_eq!(offered(&bytes), [b"", &b"another"[..], identity]);
        assert!(offered(&hello(&[])).is_empty());
        // What is cut short has fewer of them, and breaks nothing.
        for len in 0..bytes.len() {
            assert!(offered(&bytes[..len]).is_empty(), "{len}");
        }
        // A list that ends within an entry.
        let mut cut = hello(&[b"one", b"two"]);
        let at = cut.len() - 18 - 2;
        cut[at + 1] -= 1;
        assert_eq!(offered(&cut), [b"one"]);
    }

    #[tokio::test]
    async fn other_keys_names_and_damage_open_nothing() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        let acceptor = acceptor(&key);
        let good = key.psk(HOST, SUB);
        let mut wrong_secret = good.clone();
        wrong_secret.secret[0] ^= 1;
        let other = TlsKey::generate(AuthHash::Sha256).unwrap();
        let strangers = [
            wrong_secret,
            other.psk(HOST, SUB),
            key.psk("nqn.other", SUB),
            key.psk(HOST, "nqn.other"),
        ];
        for psk in strangers {
            let (near, far) = streams().await;
            let (client, accepted) = tokio::join!(connect(near, &psk), acceptor.accept(far));
            assert!(client.is_err() && accepted.is_err(), "{psk:?}");
        }
        // One flipped bit behind the handshake ends the session.
        let (near, relay_near) = streams().await;
        let (relay_far, far) = streams().await;
        let (damage, damaged) = tokio::sync::oneshot::channel();
        let relay = tokio::spawn(async move {
            let (mut from_client, mut to_client) = relay_near.into_split();
            let (mut from_server, mut to_server) = relay_far.into_split();
            let back = tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
            });
            let mut buffer = vec![0; 1 << 16];
            let mut damaged = damaged;
            loop {
                let count = from_client.read(&mut buffer).await.unwrap_or(0);
                if count == 0 {
                    break;
                }
                if damaged.try_recv().is_ok() {
                    buffer[count - 1] ^= 1;
                }
                let _ = to_server.write_all(&buffer[..count]).await;
            }
            back.abort();
        });
        let (client, accepted) = tokio::join!(connect(near, &good), acceptor.accept(far));
        let (client, (server, _)) = (client.unwrap(), accepted.unwrap());
        exchange(&client, &server, 1000).await;
        damage.send(()).unwrap();
        write(&client, b"flipped").await;
        let error = loop {
            match server.try_read(&mut [0; 64]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    server.tcp().ready(Interest::READABLE).await.unwrap();
                }
                other => break other,
            }
        };
        assert!(error.is_err(), "{error:?}");
        drop((client, server));
        relay.await.unwrap();
    }
}
