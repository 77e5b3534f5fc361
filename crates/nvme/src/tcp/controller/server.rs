//! The controller's sockets on tokio: moves bytes between them and the state machines of their connections.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use super::connection::{Connection, port};
use crate::Response;
use crate::fabrics::{Target, Ticket, TlsMode};
use crate::tcp::error::ConnectionError;
use crate::tcp::poll::Polling;
use crate::tcp::socket::Socket;
use crate::tcp::tls::{Acceptor, HANDSHAKE_RECORD, SESSION_BYTES};

/// Reads from a connection before its other work gets a turn.
const MAX_READS: usize = 8;
/// How often idle connections are asked to return memory.
const TEND: Duration = Duration::from_secs(2);
/// Broken connections that are logged in each period of [`LOG_PERIOD`]. The others are counted.
const LOGGED: u32 = 10;
const LOG_PERIOD: Duration = Duration::from_secs(10);
/// Steps of authentications that run at a time.
const EXPONENTIATIONS: usize = 2;
/// How long a peer may go on sending after a termination request. Closing the socket with unread bytes would destroy the request.
const LINGER: Duration = Duration::from_secs(1);

/// A listening socket, and whether its connections are encrypted.
pub struct Listener {
    socket: TcpListener,
    tls: TlsMode,
}

impl Listener {
    /// Connections may or must use TLS.
    pub fn new(socket: TcpListener, tls: TlsMode) -> Listener {
        Listener { socket, tls }
    }
}

impl From<TcpListener> for Listener {
    /// Without TLS.
    fn from(socket: TcpListener) -> Listener {
        Listener::new(socket, TlsMode::Off)
    }
}

/// Accepts connections until `stop` resolves; then closes the target, and returns when every connection has ended. At most `connections` are
/// open at a time; further ones wait to be accepted.
///
/// # Errors
/// A listener that cannot be used any more, or TLS in a build without it. The errors of a connection only end that connection.
pub async fn serve(
    listener: impl Into<Listener>,
    target: Arc<Target>,
    connections: usize,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let Listener {
        socket: listener,
        tls,
    } = listener.into();
    let security = Arc::new(Security::new(tls, &target)?);
    let permits = Arc::new(Semaphore::new(connections));
    let newcomers = Arc::new(Newcomers::default());
    let exponentiations = Arc::new(Semaphore::new(EXPONENTIATIONS));
    let throttle = Arc::new(Throttle::default());
    target.listens(port(listener.local_addr()?), tls);
    let mut tend = tokio::time::interval(TEND);
    let mut tasks = tokio::task::JoinSet::new();
    tokio::pin!(stop);
    let result = loop {
        let accept = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut stop => break Ok(()),
            accepted = accept => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = tend.tick() => {
                target.tend();
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                let most = target.limits().newcomers_per_address;
                let Some(newcomer) = newcomers.enter(peer.ip(), most) else {
                    if throttle.allows(Instant::now()) {
                        tracing::info!(%peer, most, "too many connections from this address without a controller");
                    }
                    continue;
                };
                let target = Arc::clone(&target);
                let exponentiations = Arc::clone(&exponentiations);
                let throttle = Arc::clone(&throttle);
                let security = Arc::clone(&security);
                tasks.spawn(async move {
                    let _permit = permit;
                    let served = connection(
                        (stream, &security),
                        target,
                        newcomer,
                        &exponentiations,
                        &throttle,
                    );
                    if let Err(error) = served.await {
                        tracing::debug!(%peer, %error, "connection lost");
                    }
                });
            }
            Err(error) if is_passing(&error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => break Err(error),
        }
    };
    drop(listener);
    target.close();
    while tasks.join_next().await.is_some() {}
    result
}

/// Whether accepting may work again later: all errors except those of an unusable listener.
fn is_passing(error: &io::Error) -> bool {
    const EBADF: i32 = 9;
    const EINVAL: i32 = 22;
    const ENOTSOCK: i32 = 88;
    const EOPNOTSUPP: i32 = 95;
    let fatal = [EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP];
    !error
        .raw_os_error()
        .is_some_and(|code| fatal.contains(&code))
}

/// Number of connections that have not connected to a controller yet, by their peer's address.
#[derive(Default)]
struct Newcomers(Mutex<HashMap<IpAddr, usize>>);

/// One of them.
struct Newcomer {
    all: Arc<Newcomers>,
    peer: IpAddr,
}

