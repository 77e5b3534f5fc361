//! NVMe/TCP connections of hosts that do as they like: valid PDUs, PDUs with altered bytes, arbitrary bytes, time, and work that ends in any
//! order. What comes back is well formed, answers each command once, and keeps to the limits; in the end nothing is left.
#![no_main]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use toroid_fuzz::pdu::{self, Digests, Parsed};
use toroid_fuzz::{Input, repeat};
use toroid_nvme::fabrics::auth::{
    AuthHash, AuthPolicy, DhGroup, HostAuth, HostStep, RECEIVE_LEN, Secret,
};
use toroid_nvme::fabrics::{
    Action, AllowedHost, Connect, ConnectData, DISCOVERY_NQN, Event, Hosts, Job, Limits, Sgl,
    Subsystem, Target,
};
use toroid_nvme::tcp::controller::Connection;
use toroid_nvme::testing::RamController;
use toroid_nvme::{
    BROADCAST_NSID, Controller, ControllerInfo, Namespace, OtherNamespace, Request, Sqe, Status,
};
use zerocopy::{FromBytes, IntoBytes};

const SUBSYSTEM: &str = "nqn.x:open";
const LOCKED: &str = "nqn.x:locked";
const HOST: &str = "nqn.x:host";
const BYTES_IN_FLIGHT: usize = 1 << 20;
const MOST_CONNECTIONS: usize = 5;
const MDTS: u32 = 16 << 10;
/// Most steps of one input: what takes longer keeps others from their turn.
const MOST_STEPS: usize = 64;

fn target(ram: &Arc<RamController>) -> Arc<Target> {
    let subsystem = |nqn: &str, hosts| {
        let behind = Arc::clone(ram);
        Subsystem {
            nqn: nqn.into(),
            storage: Arc::new(move |_: &str| Ok(Arc::clone(&behind) as Arc<dyn Controller>)),
            hosts,
        }
    };
    let locked = Hosts::Listed(vec![AllowedHost {
        secret: Some(secret(1)),
        controller_secret: Some(secret(2)),
        ..AllowedHost::new(HOST)
    }]);
    let limits = Limits {
        io_queues: 3,
        queue_entries: 8,
        in_capsule_bytes: 8192,
        bytes_in_flight: BYTES_IN_FLIGHT,
        controllers: 4,
        controllers_per_host: 3,
        handshake: Duration::from_secs(10),
        stall: Duration::from_secs(30),
        poll: Duration::ZERO,
        ..Limits::default()
    };
    let subsystems = vec![subsystem(SUBSYSTEM, Hosts::Any), subsystem(LOCKED, locked)];
    Target::new(subsystems, limits, None).expect("a target")
}

fn secret(seed: u8) -> Secret {
    Secret::new(Some(AuthHash::Sha256), &[seed; 32]).expect("a secret")
}

fn ram() -> Arc<RamController> {
    let namespace = |nsid, block_size, blocks, metadata| {
        Namespace::new(nsid, block_size, blocks, metadata).expect("a namespace")
    };
    Arc::new(RamController::with_info(ControllerInfo {
        mdts_bytes: MDTS,
        volatile_write_cache: true,
        serial: "S".into(),
        model: "M".into(),
        firmware: "F".into(),
        namespaces: vec![namespace(1, 4096, 8, 0), namespace(2, 512, 64, 64)],
        other_namespaces: vec![OtherNamespace {
            nsid: 3,
            csi: 4,
            nguid: [3; 16],
        }],
        vendor_statuses: &[],
    }))
}

/// A command that the host waits for.
struct Waiting {
    length: u32,
    /// What an R2T has asked for and has not been sent.
    asked: Option<(u16, u32, u32)>,
    /// Bytes of the data that came back.
    received: u32,
}

/// A connection with what its host knows.
struct Side {
    connection: Connection,
    digests: Digests,
    stream: Vec<u8>,
    /// Until the host breaks the rules, each command is followed.
    waiting: HashMap<u16, Waiting>,
    strict: bool,
    actions: Vec<Action>,
    cntlid: u16,
    terminated: bool,
    auth: Option<(HostAuth, Vec<u8>)>,
}

