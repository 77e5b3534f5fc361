//! A target with memory behind it, and hosts driven by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use toroid_nvme::admin::opcode;
use toroid_nvme::fabrics::{
    Action, Connect, ConnectData, Hosts, Job, Limits, Sgl, Subsystem, Target, cc, property,
};
use toroid_nvme::log::feature;
use toroid_nvme::tcp::Digests;
use toroid_nvme::tcp::controller::Connection;
use toroid_nvme::testing::RamController;
use toroid_nvme::{
    BROADCAST_NSID, Controller, ControllerInfo, Cqe, Namespace, OtherNamespace, Request, Response,
    Sqe, Status,
};
use zerocopy::IntoBytes;

use crate::pdu::{self, NONE, Pdu};

pub const SUBSYSTEM: &str = "nqn.2024-01.io.example:drive";
pub const HOST: &str = "nqn.2024-01.io.example:host";
pub const HOST_ID: [u8; 16] = [9; 16];
pub const MDTS: u32 = 1 << 20;

/// Small, so that they are met.
pub fn small() -> Limits {
    Limits {
        io_queues: 3,
        queue_entries: 16,
        bytes_in_flight: 1 << 20,
        controllers: 6,
        controllers_per_host: 4,
        ..Limits::default()
    }
}

pub fn info() -> ControllerInfo {
    ControllerInfo {
        mdts_bytes: MDTS,
        volatile_write_cache: true,
        serial: "0123".into(),
        model: "memory".into(),
        firmware: "1".into(),
        namespaces: vec![
            Namespace::new(1, 4096, 1024, 0)
                .unwrap()
                .with_nguid([1; 16]),
            Namespace::new(2, 512, 4096, 64)
                .unwrap()
                .with_nguid([2; 16]),
        ],
        other_namespaces: vec![OtherNamespace {
            nsid: 4,
            csi: 4,
            nguid: [4; 16],
        }],
        vendor_statuses: &[],
    }
}

pub struct World {
    pub target: Arc<Target>,
    pub ram: Arc<RamController>,
    pub now: Instant,
    /// Calls of any connection's `wake`.
    pub wakes: Arc<AtomicUsize>,
}

impl World {
    pub fn new(hosts: Hosts, limits: Limits) -> World {
        let ram = Arc::new(RamController::with_info(info()));
        let behind = Arc::clone(&ram);
        let subsystem = Subsystem {
            nqn: SUBSYSTEM.into(),
            storage: Arc::new(move |_: &str| Ok(Arc::clone(&behind) as Arc<dyn Controller>)),
            hosts,
        };
        World {
            target: Target::new(vec![subsystem], limits, None).unwrap(),
            ram,
            now: Instant::now(),
            wakes: Arc::default(),
        }
    }

    pub fn small() -> World {
        World::new(Hosts::Any, small())
    }

    /// A connection that has just been accepted.
    pub fn open(&self) -> Peer {
        let wakes = Arc::clone(&self.wakes);
        let wake = Arc::new(move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        });
        let local = ([127, 0, 0, 1], 4420).into();
        Peer {
            connection: Connection::new(Arc::clone(&self.target), local, wake, self.now),
            digests: NONE,
            stream: Vec::new(),
            actions: Vec::new(),
            now: self.now,
            next_cid: 0,
        }
    }

    /// A connection after ICReq and ICResp.
    pub fn initialized(&self, digests: Digests) -> Peer {
        let mut peer = self.open();
        peer.send(&pdu::initialize(pdu::IC_REQ, digests, 0));
        let replies = peer.replies();
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].kind, pdu::IC_RESP);
        peer.digests = digests;
        peer
    }

    /// A controller that is not enabled, and its identifier.
    pub fn admin(&self, digests: Digests, kato: u32) -> (Peer, u16) {
        let mut peer = self.initialized(digests);
        let cqe = peer.connect(connect(0, kato), &data(0xFFFF));
        assert_eq!(cqe.status(), Status::SUCCESS);
        (peer, cqe.dw0.get() as u16)
    }

    /// An enabled controller that may have 3 I/O queues.
    pub fn enabled(&self, digests: Digests, kato: u32) -> (Peer, u16) {
        let (mut admin, cntlid) = self.admin(digests, kato);
        admin.enable();
        (admin, cntlid)
    }

    pub fn queue(&self, digests: Digests, cntlid: u16, qid: u16) -> Peer {
        let mut peer = self.initialized(digests);
        let cqe = peer.connect(connect(qid, 0), &data(cntlid));
        assert_eq!(cqe.status(), Status::SUCCESS);
        peer
    }

    /// An admin and an I/O queue.
    pub fn pair(&self, digests: Digests) -> (Peer, Peer) {
        let (admin, cntlid) = self.enabled(digests, 0);
        let io = self.queue(digests, cntlid, 1);
        (admin, io)
    }
}

