//! Setting up a controller from the host: Connect, authentication, properties, and the first admin commands.

use std::future::Future;
use std::time::Duration;

use zerocopy::IntoBytes;

use super::options::{ConnectError, ConnectOptions};
use super::queue::{HostQueue, QueueSettings, Transport};
use crate::admin::{cns, opcode};
use crate::fabrics::auth::{AuthCommand, AuthPolicy, HostAuth, HostStep, RECEIVE_LEN, TlsPsk};
use crate::fabrics::command::{
    AUTHENTICATION_REQUIRED, Connect, ConnectData, cc, csts, property, property_get, property_set,
};
use crate::{BROADCAST_NSID, Response, Sqe, Status};

const CONNECT: &str = "Connect";
/// Dword 0 of a Connect that was refused for its subsystem's NQN, byte 256 of the data.
const UNKNOWN_SUBSYSTEM: u32 = 256 | 1 << 16;
/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// How often a host polls the status of a controller that becomes ready.
const READY_POLL: Duration = Duration::from_millis(20);
/// Most namespaces that a host asks for.
const MAX_NAMESPACES: usize = 1024;
/// Bytes of a log page that one command fetches.
const LOG_CHUNK: usize = 4096;

/// A queue during the set-up of its controller.
pub(super) struct SetupQueue {
    pub(super) queue: HostQueue,
    timeout: Duration,
    /// The key of its connection.
    pub(super) tls: Option<TlsPsk>,
}

impl SetupQueue {
    /// Opens an admin queue, and connects it to a new controller of `subsystem`, whose identifier it returns.
    pub(super) async fn connect_admin(
        transport: &impl Transport,
        subsystem: &str,
        options: &ConnectOptions,
    ) -> Result<(SetupQueue, u16), ConnectError> {
        let connect = Connect {
            qid: 0,
            sqsize: ADMIN_ENTRIES - 1,
            cattr: 0,
            kato: options.keep_alive.as_millis().min(u32::MAX.into()) as u32,
        };
        let settings = (connect, 0xFFFF, None);
        let connected = async {
            if !options.concatenate {
                let tls = options.tls_key.as_ref();
                let tls = tls.map(|key| key.psk(&options.host_nqn, subsystem));
                return SetupQueue::connect(transport, settings, tls, subsystem, options).await;
            }
            if options.controller_secret.is_none() || options.tls_key.is_some() {
                return Err(ConnectError::Concatenation);
            }
            // This connection is for the authentication alone.
            let (authenticated, _) =
                SetupQueue::connect(transport, settings, None, subsystem, options).await?;
            let tls = authenticated
                .tls
                .clone()
                .ok_or(ConnectError::Concatenation)?;
            drop(authenticated);
            SetupQueue::connect(transport, settings, Some(tls), subsystem, options).await
        };
        connected.await.map_err(|error| match error {
            ConnectError::Refused {
                what: CONNECT,
                status: Status::CONNECT_INVALID_PARAMETERS,
                result: UNKNOWN_SUBSYSTEM,
            } => ConnectError::NoSuchSubsystem {
                nqn: subsystem.to_owned(),
            },
            ConnectError::Refused {
                what: CONNECT,
                status: Status::CONNECT_INVALID_HOST,
                ..
            } => ConnectError::HostRefused {
                nqn: options.host_nqn.clone(),
            },
            error => error,
        })
    }

    /// Opens a queue, connects it to a controller, and authenticates it. `in_capsule` and `tls` as in [`QueueSettings`]; afterwards the queue
    /// has the key that its authentication has generated, if it was to.
    pub(super) async fn connect(
        transport: &impl Transport,
        (connect, cntlid, in_capsule): (Connect, u16, Option<usize>),
        tls: Option<TlsPsk>,
        subsystem: &str,
        options: &ConnectOptions,
    ) -> Result<(SetupQueue, u16), ConnectError> {
        let timeout = options.timeout;
        let open = transport.open(QueueSettings {
            entries: connect.sqsize + 1,
            in_capsule,
            poll: options.poll,
            tls: tls.clone(),
        });
        let queue = within("the connection", timeout, open).await??;
        let mut queue = SetupQueue {
            queue,
            timeout,
            tls,
        };
        let data = ConnectData::new(options.host_id, cntlid, subsystem, &options.host_nqn);
        let data = data.as_bytes().to_vec();
        let response = queue.send(CONNECT, connect.to_sqe(0), data, 0).await?;
        let transaction = connect.qid.wrapping_add(1);
        queue
            .authenticate(&response, subsystem, options, transaction)
            .await?;
        Ok((queue, response.cqe.dw0.get() as u16))
    }