impl Side {
    fn send(&mut self, bytes: &[u8], now: Instant) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.connection.wants_input() {
                // The rest is lost, and with it the host's idea of what it has sent.
                self.strict = false;
                return;
            }
            let space = self.connection.space();
            assert!(!space.is_empty());
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            self.connection.received(count, now);
            rest = &rest[count..];
            while let Some(action) = self.connection.action() {
                self.actions.push(action);
            }
        }
    }

    fn complete(&mut self, which: usize, now: Instant) {
        if self.actions.is_empty() {
            return;
        }
        let action = self.actions.swap_remove(which % self.actions.len());
        let response = match action.job {
            Job::Io {
                controller,
                request,
                cancel,
                ..
            } => block_on(controller.submit_abortable(request, cancel)),
            Job::Flush { controller, .. } => {
                block_on(controller.submit(Request::new(Sqe::flush(0, BROADCAST_NSID))))
            }
            Job::Admin {
                controller,
                request,
            } => block_on(controller.admin(request)),
            Job::Authenticate(authentication) => authentication.run(),
        };
        self.connection.complete(action.ticket, response, now);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(action) = self.connection.action() {
            self.actions.push(action);
        }
    }

    /// Takes what the target sends, and holds it against what was asked.
    fn take(&mut self, limit: usize, now: Instant) {
        let mut taken = 0;
        for piece in self.connection.output() {
            let count = piece.len().min(limit - taken);
            self.stream.extend_from_slice(&piece[..count]);
            taken += count;
        }
        if taken > 0 {
            self.connection.sent(taken, now);
        }
        self.collect();
        for parsed in pdu::take(&mut self.stream, self.digests) {
            assert!(!self.terminated, "a PDU after a termination request");
            self.look(&parsed);
        }
    }

    fn look(&mut self, parsed: &Parsed) {
        match parsed.kind {
            pdu::IC_RESP => {
                let digests = parsed.header[3];
                self.digests = Digests {
                    header: digests & 1 != 0,
                    data: digests & 2 != 0,
                };
            }
            pdu::C2H_TERM => {
                self.terminated = true;
                assert!((1..=6).contains(&parsed.u16(0)));
                assert!(parsed.data.len() <= 128);
            }
            pdu::RESPONSE => {
                let cid = parsed.u16(12);
                let known = self.waiting.remove(&cid);
                assert!(!self.strict || known.is_some(), "nobody waits for {cid}");
                if parsed.u16(14) >> 1 == 0 && self.cntlid == 0 && parsed.u16(0) != 0 {
                    self.cntlid = parsed.u16(0);
                }
            }
            pdu::C2H_DATA => {
                let (cid, offset, length) = (parsed.u16(0), parsed.u32(4), parsed.u32(8));
                assert_eq!(length as usize, parsed.data.len());
                if self.strict {
                    let waiting = self.waiting.get_mut(&cid).expect("a command that waits");
                    assert_eq!(offset, waiting.received);
                    waiting.received += length;
                    assert!(waiting.received <= waiting.length);
                }
                if parsed.flags & pdu::SUCCESS != 0 {
                    assert!(parsed.flags & pdu::LAST != 0);
                    self.waiting.remove(&cid);
                }
            }
            pdu::R2T => {
                let asked = (parsed.u16(2), parsed.u32(4), parsed.u32(8));
                let waiting = self.waiting.get_mut(&parsed.u16(0));
                if self.strict {
                    let waiting = waiting.expect("a command that waits");
                    assert!(u64::from(asked.1) + u64::from(asked.2) <= waiting.length.into());
                    assert!(waiting.asked.replace(asked).is_none());
                } else if let Some(waiting) = waiting {
                    waiting.asked = Some(asked);
                }
            }
            other => panic!("PDU type {other} from a controller"),
        }
    }

    fn command(&mut self, mut sqe: Sqe, sgl: Sgl, data: &[u8], now: Instant) {
        sqe.dptr = sgl.to_bytes();
        self.raw_command(sqe, data, now);
    }

    fn raw_command(&mut self, sqe: Sqe, data: &[u8], now: Instant) {
        let cid = sqe.cid.get();
        let length = Sgl::parse(&sqe.dptr).map_or(0, Sgl::length);
        let fresh = Waiting {
            length,
            asked: None,
            received: 0,
        };
        if self.waiting.insert(cid, fresh).is_some() {
            self.strict = false;
        }
        let bytes = pdu::pdu(pdu::COMMAND, 0, sqe.as_bytes(), data, self.digests);
        self.send(&bytes, now);
    }

    fn connect(&mut self, connect: Connect, data: &ConnectData, now: Instant) {
        let cid = self.free();
        let sqe = connect.to_sqe(cid);
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: 1024,
        };
        self.command(sqe, sgl, data.as_bytes(), now);
    }

    fn free(&self) -> u16 {
        (0..=u16::MAX)
            .find(|cid| !self.waiting.contains_key(cid))
            .unwrap_or(0)
    }

    fn settle(&mut self, now: Instant) {
        for _ in 0..64 {
            self.take(usize::MAX, now);
            // Room that sending makes may have let others begin.
            if self.actions.is_empty() && !self.connection.has_output() {
                break;
            }
            self.complete(0, now);
        }
    }

    /// A step of a proper authentication.
    fn authenticate(&mut self, now: Instant, damage: Option<(usize, u8)>) {
        let policy = AuthPolicy {
            hashes: AuthHash::ALL.to_vec(),
            groups: vec![DhGroup::Null],
        };
        let (mut auth, message) = self.auth.take().unwrap_or_else(|| {
            let mut auth = HostAuth::new(policy, LOCKED, HOST, secret(1), Some(secret(2)), 1);
            let message = auth.start();
            (auth, message)
        });
        let mut sent = message.clone();
        if let Some((at, value)) = damage
            && let len @ 1.. = sent.len()
        {
            sent[at % len] ^= value;
        }
        let length = sent.len() as u32;
        let sqe = toroid_nvme::fabrics::auth::AuthCommand::Send { len: length }.sqe(self.free());
        self.command(sqe, Sgl::InCapsule { offset: 0, length }, &sent, now);
        self.settle(now);
        let length = RECEIVE_LEN;
        let sqe = toroid_nvme::fabrics::auth::AuthCommand::Receive { len: length }.sqe(self.free());
        let before = self.stream.len();
        self.command(sqe, Sgl::Transport { length }, &[], now);
        while !self.actions.is_empty() {
            self.complete(0, now);
        }
        let mut answer = Vec::new();
        for piece in self.connection.output() {
            answer.extend_from_slice(&piece);
        }
        let mut whole = self.stream[..before].to_vec();
        whole.extend_from_slice(&answer);
        let received = pdu::take(&mut whole, self.digests);
        let received = received.into_iter().find(|pdu| pdu.kind == pdu::C2H_DATA);
        self.take(usize::MAX, now);
        if let Some(received) = received {
            match auth.next(&received.data) {
                Ok(HostStep::Send(next) | HostStep::Done(Some(next))) => {
                    self.auth = Some((auth, next));
                }
                Ok(HostStep::Done(None)) | Err(_) => {}
            }
        }
    }
}

