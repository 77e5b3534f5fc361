//! Several controllers as one: each drive's namespace under an identifier of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt, join_all};
use thiserror::Error;
use toroid_nvme::{
    BROADCAST_NSID, Controller, ControllerInfo, ErrorInformation, ErrorLog, Health, NamespaceError,
    Request, Response, Sqe, Status, opcode,
};
use toroid_task::CancelToken;

use crate::bridge::NSID;

/// Why drives cannot be one controller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubsystemError {
    /// There is none.
    #[error("a controller needs at least one namespace")]
    Empty,
    /// Two have one identifier.
    #[error("two namespaces have the identifier {0}")]
    Twice(u32),
    /// An identifier that no namespace can have.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A controller whose blocks are not its namespace 1.
    #[error("the controller behind namespace {0} has no namespace 1")]
    Missing(u32),
}

/// One controller over several that each have their blocks in namespace 1, as a [`Drive`](crate::Drive) has: translates namespace identifiers,
/// and shows the failures and counters of all together. A Flush of all namespaces flushes those that the controller shows.
///
/// Their namespaces of other command sets are not shown.
pub struct SubsystemController {
    info: ControllerInfo,
    members: Vec<Member>,
    log: Mutex<Log>,
}

struct Member {
    nsid: u32,
    controller: Arc<dyn Controller>,
}

/// The failures of all members in the order in which they were seen.
#[derive(Default)]
struct Log {
    errors: ErrorLog,
    /// The latest failure of each member that has been seen.
    seen: Vec<u64>,
}

impl SubsystemController {
    /// A controller that shows namespace 1 of each of these under the identifier beside it. `serial` is its serial number, which should be the same
    /// for all controllers of a subsystem, whatever they show.
    ///
    /// # Errors
    /// [`SubsystemError`].
    pub fn new(
        serial: &str,
        members: Vec<(u32, Arc<dyn Controller>)>,
    ) -> Result<SubsystemController, SubsystemError> {
        let (_, first) = members.first().ok_or(SubsystemError::Empty)?;
        let mut info = ControllerInfo {
            serial: serial.to_owned(),
            namespaces: Vec::with_capacity(members.len()),
            other_namespaces: Vec::new(),
            ..first.info().clone()
        };
        let mut used = BTreeSet::new();
        for (nsid, controller) in &members {
            if !used.insert(*nsid) {
                return Err(SubsystemError::Twice(*nsid));
            }
            let of_member = controller.info();
            let namespace = of_member
                .namespace(NSID)
                .ok_or(SubsystemError::Missing(*nsid))?;
            info.namespaces.push(namespace.with_nsid(*nsid)?);
            info.mdts_bytes = info.mdts_bytes.min(of_member.mdts_bytes);
            info.volatile_write_cache |= of_member.volatile_write_cache;
        }
        info.namespaces.sort_by_key(|namespace| namespace.nsid());
        let log = Log {
            seen: vec![0; members.len()],
            ..Log::default()
        };
        let members = members.into_iter();
        Ok(SubsystemController {
            info,
            members: members
                .map(|(nsid, controller)| Member { nsid, controller })
                .collect(),
            log: Mutex::new(log),
        })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Complete between two statements.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a member has logged since the last time.
    fn gather(&self, place: usize) {
        let Some(member) = self.members.get(place) else {
            return;
        };
        let mut log = self.log();
        // Asked for under the lock, so that nothing is taken over twice.
        let entries = member.controller.errors();
        let seen = log.seen.get(place).copied().unwrap_or(0);
        let latest = entries.first().map_or(0, |entry| entry.count);
        for mut entry in entries
            .into_iter()
            .take_while(|entry| entry.count > seen)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            if entry.command.nsid.get() == NSID {
                entry.command.nsid = member.nsid.into();
            }
            log.errors.push(entry.command, entry.status, entry.reason);
        }
        if let Some(seen) = log.seen.get_mut(place) {
            *seen = latest.max(*seen);
        }
    }

    /// Submits a command to a member.
    fn pass<'a>(
        &'a self,
        place: usize,
        member: &'a Member,
        mut request: Request,
        cancel: CancelToken,
    ) -> BoxFuture<'a, Response> {
        request.sqe.nsid = NSID.into();
        let completion = member.controller.submit_abortable(request, cancel);
        async move {
            let response = completion.await;
            if !response.cqe.status().is_success() {
                self.gather(place);
            }
            response
        }
        .boxed()
    }

    fn flush_all(&self, sqe: Sqe, cancel: &CancelToken) -> BoxFuture<'_, Response> {
        let flushes = self.members.iter().enumerate().map(|(place, member)| {
            let request = Request::new(Sqe::flush(sqe.cid.get(), NSID));
            self.pass(place, member, request, cancel.clone())
        });
        let all = join_all(flushes.collect::<Vec<_>>());
        async move {
            let mut responses = all.await.into_iter();
            let failed = responses.find(|response| !response.cqe.status().is_success());
            failed.unwrap_or_else(|| Response::success(sqe.cid.get()))
        }
        .boxed()
    }
}