impl Newcomers {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection, if there are fewer than `most` from its address.
    fn enter(self: &Arc<Newcomers>, peer: IpAddr, most: usize) -> Option<Newcomer> {
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        (*count < most).then(|| {
            *count += 1;
            Newcomer {
                all: Arc::clone(self),
                peer,
            }
        })
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut counts = self.all.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

/// Keeps peers from filling the log.
#[derive(Default)]
struct Throttle(Mutex<Period>);

/// What was logged in the current period.
#[derive(Default)]
struct Period {
    since: Option<Instant>,
    logged: u32,
    left_out: u64,
}

impl Throttle {
    /// Whether an event may be logged. Logs how many of the last period were not.
    fn allows(&self, now: Instant) -> bool {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |since: Instant| now.saturating_duration_since(since) >= LOG_PERIOD;
        if period.since.is_none_or(over) {
            if period.left_out > 0 {
                tracing::info!(
                    connections = period.left_out,
                    "more connections broke a rule"
                );
            }
            *period = Period {
                since: Some(now),
                ..Period::default()
            };
        }
        let allows = period.logged < LOGGED;
        if allows {
            period.logged += 1;
        } else {
            period.left_out += 1;
        }
        allows
    }
}

/// What the connections of a listener must be.
enum Security {
    Off,
    Allowed(Acceptor),
    Required(Acceptor),
}

impl Security {
    fn new(mode: TlsMode, target: &Arc<Target>) -> io::Result<Security> {
        Ok(match mode {
            TlsMode::Off => Security::Off,
            TlsMode::Allowed => Security::Allowed(Acceptor::new(target)?),
            TlsMode::Required => Security::Required(Acceptor::new(target)?),
        })
    }

    /// What encrypts a connection that begins with `first`, if anything does.
    fn of_connection(&self, first: u8) -> io::Result<Option<&Acceptor>> {
        match self {
            Security::Off => Ok(None),
            Security::Allowed(_) if first != HANDSHAKE_RECORD => Ok(None),
            Security::Allowed(acceptor) => Ok(Some(acceptor)),
            Security::Required(_) if first != HANDSHAKE_RECORD => Err(io::Error::other(
                "the connection is not encrypted, and must be",
            )),
            Security::Required(acceptor) => Ok(Some(acceptor)),
        }
    }

    /// Has a fresh connection encrypted, or leaves it plain.
    async fn open(
        &self,
        stream: TcpStream,
        connection: &mut Connection,
        notify: &Notify,
    ) -> io::Result<Option<Socket>> {
        if matches!(self, Security::Off) {
            return Ok(Some(Socket::Plain(stream)));
        }
        let mut first = [0];
        let Some(peeked) = in_time(connection, notify, stream.peek(&mut first)).await else {
            return Ok(None);
        };
        if peeked? == 0 {
            return Ok(None);
        }
        let Some(acceptor) = self.of_connection(first[0])? else {
            return Ok(Some(Socket::Plain(stream)));
        };
        connection.begin_session(SESSION_BYTES);
        let Some(accepted) = in_time(connection, notify, acceptor.accept(stream)).await else {
            return Ok(None);
        };
        let (session, channel) = accepted?;
        connection.secure(channel);
        Ok(Some(Socket::Tls(session)))
    }
}

/// What `work` gives; `None` if the connection ends before, for its deadline or because the target closes.
async fn in_time<T>(
    connection: &mut Connection,
    notify: &Notify,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    while !connection.is_finished() {
        let deadline = connection.deadline();
        tokio::select! {
            done = &mut work => return Some(done),
            () = notify.notified() => {}
            () = until(deadline) => {}
        }
        connection.tick(Instant::now());
    }
    None
}

/// Waits until `deadline`; for ever without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

type Work = BoxFuture<'static, (Ticket, Response)>;

/// Serves one connection to its end.
async fn connection(
    (stream, security): (TcpStream, &Security),
    target: Arc<Target>,
    newcomer: Newcomer,
    exponentiations: &Arc<Semaphore>,
    throttle: &Throttle,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Detects peers that vanish without a keep alive timer.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let notify = Arc::new(Notify::new());
    let wake = {
        let notify = Arc::clone(&notify);
        Arc::new(move || notify.notify_one())
    };
    let local = stream.local_addr()?;
    let peer = stream.peer_addr()?;
    tracing::debug!(%peer, "connected");
    let poll = target.limits().poll;
    let mut connection = Connection::new(Arc::clone(&target), local, wake, Instant::now());
    // The target may have begun to close before it registered this connection.
    connection.tick(Instant::now());
    let mut work = FuturesUnordered::new();
    let opened = security.open(stream, &mut connection, &notify).await;
    let Some(socket) = opened.transpose() else {
        log_end(&connection, peer, throttle);
        return Ok(());
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => {
            connection.broken();
            target.count_failure();
            if throttle.allows(Instant::now()) {
                tracing::info!(%peer, %error, "no secure channel");
            }
            return Ok(());
        }
    };
    let serving = Serving {
        socket: &socket,
        notify: &notify,
        exponentiations,
        poll,
    };
    let result = serving.run(&mut connection, &mut work, newcomer).await;
    if result.is_err() {
        connection.broken();
    }
    log_end(&connection, peer, throttle);
    let terminated = matches!(connection.error(), Some(ConnectionError::Protocol(_)));
    // Cancels the commands in flight.
    drop(connection);
    if terminated && result.is_ok() {
        // The peer may be gone already.
        let stream = socket.tcp();
        let _ = SockRef::from(stream).shutdown(std::net::Shutdown::Write);
        let _ = tokio::time::timeout(LINGER, discard(stream)).await;
    }
    drop(socket);
    // Commands in flight count against their host until they have stopped.
    while work.next().await.is_some() {}
    result
}

/// Logs how a connection has ended.
fn log_end(connection: &Connection, peer: SocketAddr, throttle: &Throttle) {
    let (host, queue) = connection.peer().unzip();
    match connection.error() {
        Some(error) if throttle.allows(Instant::now()) => {
            tracing::info!(%peer, host, queue, %error, "connection ended");
        }
        Some(error) => tracing::debug!(%peer, host, queue, %error, "connection ended"),
        None => tracing::debug!(%peer, host, queue, "connection ended"),
    }
}

/// Reads to the end of the stream.
async fn discard(stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// A connection's socket and what else its task uses.
struct Serving<'a> {
    socket: &'a Socket,
    notify: &'a Notify,
    exponentiations: &'a Arc<Semaphore>,
    poll: Duration,
}

impl Serving<'_> {
    /// Serves until the connection ends. Work that has not ended stays in `work`.
    async fn run(
        &self,
        connection: &mut Connection,
        work: &mut FuturesUnordered<Work>,
        newcomer: Newcomer,
    ) -> io::Result<()> {
        let mut newcomer = Some(newcomer);
        let mut polling = Polling::new(self.poll);
        loop {
            self.begin(connection, work);
            self.write(connection)?;
            if connection.has_action() {
                continue;
            }
            if connection.is_finished() {
                return Ok(());
            }
            if newcomer.is_some() && connection.peer().is_some() {
                newcomer = None;
            }
            if work.is_empty() && connection.wants_input() && !connection.has_output() {
                let came = polling.look(self.socket.is_polled_by_turns(), || {
                    let count = self.socket.poll_read(connection.space());
                    received(count, connection).map(|_| ())
                });
                if came.await? {
                    continue;
                }
            }
            self.wait(connection, work).await?;
        }
    }

    /// Waits for an event, and handles it.
    async fn wait(
        &self,
        connection: &mut Connection,
        work: &mut FuturesUnordered<Work>,
    ) -> io::Result<()> {
        let interest = match (connection.wants_input(), connection.has_output()) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        let ready = async {
            match interest {
                Some(interest) => self.socket.ready(interest).await,
                None => std::future::pending().await,
            }
        };
        let deadline = connection.deadline();
        tokio::select! {
            biased;
            () = self.notify.notified() => connection.tick(Instant::now()),
            Some((ticket, response)) = work.next() => {
                let now = Instant::now();
                connection.complete(ticket, response, now);
                // Further completions share one write.
                while let Some((ticket, response)) = ended(work) {
                    connection.complete(ticket, response, now);
                }
            }
            ready = ready => {
                if ready?.is_readable() {
                    self.read(connection, work)?;
                }
            }
            () = until(deadline) => connection.tick(Instant::now()),
        }
        Ok(())
    }

    /// Starts the connection's actions. Those that end at once complete without a task.
    fn begin(&self, connection: &mut Connection, work: &mut FuturesUnordered<Work>) {
        let mut context = Context::from_waker(Waker::noop());
        while let Some(action) = connection.action() {
            let mut future = action.run(self.exponentiations);
            match future.as_mut().poll(&mut context) {
                Poll::Ready((ticket, response)) => {
                    connection.complete(ticket, response, Instant::now())
                }
                // `work` polls it again, with this task's waker.
                Poll::Pending => work.push(future),
            }
        }
    }

    /// Reads what has arrived.
    fn read(
        &self,
        connection: &mut Connection,
        work: &mut FuturesUnordered<Work>,
    ) -> io::Result<()> {
        for _ in 0..MAX_READS {
            if !connection.wants_input() {
                break;
            }
            let space = connection.space();
            let room = space.len();
            let count = self.socket.try_read(space);
            match received(count, connection) {
                Ok(count) => {
                    self.begin(connection, work);
                    if count < room {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends as much as the socket takes.
    fn write(&self, connection: &mut Connection) -> io::Result<()> {
        while connection.has_output() {
            match self.socket.try_write_vectored(&connection.output()) {
                Ok(count) => connection.sent(count, Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes what a reading has given: the number of its bytes.
fn received(count: io::Result<usize>, connection: &mut Connection) -> io::Result<usize> {
    match count {
        Ok(count) => {
            connection.received(count, Instant::now());
            Ok(count)
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            connection.cut();
            Ok(0)
        }
        Err(error) => Err(error),
    }
}

/// The result of work that has ended, if any.
fn ended(work: &mut FuturesUnordered<Work>) -> Option<(Ticket, Response)> {
    match work.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => ended,
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_broken_connections_leaves_a_few_lines() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let logged = |since| (0..1000).filter(|_| throttle.allows(since)).count();
        assert_eq!(logged(start), LOGGED as usize);
        assert_eq!(logged(start + LOG_PERIOD / 2), 0);
        assert_eq!(logged(start + LOG_PERIOD), LOGGED as usize);
        assert_eq!(throttle.0.lock().unwrap().left_out, 990);
    }
}