struct World {
    target: Arc<Target>,
    ram: Arc<RamController>,
    sides: Vec<Side>,
    now: Instant,
}

impl World {
    fn open(&mut self) {
        if self.sides.len() >= MOST_CONNECTIONS {
            self.sides.remove(0);
        }
        let local = ([127, 0, 0, 1], 4420).into();
        let connection =
            Connection::new(Arc::clone(&self.target), local, Arc::new(|| {}), self.now);
        self.sides.push(Side {
            connection,
            digests: Digests::default(),
            stream: Vec::new(),
            waiting: HashMap::new(),
            strict: true,
            actions: Vec::new(),
            cntlid: 0,
            terminated: false,
            auth: None,
        });
    }

    /// A controller with an I/O queue, by the book; or one that waits for authentication.
    fn handshake(&mut self, choice: u8) {
        let now = self.now;
        let subsystem = [DISCOVERY_NQN, LOCKED, SUBSYSTEM, SUBSYSTEM][usize::from(choice >> 2 & 3)];
        let digests = Digests {
            header: choice & 1 != 0,
            data: choice & 2 != 0,
        };
        let mut cntlid = 0xFFFF;
        for qid in 0..=u16::from(subsystem == SUBSYSTEM) {
            self.open();
            let Some(side) = self.sides.last_mut() else {
                return;
            };
            let alignment = if choice & 0x10 != 0 { 3 } else { 0 };
            side.send(&pdu::initialize(pdu::IC_REQ, digests, alignment, 0), now);
            side.take(usize::MAX, now);
            let connect = Connect {
                qid,
                sqsize: 7,
                cattr: if choice & 0x20 != 0 { 4 } else { 0 },
                kato: if choice & 0x40 != 0 { 5000 } else { 0 },
            };
            let data = ConnectData::new([1; 16], cntlid, subsystem, HOST);
            side.connect(connect, &data, now);
            side.take(usize::MAX, now);
            if qid == 0 {
                cntlid = side.cntlid;
                if subsystem == LOCKED {
                    continue;
                }
                let mut enable = Sqe::default();
                (enable.opcode, enable.cid) = (0x7F, side.free().into());
                (enable.cdw11, enable.cdw12) = (0x14.into(), 0x0046_0001.into());
                side.command(enable, Sgl::Transport { length: 0 }, &[], now);
                let mut queues = Sqe::default();
                (queues.opcode, queues.cid) = (9, side.free().into());
                (queues.cdw10, queues.cdw11) = (7.into(), 0x0002_0002.into());
                side.command(queues, Sgl::Transport { length: 0 }, &[], now);
                side.take(usize::MAX, now);
            }
        }
    }

