//! A controller behind a transport, as a [`Controller`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::options::{ConnectError, ConnectOptions};
use super::queue::{HostQueue, Submission, Transport};
use super::setup::{SetupQueue, get_log_page, within};
use crate::admin::{cns, csi, opcode};
use crate::fabrics::command::{CATTR_NO_FLOW_CONTROL, Connect, Sgl};
use crate::log::{feature, log_page, parse_reasons};
use crate::{
    Command, Controller, ControllerInfo, IdentifyController, IdentifyNamespace, Namespace,
    OtherNamespace, Request, Response, Sqe, Status,
};

/// A controller behind a transport.
///
/// Commands go to the I/O queues in turn. When a connection breaks, its commands and all later ones fail with Host Pathing Error. Dropping
/// the `RemoteController` ends the connections; the controller aborts the commands in flight.
pub struct RemoteController {
    info: ControllerInfo,
    /// Namespaces of extended LBAs: the metadata of a block follows its data.
    interleaved: Vec<u32>,
    admin: HostQueue,
    queues: Vec<HostQueue>,
    next: AtomicUsize,
    keep_alive: JoinHandle<()>,
    timeout: Duration,
}

impl Drop for RemoteController {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl RemoteController {
    /// Connects to a controller of `subsystem`, with its I/O queues.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        transport: &impl Transport,
        subsystem: &str,
        options: &ConnectOptions,
    ) -> Result<RemoteController, ConnectError> {
        let (mut admin, cntlid) = SetupQueue::connect_admin(transport, subsystem, options).await?;
        let capabilities = admin.enable().await?;
        let entries = u16::try_from((capabilities & 0xFFFF) + 1).unwrap_or(u16::MAX);
        let entries = options.queue_entries.clamp(2, entries.max(2));
        let controller = IdentifyController::parse(&admin.identify(cns::CONTROLLER, 0, 0).await?)?;
        let count = u32::from(options.io_queues.max(1) - 1);
        let set_queues = Sqe {
            opcode: opcode::SET_FEATURES,
            cdw10: u32::from(feature::QUEUES).into(),
            cdw11: (count | count << 16).into(),
            ..Sqe::default()
        };
        let granted = admin
            .send("Set Features", set_queues, Vec::new(), 0)
            .await?;
        let granted = granted.cqe.dw0.get() as u16;
        let mut info = ControllerInfo {
            mdts_bytes: controller.mdts_bytes(),
            volatile_write_cache: controller.has_volatile_write_cache(),
            serial: controller.serial(),
            model: controller.model(),
            firmware: controller.firmware(),
            namespaces: Vec::new(),
            other_namespaces: Vec::new(),
            vendor_statuses: options.vendor_statuses,
        };
        let mut interleaved = Vec::new();
        for nsid in admin.namespaces().await? {
            let descriptors = admin.identify(cns::DESCRIPTORS, nsid, 0).await?;
            let (csi, nguid) = IdentifyNamespace::descriptors(&descriptors);
            if csi != csi::NVM {
                info.other_namespaces
                    .push(OtherNamespace { nsid, csi, nguid });
                continue;
            }
            let identify = admin.identify(cns::NAMESPACE, nsid, 0).await?;
            let identify = IdentifyNamespace::parse(&identify)?;
            if identify.is_interleaved() {
                interleaved.push(nsid);
            }
            info.namespaces.push(identify.namespace(nsid)?);
        }
        let in_capsule = (controller.ioccsz.get() as usize * 16).saturating_sub(size_of::<Sqe>());
        let mut queues = Vec::new();
        for qid in 1..=granted.saturating_add(1).min(options.io_queues.max(1)) {
            let connect = Connect {
                qid,
                sqsize: entries - 1,
                cattr: CATTR_NO_FLOW_CONTROL,
                kato: 0,
            };
            let settings = (connect, cntlid, Some(in_capsule));
            let connected =
                SetupQueue::connect(transport, settings, admin.tls.clone(), subsystem, options);
            queues.push(connected.await?.0.queue);
        }
        let keep_alive = {
            let commands = admin.queue.commands();
            let limit = options.keep_alive;
            let tasks = queues.iter().chain([&admin.queue]);
            let tasks: Vec<_> = tasks.map(|queue| queue.abort_handle()).collect();
            tokio::spawn(async move {
                while !limit.is_zero() {
                    tokio::time::sleep(limit / 2).await;
                    let (answer, receiver) = oneshot::channel();
                    let submission = Submission {
                        sqe: Sqe {
                            opcode: opcode::KEEP_ALIVE,
                            ..Sqe::default()
                        },
                        data: Vec::new(),
                        expected: 0,
                        answer,
                    };
                    let answered = match commands.send(submission) {
                        Ok(()) => tokio::time::timeout(limit, receiver).await,
                        Err(_) => break,
                    };
                    match answered {
                        Ok(Ok(_)) => {}
                        Ok(Err(_)) => break,
                        Err(_) => {
                            // The controller has vanished: commands must not wait for ever.
                            tasks.iter().for_each(tokio::task::AbortHandle::abort);
                            break;
                        }
                    }
                }
            })
        };
        Ok(RemoteController {
            info,
            interleaved,
            admin: admin.queue,
            queues,
            next: AtomicUsize::new(0),
            keep_alive,
            timeout: options.timeout,
        })
    }

