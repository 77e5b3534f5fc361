//! The host's sockets on tokio: [`Connector`] opens them, and each has a task that moves bytes and commands.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::address::Address;
use super::connection::Connection;
use crate::Response;
use crate::fabrics::{
    self, ConnectError, ConnectOptions, DiscoveryEntry, HostQueue, QueueSettings, RemoteController,
    Submission, Transport,
};
use crate::tcp::error::ConnectionError;
use crate::tcp::pdu::Digests;
use crate::tcp::poll::Polling;
use crate::tcp::socket::Socket;
use crate::tcp::tls;

/// NVMe/TCP as a [`Transport`] of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connector {
    /// Where the controller is.
    pub address: Address,
    /// Digests to ask for.
    pub digests: Digests,
}

impl Connector {
    /// Connects to the controller at the address.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        &self,
        options: &ConnectOptions,
    ) -> Result<RemoteController, ConnectError> {
        RemoteController::connect(self, &self.address.nqn, options).await
    }

    /// The NVM subsystems at the address, whatever its NQN.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn discover(
        &self,
        options: &ConnectOptions,
    ) -> Result<Vec<DiscoveryEntry>, ConnectError> {
        fabrics::discover(self, options).await
    }
}

impl From<&Address> for Connector {
    /// Without digests.
    fn from(address: &Address) -> Connector {
        Connector {
            address: address.clone(),
            digests: Digests::default(),
        }
    }
}

/// Connects to the controller at `address`, without digests.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    address: &Address,
    options: &ConnectOptions,
) -> Result<RemoteController, ConnectError> {
    Connector::from(address).connect(options).await
}

impl Transport for Connector {
    async fn open(&self, settings: QueueSettings) -> Result<HostQueue, ConnectError> {
        let Address { host, port, .. } = &self.address;
        let address = self.address.to_string();
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = match stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => stream,
            Err(source) => return Err(ConnectError::Io { address, source }),
        };
        let stream = match &settings.tls {
            None => Socket::Plain(stream),
            Some(psk) => match tls::connect(stream, psk).await {
                Ok(session) => Socket::Tls(session),
                Err(source) => return Err(ConnectError::Tls { address, source }),
            },
        };
        let mut connection = Connection::new(self.digests, settings.entries);
        if let Some(bytes) = settings.in_capsule {
            connection.set_in_capsule(bytes);
        }
        Ok(HostQueue::spawn(|commands| async move {
            let result = run(&stream, connection, commands, settings.poll).await;
            result.map_err(|error| match error {
                Ended::Io(source) => ConnectError::Io { address, source },
                Ended::Connection(error) => ConnectError::Connection(error.into()),
            })
        }))
    }
}

enum Ended {
    Io(io::Error),
    Connection(ConnectionError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Io(error)
    }
}

/// Moves bytes and commands until the handle is dropped or the connection ends.
async fn run(
    stream: &Socket,
    mut connection: Connection,
    mut commands: mpsc::UnboundedReceiver<Submission>,
    poll: Duration,
) -> Result<(), Ended> {
    let mut polling = Polling::new(poll);
    let mut answers: HashMap<u16, oneshot::Sender<Response>> = HashMap::new();
    let mut closed = false;
    loop {
        while connection.has_room() {
            match commands.try_recv() {
                Ok(submission) => {
                    let Submission {
                        sqe,
                        data,
                        expected,
                        answer,
                    } = submission;
                    let cid = connection.submit(sqe, data, expected);
                    answers.insert(cid, answer);
                }
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    closed = true;
                    break;
                }
            }
        }
        while connection.has_output() {
            match stream.try_write_vectored(&connection.output()) {
                Ok(count) => connection.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = connection.error() {
            return Err(Ended::Connection(error.clone()));
        }
        if closed && answers.is_empty() && !connection.has_output() {
            return Ok(());
        }
        if connection.in_flight() > 0 && !connection.has_output() && commands.is_empty() {
            let came = polling.look(stream.is_polled_by_turns(), || {
                let count = stream.poll_read(connection.space());
                received(count, &mut connection)
            });
            if came.await? {
                deliver(&mut connection, &mut answers);
                continue;
            }
        }
        let interest = if connection.has_output() {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        let has_room = connection.has_room() && !closed;
        tokio::select! {
            biased;
            ready = stream.ready(interest) => {
                if ready?.is_readable() {
                    let count = stream.try_read(connection.space());
                    match received(count, &mut connection) {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error.into()),
                    }
                    deliver(&mut connection, &mut answers);
                }
            }
            submission = commands.recv(), if has_room => match submission {
                Some(Submission { sqe, data, expected, answer }) => {
                    let cid = connection.submit(sqe, data, expected);
                    answers.insert(cid, answer);
                }
                None => closed = true,
            },
        }
    }
}

/// Takes what a reading has given.
fn received(count: io::Result<usize>, connection: &mut Connection) -> io::Result<()> {
    match count {
        Ok(count) => connection.received(count),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => connection.cut(),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns completions to the submitters.
fn deliver(connection: &mut Connection, answers: &mut HashMap<u16, oneshot::Sender<Response>>) {
    while let Some((cid, response)) = connection.completed() {
        if let Some(answer) = answers.remove(&cid) {
            // The submitter may have gone away.
            let _ = answer.send(response);
        }
    }
}