    fn step(&mut self, input: &mut Input) {
        let operation = input.u8();
        let choice = input.u8();
        let now = self.now;
        match operation % 20 {
            0 => return self.open(),
            1 => return self.handshake(choice),
            2 => {
                // Up to 2 minutes, mostly less.
                self.now += Duration::from_millis(u64::from(choice) * u64::from(choice) * 2);
                for side in &mut self.sides {
                    side.connection.tick(self.now);
                    side.collect();
                }
                return;
            }
            3 => {
                let event = [
                    Event::NamespaceChanged {
                        nsid: u32::from(choice) + 1,
                    },
                    Event::DiscoveryChanged,
                    Event::ReadOnly,
                ][usize::from(choice % 3)];
                self.target.notify(None, event);
                return;
            }
            4 => {
                self.ram
                    .fail_nth(u64::from(choice % 4) + 1, Status::WRITE_FAULT);
                return;
            }
            5 if choice == 7 => return self.target.close(),
            _ => {}
        }
        let count = self.sides.len();
        let index = usize::from(choice) % count.max(1);
        let Some(side) = self.sides.get_mut(index) else {
            return;
        };
        let choice = choice / count.max(1) as u8;
        match operation % 20 {
            5 => {
                let digests = Digests {
                    header: choice & 1 != 0,
                    data: choice & 2 != 0,
                };
                let bytes = pdu::initialize(pdu::IC_REQ, digests, choice >> 2, 0);
                side.send(&bytes, now);
            }
            6 => {
                let connect = Connect {
                    qid: u16::from(choice & 7),
                    sqsize: u16::from(input.u8() & 15),
                    cattr: choice >> 4,
                    kato: input.u16().into(),
                };
                let mut data = ConnectData::new(
                    [choice >> 7; 16],
                    match choice & 8 {
                        0 => 0xFFFF,
                        _ => u16::from(input.u8() & 7),
                    },
                    [SUBSYSTEM, LOCKED, DISCOVERY_NQN, "nqn.y"][usize::from(input.u8() & 3)],
                    [HOST, "nqn.z"][usize::from(input.u8() & 1)],
                );
                let at = input.u16();
                if at & 0xC000 == 0xC000 {
                    data.as_mut_bytes()[usize::from(at & 1023)] ^= input.u8();
                }
                side.connect(connect, &data, now);
            }
            // Commands.
            7..=9 => {
                let mut sqe = Sqe::read_from_bytes(&input.array::<64>()).expect("64 bytes");
                let admin = [
                    0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F, 0x85, 0x02, 0x06, 0x0C,
                ];
                let io = [0, 1, 2, 5, 8, 9];
                sqe.opcode = match choice & 3 {
                    0 | 1 => io[usize::from(sqe.opcode) % io.len()],
                    2 => admin[usize::from(sqe.opcode) % admin.len()],
                    _ => sqe.opcode,
                };
                sqe.cid = match choice & 4 {
                    0 => side.free(),
                    _ => sqe.cid.get() & 15,
                }
                .into();
                sqe.nsid = (sqe.nsid.get() & 3).into();
                if choice & 8 == 0 {
                    // Within the namespaces, without protection information.
                    sqe.flags = 0x40;
                    sqe.cdw10 = (sqe.cdw10.get() & 0x0003_003F).into();
                    sqe.cdw11 = (sqe.cdw11.get() & 0x0003_0003).into();
                    sqe.cdw12 = (sqe.cdw12.get() & 0x1F).into();
                    sqe.cdw13 = 0.into();
                }
                let blocks = (sqe.cdw12.get() & 0xFFFF) + 1;
                let block = if sqe.nsid.get() == 2 { 576 } else { 4096 };
                let length = match choice >> 4 & 3 {
                    0 | 1 => blocks.saturating_mul(block).min(1 << 15),
                    2 => 4096,
                    _ => input.u32() & 0x7FFF,
                };
                match choice >> 6 {
                    0 | 1 => side.command(sqe, Sgl::Transport { length }, &[], now),
                    2 => {
                        let data = repeat(&sqe.dptr, length.min(9000) as usize);
                        let length = data.len() as u32;
                        side.command(sqe, Sgl::InCapsule { offset: 0, length }, &data, now);
                    }
                    _ => {
                        let data = repeat(&sqe.dptr, usize::from(input.u16()));
                        side.raw_command(sqe, &data, now);
                    }
                }
            }
            // Data that an R2T asked for; all of it or a part, or with a field that is wrong.
            10 | 11 => {
                let mut asked: Vec<_> = side.waiting.iter().collect();
                asked.retain(|(_, waiting)| waiting.asked.is_some());
                asked.sort_unstable_by_key(|(cid, _)| **cid);
                let mut chosen = match asked.len() {
                    0 => (input.u16(), (input.u16(), 0, input.u16().into())),
                    len => {
                        let (cid, waiting) = asked[usize::from(choice) % len];
                        (*cid, waiting.asked.unwrap_or_default())
                    }
                };
                let known = !asked.is_empty();
                let part = match choice & 0x20 {
                    0 => chosen.1.2,
                    _ => (u32::from(input.u16()) & !3).clamp(1, chosen.1.2.max(1)),
                }
                .min(MDTS * 2);
                let mut flags = if part == chosen.1.2 { pdu::LAST } else { 0 };
                let mut length = part;
                let mut good = known;
                match choice >> 6 {
                    0 | 1 => {}
                    2 => {
                        good = false;
                        match input.u8() % 6 {
                            0 => chosen.0 = input.u16() & 15,
                            1 => chosen.1.0 ^= input.u16(),
                            2 => chosen.1.1 = input.u32(),
                            3 => length = input.u32(),
                            4 => flags ^= pdu::LAST,
                            _ => chosen.1.1 = chosen.1.1.wrapping_sub(4),
                        }
                    }
                    // Damaged data fail their command, not the connection.
                    _ => good &= side.digests.data,
                }
                side.strict &= good;
                let data = repeat(&[choice, 7], part as usize);
                let (cid, (tag, offset, _)) = chosen;
                let mut bytes = pdu::transfer(
                    pdu::H2C_DATA,
                    flags,
                    (cid, tag),
                    (offset, length),
                    &data,
                    side.digests,
                );
                if choice >> 6 == 3
                    && let Some(last) = bytes.last_mut()
                {
                    *last ^= 1;
                }
                if let Some(waiting) = side.waiting.get_mut(&cid) {
                    waiting.asked = match waiting.asked {
                        Some((tag, offset, length)) if length > part => {
                            Some((tag, offset + part, length - part))
                        }
                        _ => None,
                    };
                }
                side.send(&bytes, now);
            }
            12 => {
                side.strict = false;
                let count = usize::from(input.u8());
                let bytes = input.bytes(count);
                side.send(bytes, now);
            }
            // A PDU with bytes altered; in pieces.
            13 => {
                side.strict = false;
                let kind = input.u8() % 12;
                let len = [120, 120, 16, 16, 64, 16, 16, 16, 16, 16, 16, 16][usize::from(kind)];
                let header = repeat(input.bytes(usize::from(choice) & 31), len);
                let data = repeat(&[choice], usize::from(input.u8()) * 4);
                let mut bytes = pdu::pdu(kind, 0, &header, &data, side.digests);
                for _ in 0..input.u8() & 3 {
                    let at = usize::from(input.u8()) % bytes.len().min(80);
                    bytes[at] ^= input.u8();
                }
                let cut = usize::from(input.u8()) % bytes.len();
                side.send(&bytes[..cut], now);
                side.send(&bytes[cut..], now);
            }
            14 => {
                for _ in 0..=choice & 7 {
                    side.complete(usize::from(choice), now);
                }
            }
            15 => side.take(usize::from(input.u16()), now),
            16 => side.settle(now),
            17 => {
                let damage = (choice & 3 == 3).then(|| (usize::from(input.u8()), input.u8()));
                side.authenticate(now, damage);
            }
            18 => {
                if choice & 1 == 0 {
                    side.connection.received(0, now);
                } else {
                    side.connection.broken();
                }
                assert!(side.connection.is_finished());
                self.sides.remove(index);
            }
            // Properties: reset, shutdown, and their values.
            _ => {
                let mut sqe = Sqe::default();
                (sqe.opcode, sqe.cid) = (0x7F, side.free().into());
                sqe.nsid = [0, 4, 8, 0][usize::from(choice & 3)].into();
                sqe.cdw10 = u32::from(choice >> 2 & 1).into();
                sqe.cdw11 = [0x14, 0, 8, 0x1C][usize::from(choice >> 3 & 3)].into();
                sqe.cdw12 =
                    [0x0046_0001, 0, 0x4001, 0x0046_0061][usize::from(choice >> 5 & 3)].into();
                side.command(sqe, Sgl::Transport { length: 0 }, &[], now);
            }
        }
        let Some(side) = self.sides.get_mut(index) else {
            return;
        };
        // One command more than the limit at most, and what answers without data take.
        let most = BYTES_IN_FLIGHT + MDTS as usize * 9 / 8 + (2 << 20);
        assert!(side.connection.bytes_held() <= most);
        assert!(side.connection.in_flight() <= 32);
        assert!(!side.connection.has_action());
        if side.connection.is_finished() {
            self.sides.remove(index);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let ram = ram();
    let mut world = World {
        target: target(&ram),
        ram,
        sides: Vec::new(),
        now: Instant::now(),
    };
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    let now = world.now;
    for side in &mut world.sides {
        side.settle(now);
        if side.strict && !side.connection.is_finished() {
            // What is left waits for data of the host or for an event.
            let idle = side.connection.bytes_held();
            let asked = side.waiting.values().filter(|w| w.asked.is_some());
            assert!(
                idle == 0 || asked.count() > 0,
                "{idle} bytes are held for nothing"
            );
            assert_eq!(side.connection.in_flight(), side.waiting.len());
        }
    }
    world.sides.clear();
    let statistics = world.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers), (0, 0));
});