    /// A log page of `bytes` bytes, a multiple of 4.
    ///
    /// # Errors
    /// [`ConnectError::Refused`], [`ConnectError::Timeout`].
    pub async fn log_page(&self, id: u8, bytes: usize) -> Result<Vec<u8>, ConnectError> {
        let what = "Get Log Page";
        let submitted = self
            .admin
            .submit(get_log_page(id, 0, bytes), Vec::new(), bytes);
        let response = within(what, self.timeout, submitted).await?;
        match response.cqe.status() {
            Status::SUCCESS => Ok(response.data),
            status => Err(ConnectError::Refused {
                what,
                status,
                result: response.cqe.dw0.get(),
            }),
        }
    }

    /// Why the latest commands failed: count, status and reason, newest first.
    ///
    /// # Errors
    /// Those of [`RemoteController::log_page`]; controllers of other vendors have no such page.
    pub async fn reasons(&self) -> Result<Vec<(u64, Status, String)>, ConnectError> {
        let page = self.log_page(log_page::REASONS, 16 << 10).await?;
        Ok(parse_reasons(&page))
    }

    /// Ends the connections. Commands in flight, which the controller then aborts, and all later ones fail with Host Pathing Error.
    pub fn disconnect(&self) {
        self.keep_alive.abort();
        self.admin.abort();
        for queue in &self.queues {
            queue.abort();
        }
    }

    /// Whether every connection is still open.
    pub fn is_connected(&self) -> bool {
        !self.admin.is_finished() && self.queues.iter().all(|queue| !queue.is_finished())
    }

    /// The namespace `nsid` if it has extended LBAs.
    fn interleaved(&self, nsid: u32) -> Option<&Namespace> {
        let interleaved = self.interleaved.contains(&nsid);
        self.info.namespace(nsid).filter(|_| interleaved)
    }
}

impl Controller for RemoteController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let Request {
            sqe,
            mut data,
            metadata,
        } = request;
        let nsid = sqe.nsid.get();
        let interleaved = self.interleaved(nsid);
        if let Some(namespace) = interleaved
            && !metadata.is_empty()
        {
            data = namespace.interleave(&data, &metadata);
        }
        let expected = match (Command::parse(&sqe), self.info.namespace(nsid)) {
            (Ok(Command::Read(io)), Some(namespace)) => {
                namespace.data_len(io.blocks) + namespace.metadata_len(io.blocks)
            }
            (Ok(_), Some(_)) => 0,
            // Another command set may use the same opcodes, so the descriptor decides.
            _ => Sgl::parse(&sqe.dptr).map_or(0, |sgl| sgl.length().into()),
        };
        let expected = if data.is_empty() {
            expected as usize
        } else {
            0
        };
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.queues.len().max(1);
        let Some(queue) = self.queues.get(next) else {
            let response = Response::failure(sqe.cid.get(), Status::HOST_PATHING_ERROR, false);
            return async move { response }.boxed();
        };
        let submitted = queue.submit(sqe, data, expected);
        async move {
            let mut response = submitted.await;
            if let Some(namespace) = interleaved
                && !response.data.is_empty()
            {
                (response.data, response.metadata) = namespace.separate(&response.data);
            }
            response
        }
        .boxed()
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        let expected = if request.data.is_empty() {
            Sgl::parse(&request.sqe.dptr).map_or(0, |sgl| sgl.length() as usize)
        } else {
            0
        };
        self.admin
            .submit(request.sqe, request.data, expected)
            .boxed()
    }

    fn info(&self) -> &ControllerInfo {
        &self.info
    }
}