    /// Authenticates the queue if the response to Connect asks for it, or if the controller must authenticate.
    async fn authenticate(
        &mut self,
        connected: &Response,
        subsystem: &str,
        options: &ConnectOptions,
        transaction: u16,
    ) -> Result<(), ConnectError> {
        let asked = connected.cqe.dw0.get() & AUTHENTICATION_REQUIRED != 0;
        // With a generated key both sides have authenticated already.
        let proven = options.concatenate && self.tls.is_some();
        if !asked && (proven || options.controller_secret.is_none()) {
            return Ok(());
        }
        let secret = options.secret.clone().ok_or(ConnectError::NoSecret)?;
        let mut auth = HostAuth::new(
            AuthPolicy::default(),
            subsystem,
            &options.host_nqn,
            secret,
            options.controller_secret.clone(),
            transaction,
        );
        if options.concatenate && !proven {
            auth = auth.concatenating();
        }
        let mut message = auth.start();
        loop {
            let len = message.len() as u32;
            let sqe = AuthCommand::Send { len }.sqe(0);
            self.send("Authentication Send", sqe, message, 0).await?;
            let sqe = AuthCommand::Receive { len: RECEIVE_LEN }.sqe(0);
            let what = "Authentication Receive";
            let received = self
                .send(what, sqe, Vec::new(), RECEIVE_LEN as usize)
                .await?;
            match auth.next(&received.data) {
                Ok(HostStep::Send(next)) => message = next,
                Ok(HostStep::Done(last)) => {
                    if let Some(last) = last {
                        let len = last.len() as u32;
                        let sqe = AuthCommand::Send { len }.sqe(0);
                        self.send("Authentication Send", sqe, last, 0).await?;
                    }
                    if let Some(key) = auth.generated() {
                        self.tls = Some(key.psk(&options.host_nqn, subsystem));
                    }
                    return Ok(());
                }
                Err(error) => {
                    if let Some(last) = auth.failure() {
                        let len = last.len() as u32;
                        let sqe = AuthCommand::Send { len }.sqe(0);
                        // The controller may close the connection before it answers; the error is what counts.
                        let _ = self.send("Authentication Send", sqe, last, 0).await;
                    }
                    return Err(error.into());
                }
            }
        }
    }

    pub(super) async fn send(
        &mut self,
        what: &'static str,
        sqe: Sqe,
        data: Vec<u8>,
        expected: usize,
    ) -> Result<Response, ConnectError> {
        let response = within(what, self.timeout, self.queue.submit(sqe, data, expected)).await?;
        let status = response.cqe.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == Status::HOST_PATHING_ERROR
            && let Some(error) = self.queue.reason().await
        {
            return Err(error);
        }
        Err(ConnectError::Refused {
            what,
            status,
            result: response.cqe.dw0.get(),
        })
    }

    async fn property(&mut self, offset: u32, wide: bool) -> Result<u64, ConnectError> {
        let sqe = property_get(0, offset, wide);
        let cqe = self.send("Property Get", sqe, Vec::new(), 0).await?.cqe;
        Ok(u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32)
    }

    /// Enables the controller and waits until it is ready; returns its capabilities.
    pub(super) async fn enable(&mut self) -> Result<u64, ConnectError> {
        let capabilities = self.property(property::CAP, true).await?;
        let all_sets = if capabilities >> 43 & 1 != 0 {
            cc::CSS_ALL
        } else {
            0
        };
        let value = cc::EN | cc::ENTRY_SIZES | all_sets;
        let sqe = property_set(0, property::CC, value);
        self.send("Property Set", sqe, Vec::new(), 0).await?;
        let started = tokio::time::Instant::now();
        loop {
            let status = self.property(property::CSTS, false).await? as u32;
            if status & csts::CFS != 0 {
                return Err(ConnectError::Fatal);
            }
            if status & csts::RDY != 0 {
                return Ok(capabilities);
            }
            if started.elapsed() > self.timeout {
                return Err(ConnectError::Timeout {
                    what: "becoming ready",
                    limit: self.timeout,
                });
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    pub(super) async fn identify(
        &mut self,
        cns: u8,
        nsid: u32,
        csi: u8,
    ) -> Result<Vec<u8>, ConnectError> {
        let sqe = Sqe {
            opcode: opcode::IDENTIFY,
            nsid: nsid.into(),
            cdw10: u32::from(cns).into(),
            cdw11: (u32::from(csi) << 24).into(),
            ..Sqe::default()
        };
        let data = self.send("Identify", sqe, Vec::new(), 4096).await?.data;
        match data.len() {
            4096 => Ok(data),
            found => Err(ConnectError::Length {
                what: "Identify",
                found,
                expected: 4096,
            }),
        }
    }

    /// Identifiers of the active namespaces, in rising order.
    pub(super) async fn namespaces(&mut self) -> Result<Vec<u32>, ConnectError> {
        let mut all: Vec<u32> = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let list = self.identify(cns::NAMESPACES, after, 0).await?;
            let before = all.len();
            let ids = list.chunks_exact(4).map(|id| match id {
                [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]),
                _ => 0,
            });
            all.extend(ids.take_while(|id| *id > after));
            if all.len() - before < 1024 || all.len() >= MAX_NAMESPACES {
                return Ok(all);
            }
        }
    }

    pub(super) async fn log_page(&mut self, id: u8, bytes: usize) -> Result<Vec<u8>, ConnectError> {
        let mut page = Vec::with_capacity(bytes);
        while page.len() < bytes {
            let now = (bytes - page.len()).min(LOG_CHUNK);
            let sqe = get_log_page(id, page.len() as u64, now);
            let data = self.send("Get Log Page", sqe, Vec::new(), now).await?.data;
            if data.len() != now {
                return Err(ConnectError::Length {
                    what: "Get Log Page",
                    found: data.len(),
                    expected: now,
                });
            }
            page.extend_from_slice(&data);
        }
        Ok(page)
    }
}

/// Get Log Page of `bytes` bytes, a multiple of 4, from `offset` on.
pub(super) fn get_log_page(id: u8, offset: u64, bytes: usize) -> Sqe {
    let dwords = (bytes / 4).saturating_sub(1) as u32;
    Sqe {
        opcode: opcode::GET_LOG_PAGE,
        nsid: BROADCAST_NSID.into(),
        cdw10: (u32::from(id) | dwords << 16).into(),
        cdw11: (dwords >> 16).into(),
        cdw12: (offset as u32).into(),
        cdw13: ((offset >> 32) as u32).into(),
        ..Sqe::default()
    }
}

pub(super) async fn within<T>(
    what: &'static str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ConnectError> {
    let result = tokio::time::timeout(limit, future).await;
    result.map_err(|_| ConnectError::Timeout { what, limit })
}
