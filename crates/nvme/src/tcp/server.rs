//! The target's sockets: moves bytes between connections and their state machines, on tokio.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use super::poll::Polling;
use super::target::{Action, Connection, Job, Target, Ticket};
use crate::{Response, Status};

/// Bytes that a connection takes before it looks at its other work.
const MAX_READS: usize = 8;

/// Accepts connections until `stop` resolves; then closes the target, and returns when every connection has ended. At most `connections` are
/// open at a time; further ones wait to be accepted.
///
/// # Errors
/// Only a listener that is beyond use; what befalls a connection is its own.
pub async fn serve(
    listener: TcpListener,
    target: Arc<Target>,
    connections: usize,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(connections));
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
        };
        match accepted {
            Ok((stream, peer)) => {
                let target = Arc::clone(&target);
                tasks.spawn(async move {
                    let _permit = permit;
                    if let Err(error) = connection(stream, target).await {
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

/// Whether accepting may work again later: errors of one connection, and want of files or memory.
fn is_passing(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::OutOfMemory
    ) || matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

type Work = Pin<Box<dyn Future<Output = (Ticket, Response)> + Send>>;

fn start(action: Action) -> Work {
    let ticket = action.ticket;
    match action.job {
        Job::Io {
            host,
            request,
            abort,
        } => Box::pin(async move { (ticket, host.submit_abortable(request, abort).await) }),
        Job::Admin { host, request } => {
            Box::pin(async move { (ticket, host.admin(request).await) })
        }
        Job::Authenticate(authentication) => Box::pin(async move {
            let done = tokio::task::spawn_blocking(|| authentication.run()).await;
            let lost = |_| Response::failure(0, Status::INTERNAL_ERROR, false);
            (ticket, done.unwrap_or_else(lost))
        }),
    }
}

/// Serves one connection to its end.
async fn connection(stream: TcpStream, target: Arc<Target>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let notify = Arc::new(Notify::new());
    let wake = {
        let notify = Arc::clone(&notify);
        Arc::new(move || notify.notify_one())
    };
    let local = stream.local_addr()?;
    let peer = stream.peer_addr()?;
    tracing::debug!(%peer, "connected");
    let poll = target.limits().poll;
    let mut connection = Connection::new(target, local, wake, Instant::now());
    let result = run(&stream, &mut connection, &notify, poll).await;
    if result.is_err() {
        connection.broken();
    }
    let (host, queue) = connection.peer().unzip();
    match connection.error() {
        Some(error) => tracing::info!(%peer, host, queue, %error, "connection ended"),
        None => tracing::debug!(%peer, host, queue, "connection ended"),
    }
    result
}

async fn run(
    stream: &TcpStream,
    connection: &mut Connection,
    notify: &Notify,
    poll: Duration,
) -> io::Result<()> {
    let mut work: FuturesUnordered<Work> = FuturesUnordered::new();
    let mut polling = Polling::new(poll);
    loop {
        begin(connection, &mut work);
        write(stream, connection)?;
        if connection.has_action() {
            continue;
        }
        if connection.is_finished() {
            return Ok(());
        }
        if work.is_empty() && connection.wants_input() && !connection.has_output() {
            let came = polling.look(stream, |stream| {
                let count = stream.try_read(connection.space())?;
                connection.received(count, Instant::now());
                Ok(())
            });
            if came.await? {
                continue;
            }
        }
        let (wants_input, has_output) = (connection.wants_input(), connection.has_output());
        let interest = match (wants_input, has_output) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        let ready = async {
            match interest {
                Some(interest) => stream.ready(interest).await,
                None => std::future::pending().await,
            }
        };
        let deadline = connection.deadline();
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = notify.notified() => connection.tick(Instant::now()),
            Some((ticket, response)) = work.next() => {
                let now = Instant::now();
                connection.complete(ticket, response, now);
                // Others that are there already share one write.
                while let Some((ticket, response)) = ended(&mut work) {
                    connection.complete(ticket, response, now);
                }
            }
            ready = ready => {
                let ready = ready?;
                if ready.is_readable() {
                    read(stream, connection, &mut work)?;
                }
            }
            () = late => connection.tick(Instant::now()),
        }
    }
}

/// Starts what the connection asks for. What ends at once is completed at once, without a task of its own.
fn begin(connection: &mut Connection, work: &mut FuturesUnordered<Work>) {
    let mut context = Context::from_waker(Waker::noop());
    while let Some(action) = connection.action() {
        let mut future = start(action);
        match future.as_mut().poll(&mut context) {
            Poll::Ready((ticket, response)) => {
                connection.complete(ticket, response, Instant::now())
            }
            // Polled again, with a waker that counts, before this task waits.
            Poll::Pending => work.push(future),
        }
    }
}

/// Work that has ended, if any.
fn ended(work: &mut FuturesUnordered<Work>) -> Option<(Ticket, Response)> {
    match work.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => ended,
        Poll::Pending => None,
    }
}

/// Takes what has come.
fn read(
    stream: &TcpStream,
    connection: &mut Connection,
    work: &mut FuturesUnordered<Work>,
) -> io::Result<()> {
    for _ in 0..MAX_READS {
        if !connection.wants_input() {
            break;
        }
        let space = connection.space();
        let room = space.len();
        match stream.try_read(space) {
            Ok(count) => {
                connection.received(count, Instant::now());
                begin(connection, work);
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
fn write(stream: &TcpStream, connection: &mut Connection) -> io::Result<()> {
    while connection.has_output() {
        match stream.try_write_vectored(&connection.output()) {
            Ok(count) => connection.sent(count, Instant::now()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