pub fn connect(qid: u16, kato: u32) -> Connect {
    Connect {
        qid,
        sqsize: 7,
        cattr: 0,
        kato,
    }
}

pub fn data(cntlid: u16) -> ConnectData {
    ConnectData::new(HOST_ID, cntlid, SUBSYSTEM, HOST)
}

/// A host's end of a connection to the target.
pub struct Peer {
    pub connection: Connection,
    pub digests: Digests,
    /// What the target sent and was not taken apart yet.
    pub stream: Vec<u8>,
    /// Work that the target has given out and that has not ended.
    pub actions: Vec<Action>,
    pub now: Instant,
    pub next_cid: u16,
}

impl Peer {
    /// Sends bytes as far as the target takes them.
    pub fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.connection.wants_input() {
            let space = self.connection.space();
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.connection.received(count, self.now);
            bytes = &bytes[count..];
            self.collect();
        }
    }

    pub fn collect(&mut self) {
        while let Some(action) = self.connection.action() {
            self.actions.push(action);
        }
    }

    /// Ends the piece of work `which`.
    pub fn complete(&mut self, which: usize) {
        let action = self.actions.remove(which);
        let response = match action.job {
            Job::Io {
                controller,
                request,
                cancel,
                ..
            } if !cancel.is_cancelled() => block_on(controller.submit(request)),
            Job::Flush { controller, .. } => {
                block_on(controller.submit(Request::new(Sqe::flush(0, BROADCAST_NSID))))
            }
            Job::Io { .. } => Response::failure(0, Status::ABORT_REQUESTED, false),
            Job::Admin {
                controller,
                request,
            } => block_on(controller.admin(request)),
            Job::Authenticate(authentication) => authentication.run(),
        };
        self.connection.complete(action.ticket, response, self.now);
        self.collect();
    }

    /// Takes what the target sends, without ending its work.
    pub fn replies(&mut self) -> Vec<Pdu> {
        while self.connection.has_output() {
            let mut count = 0;
            for piece in self.connection.output() {
                self.stream.extend_from_slice(&piece);
                count += piece.len();
            }
            self.connection.sent(count, self.now);
            self.collect();
        }
        pdu::take(&mut self.stream, self.digests)
    }

    /// Ends all work, and takes what the target sends.
    pub fn settle(&mut self) -> Vec<Pdu> {
        let mut all = self.replies();
        while !self.actions.is_empty() {
            self.complete(0);
            all.extend(self.replies());
        }
        all
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.connection.tick(self.now);
        self.collect();
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// Sends a command with its data in the capsule, or with `room` for data, and gives its identifier.
    pub fn start(&mut self, mut sqe: Sqe, capsule: &[u8], room: usize) -> u16 {
        let cid = self.cid();
        sqe.cid = cid.into();
        sqe.flags |= 0x40;
        sqe.dptr = match capsule.len() {
            0 => Sgl::Transport {
                length: room as u32,
            },
            len => Sgl::InCapsule {
                offset: 0,
                length: len as u32,
            },
        }
        .to_bytes();
        let bytes = pdu::command(&sqe, capsule, self.digests);
        self.send(&bytes);
        cid
    }

    /// Executes a command to its end: completion and data.
    pub fn call(&mut self, sqe: Sqe, capsule: &[u8], room: usize) -> (Cqe, Vec<u8>) {
        let cid = self.start(sqe, capsule, room);
        let mut data = Vec::new();
        let mut cqe = None;
        for reply in self.settle() {
            match reply.kind {
                pdu::C2H_DATA => {
                    assert_eq!(reply.u16(0), cid);
                    data.extend_from_slice(&reply.data);
                    if reply.flags & pdu::SUCCESS != 0 {
                        cqe = Some(Cqe::success(cid));
                    }
                }
                pdu::RESPONSE if reply.cqe().cid.get() == cid => cqe = Some(reply.cqe()),
                _ => panic!("{reply:?} in place of the response to {cid}"),
            }
        }
        (cqe.unwrap(), data)
    }

    pub fn status(&mut self, sqe: Sqe, capsule: &[u8], room: usize) -> Status {
        self.call(sqe, capsule, room).0.status()
    }

    /// Writes with an R2T.
    pub fn write(&mut self, sqe: Sqe, data: &[u8]) -> Status {
        let cid = self.start(sqe, &[], data.len());
        let replies = self.settle();
        assert_eq!(replies.len(), 1, "{replies:?}");
        let r2t = &replies[0];
        assert_eq!((r2t.kind, r2t.u16(0)), (pdu::R2T, cid));
        assert_eq!((r2t.u32(4), r2t.u32(8) as usize), (0, data.len()));
        let tag = r2t.u16(2);
        for (i, chunk) in data.chunks(128 << 10).enumerate() {
            let offset = i * (128 << 10);
            let last = offset + chunk.len() == data.len();
            let bytes = pdu::transfer(
                (pdu::H2C_DATA, if last { pdu::LAST } else { 0 }),
                (cid, tag),
                (offset as u32, chunk.len() as u32),
                chunk,
                self.digests,
            );
            self.send(&bytes);
        }
        let replies = self.settle();
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert_eq!(replies[0].cqe().cid.get(), cid);
        replies[0].cqe().status()
    }

    pub fn connect(&mut self, connect: Connect, data: &ConnectData) -> Cqe {
        self.call(connect.to_sqe(0), data.as_bytes(), 0).0
    }

    pub fn property_set(&mut self, offset: u32, value: u32) -> Status {
        let mut sqe = fabrics(0x00);
        (sqe.cdw11, sqe.cdw12) = (offset.into(), value.into());
        self.status(sqe, &[], 0)
    }

    pub fn property(&mut self, offset: u32, wide: bool) -> Result<u64, Status> {
        let mut sqe = fabrics(0x04);
        (sqe.cdw10, sqe.cdw11) = (u32::from(wide).into(), offset.into());
        let (cqe, _) = self.call(sqe, &[], 0);
        match cqe.status() {
            Status::SUCCESS => Ok(u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32),
            status => Err(status),
        }
    }

    pub fn enable(&mut self) {
        let status = self.property_set(property::CC, cc::EN | cc::ENTRY_SIZES);
        assert_eq!(status, Status::SUCCESS);
        let (cqe, _) = self.call(features(feature::QUEUES, 0x0002_0002), &[], 0);
        assert_eq!(
            (cqe.status(), cqe.dw0.get()),
            (Status::SUCCESS, 0x0002_0002)
        );
    }

    /// The only termination request that came, as FES and FEI; the connection is over after it.
    pub fn fatal(&mut self) -> (u16, u32) {
        let replies = self.settle();
        let last = replies.last().expect("a termination request");
        let fatal = last.fatal();
        assert!(self.connection.is_finished() && !self.connection.wants_input());
        assert!(self.connection.error().is_some());
        fatal
    }
}