impl Controller for SubsystemController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        self.submit_abortable(request, CancelToken::new())
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        let sqe = request.sqe;
        let nsid = sqe.nsid.get();
        if sqe.opcode == opcode::FLUSH && nsid == BROADCAST_NSID {
            return self.flush_all(sqe, &cancel);
        }
        let mut members = self.members.iter().enumerate();
        match members.find(|(_, member)| member.nsid == nsid) {
            Some((place, member)) => self.pass(place, member, request, cancel),
            None => {
                tracing::debug!(command = %sqe, "command for a namespace that the controller does not show");
                let reason = format!("the controller has no namespace {nsid}");
                let mut log = self.log();
                log.errors.push(sqe, Status::INVALID_NAMESPACE, reason);
                let cid = sqe.cid.get();
                async move { Response::failure(cid, Status::INVALID_NAMESPACE, true) }.boxed()
            }
        }
    }

    fn info(&self) -> &ControllerInfo {
        &self.info
    }

    fn errors(&self) -> Vec<ErrorInformation> {
        // Reads that delivered their data but could not load a register succeed, and are logged all the same.
        for place in 0..self.members.len() {
            self.gather(place);
        }
        self.log().errors.entries()
    }

    /// Sums, but for the busy time: that of the busiest.
    fn health(&self) -> Health {
        let members = self.members.iter().map(|member| member.controller.health());
        members.fold(Health::default(), |sum, health| Health {
            bytes_read: sum.bytes_read + health.bytes_read,
            bytes_written: sum.bytes_written + health.bytes_written,
            reads: sum.reads + health.reads,
            writes: sum.writes + health.writes,
            busy_minutes: sum.busy_minutes.max(health.busy_minutes),
            media_errors: sum.media_errors + health.media_errors,
            read_only: sum.read_only || health.read_only,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use toroid_nvme::testing::RamController;
    use toroid_nvme::{
        Namespace, NvmeError, VendorStatus, flush, read_blocks, write_blocks, write_zeroes,
    };

    const STATUSES: &[VendorStatus] = &[];

    fn ram(block_size: u32, blocks: u64, mdts_bytes: u32) -> Arc<RamController> {
        Arc::new(RamController::with_info(ControllerInfo {
            mdts_bytes,
            volatile_write_cache: true,
            serial: "own".into(),
            model: "memory".into(),
            firmware: "1".into(),
            namespaces: vec![
                Namespace::new(1, block_size, blocks, 0)
                    .unwrap()
                    .with_nguid([block_size as u8; 16]),
            ],
            other_namespaces: Vec::new(),
            vendor_statuses: STATUSES,
        }))
    }

    fn pair() -> (SubsystemController, Arc<RamController>, Arc<RamController>) {
        let (a, b) = (ram(4096, 64, 1 << 20), ram(512, 1000, 1 << 16));
        let members: Vec<(u32, Arc<dyn Controller>)> =
            vec![(7, Arc::clone(&a) as _), (3, Arc::clone(&b) as _)];
        (SubsystemController::new("shared", members).unwrap(), a, b)
    }

    #[test]
    fn shows_every_namespace_under_its_own_identifier() {
        let (controller, a, b) = pair();
        let info = controller.info();
        assert_eq!((info.serial.as_str(), info.mdts_bytes), ("shared", 1 << 16));
        let shown = info.namespaces.iter();
        let shown: Vec<_> = shown.map(|n| (n.nsid(), n.block_size())).collect();
        assert_eq!(shown, [(3, 512), (7, 4096)]);
        let nguids: Vec<_> = info.namespaces.iter().map(|n| n.nguid()).collect();
        assert_eq!(
            nguids,
            [
                b.info().namespaces[0].nguid(),
                a.info().namespaces[0].nguid()
            ]
        );
        block_on(async {
            write_blocks(&controller, 7, 5, &[7; 4096], &[], false)
                .await
                .unwrap();
            write_blocks(&controller, 3, 5, &[3; 1024], &[], false)
                .await
                .unwrap();
            assert_eq!(read_blocks(&*a, 1, 5, 1).await.unwrap().data, vec![7; 4096]);
            assert_eq!(read_blocks(&*b, 1, 5, 2).await.unwrap().data, vec![3; 1024]);
            write_zeroes(&controller, 3, 5, 1).await.unwrap();
            let read = read_blocks(&controller, 3, 5, 2).await.unwrap().data;
            assert!(read[..512] == [0; 512] && read[512..] == [3; 512]);
        });
    }

    #[test]
    fn a_broadcast_flush_reaches_all_and_fails_if_one_does() {
        let (controller, a, b) = pair();
        block_on(async {
            write_blocks(&controller, 7, 0, &[7; 4096], &[], false)
                .await
                .unwrap();
            write_blocks(&controller, 3, 0, &[3; 512], &[], false)
                .await
                .unwrap();
            flush(&controller, 3).await.unwrap();
            assert_eq!((a.unflushed_blocks(), b.unflushed_blocks()), (1, 0));
            flush(&controller, BROADCAST_NSID).await.unwrap();
            assert_eq!((a.unflushed_blocks(), b.unflushed_blocks()), (0, 0));
            b.fail_nth(1, Status::WRITE_FAULT);
            let failed = flush(&controller, BROADCAST_NSID).await.unwrap_err();
            assert_eq!(failed.status(), Some(Status::WRITE_FAULT));
        });
    }

    #[test]
    fn namespace_that_is_not_there() {
        let (controller, _a, _b) = pair();
        block_on(async {
            // Namespace 1 is that of the members, not of this controller.
            for nsid in [0, 1, 2, BROADCAST_NSID] {
                let response = controller
                    .submit(Request::new(Sqe::read(9, nsid, 0, 0)))
                    .await;
                assert_eq!(response.cqe.status(), Status::INVALID_NAMESPACE);
                assert_eq!(response.cqe.cid.get(), 9);
            }
            let unknown = read_blocks(&controller, 1, 0, 1).await.unwrap_err();
            assert_eq!(unknown, NvmeError::UnknownNamespace { nsid: 1 });
        });
        let errors = controller.errors();
        assert_eq!(errors.len(), 4);
        assert_eq!(errors[0].count, 4);
        assert_eq!(errors[0].command.nsid.get(), BROADCAST_NSID);
    }

    /// A controller with a log of failures.
    struct Failing {
        info: ControllerInfo,
        errors: Mutex<Vec<ErrorInformation>>,
    }

    impl Failing {
        fn new() -> Arc<Failing> {
            Arc::new(Failing {
                info: ram(512, 8, 1 << 16).info().clone(),
                errors: Mutex::default(),
            })
        }
    }

    impl Controller for Failing {
        fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
            let mut errors = self.errors.lock().unwrap();
            let count = errors.len() as u64 + 1;
            errors.insert(
                0,
                ErrorInformation {
                    count,
                    command: request.sqe,
                    status: Status::WRITE_FAULT,
                    reason: format!("failure {count}"),
                },
            );
            let response = Response::failure(request.sqe.cid.get(), Status::WRITE_FAULT, true);
            async move { response }.boxed()
        }

        fn info(&self) -> &ControllerInfo {
            &self.info
        }

        fn errors(&self) -> Vec<ErrorInformation> {
            self.errors.lock().unwrap().clone()
        }

        fn health(&self) -> Health {
            Health {
                reads: 2,
                busy_minutes: 5,
                media_errors: 1,
                read_only: self.errors.lock().unwrap().len() > 1,
                ..Health::default()
            }
        }
    }

    #[test]
    fn failures_and_health_of_all_together() {
        let (a, b) = (Failing::new(), Failing::new());
        let members: Vec<(u32, Arc<dyn Controller>)> =
            vec![(1, Arc::clone(&a) as _), (2, Arc::clone(&b) as _)];
        let controller = SubsystemController::new("s", members).unwrap();
        assert!(!controller.health().read_only);
        for (cid, nsid) in [(10, 2), (11, 1), (12, 2)] {
            block_on(controller.submit(Request::new(Sqe::read(cid, nsid, 0, 0))));
        }
        let errors = controller.errors();
        let seen: Vec<_> = errors
            .iter()
            .map(|e| {
                (
                    e.count,
                    e.command.cid.get(),
                    e.command.nsid.get(),
                    e.reason.as_str(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (3, 12, 2, "failure 2"),
                (2, 11, 1, "failure 1"),
                (1, 10, 2, "failure 1")
            ]
        );
        assert_eq!(
            controller.health(),
            Health {
                reads: 4,
                busy_minutes: 5,
                media_errors: 2,
                read_only: true,
                ..Health::default()
            }
        );
        for cid in 0..100 {
            block_on(controller.submit(Request::new(Sqe::read(cid, 1, 0, 0))));
        }
        let errors = controller.errors();
        assert_eq!((errors.len(), errors[0].count), (64, 103));
        assert_eq!(errors[0].command.cid.get(), 99);
    }

    #[test]
    fn refuses_what_is_no_controller() {
        let of = |nsids: &[u32]| {
            let members = nsids.iter();
            let members = members.map(|nsid| (*nsid, ram(512, 8, 1 << 16) as Arc<dyn Controller>));
            SubsystemController::new("s", members.collect()).err()
        };
        assert_eq!(of(&[]), Some(SubsystemError::Empty));
        assert_eq!(of(&[4, 4]), Some(SubsystemError::Twice(4)));
        assert_eq!(
            of(&[0]),
            Some(SubsystemError::Namespace(NamespaceError::Nsid(0)))
        );
        assert_eq!(of(&[4, 5]), None);
        let inner = SubsystemController::new("s", vec![(2, ram(512, 8, 1 << 16) as _)]).unwrap();
        let outer =
            SubsystemController::new("s", vec![(9, Arc::new(inner) as Arc<dyn Controller>)]);
        assert_eq!(outer.err(), Some(SubsystemError::Missing(9)));
    }
}