pub fn fabrics(fctype: u8) -> Sqe {
    Sqe {
        opcode: 0x7F,
        nsid: u32::from(fctype).into(),
        ..Sqe::default()
    }
}

/// Set Features.
pub fn features(id: u8, value: u32) -> Sqe {
    Sqe {
        opcode: opcode::SET_FEATURES,
        cdw10: u32::from(id).into(),
        cdw11: value.into(),
        ..Sqe::default()
    }
}

pub fn admin_command(opcode: u8, nsid: u32, cdw10: u32, cdw11: u32) -> Sqe {
    Sqe {
        opcode,
        nsid: nsid.into(),
        cdw10: cdw10.into(),
        cdw11: cdw11.into(),
        ..Sqe::default()
    }
}

pub fn identify(cns: u8, nsid: u32, csi: u8) -> Sqe {
    admin_command(opcode::IDENTIFY, nsid, cns.into(), u32::from(csi) << 24)
}

pub fn log_page(id: u8, offset: u64, len: usize) -> Sqe {
    let dwords = (len / 4 - 1) as u32;
    let mut sqe = admin_command(
        opcode::GET_LOG_PAGE,
        0xFFFF_FFFF,
        u32::from(id) | dwords << 16,
        dwords >> 16,
    );
    (sqe.cdw12, sqe.cdw13) = ((offset as u32).into(), ((offset >> 32) as u32).into());
    sqe
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i / 3) as u8 ^ (i >> 9) as u8 ^ seed)
        .collect()
}
