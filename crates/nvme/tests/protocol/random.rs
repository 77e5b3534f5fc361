//! Hosts that do this and that, rightly and wrongly, in any order.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use toroid_nvme::admin::opcode;
use toroid_nvme::fabrics::{Event, Ticket};
use toroid_nvme::tcp::Digests;
use toroid_nvme::{Sqe, Status};

use crate::harness::{Peer, World, admin_command, features, identify, pattern};
use crate::pdu::{self, NONE};

const BLOCKS: usize = 32;
const BLOCK: usize = 4096;

#[derive(Clone, Debug)]
enum Step {
    Read {
        slba: usize,
        blocks: usize,
    },
    Write {
        slba: usize,
        blocks: usize,
        seed: u8,
        capsule: bool,
    },
    Compare {
        slba: usize,
        seed: u8,
    },
    Flush,
    /// Answers the R2T of some write, wholly or with a first part.
    Give {
        which: usize,
        part: bool,
        damaged: bool,
    },
    Complete {
        which: usize,
    },
    Take,
    /// On the admin queue.
    Identify,
    EventRequest,
    Event,
    Fault,
    Wrong(Wrong),
}

/// What ends the I/O queue's connection.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Duplicate,
    Tag,
    Offset,
    Unasked,
    Initialize,
    Garbage(u8),
    Truncated,
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BLOCKS, 1..9usize).prop_map(|(slba, blocks)| (slba, blocks.min(BLOCKS - slba)));
    let wrong = prop_oneof![
        Just(Wrong::Duplicate),
        Just(Wrong::Tag),
        Just(Wrong::Offset),
        Just(Wrong::Unasked),
        Just(Wrong::Initialize),
        (10..=255u8).prop_map(Wrong::Garbage),
        Just(Wrong::Truncated),
    ];
    prop_oneof![
        4 => range.clone().prop_map(|(slba, blocks)| Step::Read { slba, blocks }),
        6 => (range, any::<u8>(), any::<bool>()).prop_map(|((slba, blocks), seed, capsule)| Step::Write { slba, blocks, seed, capsule }),
        1 => (0..BLOCKS, any::<u8>()).prop_map(|(slba, seed)| Step::Compare { slba, seed }),
        1 => Just(Step::Flush),
        8 => (0..8usize, any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(which, part, damaged)| Step::Give { which, part, damaged }),
        8 => (0..8usize).prop_map(|which| Step::Complete { which }),
        4 => Just(Step::Take),
        1 => Just(Step::Identify),
        1 => Just(Step::EventRequest),
        1 => Just(Step::Event),
        1 => Just(Step::Fault),
        1 => wrong.prop_map(Step::Wrong),
    ]
}

/// A command that the host waits for.
#[derive(Clone, Debug)]
struct Waiting {
    sqe: Sqe,
    /// To the controller.
    data: Vec<u8>,
    asked: bool,
    given: usize,
    damaged: bool,
    /// What its completion must bring, once it is executed.
    expected: Option<(Status, Vec<u8>)>,
    received: Vec<u8>,
}

struct Run {
    world: World,
    admin: Peer,
    admin_waiting: HashMap<u16, bool>,
    io: Peer,
    cntlid: u16,
    digests: Digests,
    waiting: HashMap<u16, Waiting>,
    medium: Vec<u8>,
    fault: bool,
}

impl Run {
    fn new(digests: Digests) -> Run {
        let world = World::small();
        let (mut admin, cntlid) = world.enabled(digests, 0);
        admin.status(features(0x0B, 1 << 8), &[], 0);
        let io = world.queue(digests, cntlid, 1);
        Run {
            world,
            admin,
            admin_waiting: HashMap::new(),
            io,
            cntlid,
            digests,
            waiting: HashMap::new(),
            medium: vec![0; BLOCKS * BLOCK],
            fault: false,
        }
    }

    fn submit(&mut self, sqe: Sqe, data: Vec<u8>, capsule: bool, room: usize) {
        if self.waiting.len() >= 8 {
            return;
        }
        let cid = match capsule {
            true => self.io.start(sqe, &data, 0),
            false => self.io.start(sqe, &[], room.max(data.len())),
        };
        let waiting = Waiting {
            sqe,
            given: if capsule { data.len() } else { 0 },
            data,
            asked: false,
            damaged: false,
            expected: None,
            received: Vec::new(),
        };
        assert!(self.waiting.insert(cid, waiting).is_none());
    }

    /// Some write whose data were asked for.
    fn asked(&self, which: usize) -> Option<u16> {
        let waiting = self.waiting.iter();
        let mut all: Vec<u16> = waiting
            .filter(|(_, waiting)| waiting.asked)
            .map(|(cid, _)| *cid)
            .collect();
        all.sort_unstable();
        all.get(which % all.len().max(1)).copied()
    }

    fn give(&mut self, which: usize, part: bool, damaged: bool) {
        let Some(cid) = self.asked(which) else {
            return;
        };
        let digests = self.digests;
        let waiting = self.waiting.get_mut(&cid).unwrap();
        let left = waiting.data.len() - waiting.given;
        let len = if part && left > BLOCK { BLOCK } else { left };
        let chunk = &waiting.data[waiting.given..waiting.given + len];
        let flags = if len == left { pdu::LAST } else { 0 };
        let range = (waiting.given as u32, len as u32);
        let kind = (pdu::H2C_DATA, flags);
        let mut bytes = pdu::transfer(kind, (cid, cid), range, chunk, digests);
        if damaged && digests.data {
            *bytes.last_mut().unwrap() ^= 1;
            waiting.damaged = true;
        }
        waiting.given += len;
        waiting.asked = len < left;
        if waiting.damaged && len == left {
            waiting.expected = Some((Status::TRANSIENT_TRANSPORT_ERROR, Vec::new()));
        }
        self.io.send(&bytes);
    }

    /// Executes on the model what the target is about to execute.
    fn complete(&mut self, which: usize) {
        if self.io.actions.is_empty() {
            return;
        }
        let which = which % self.io.actions.len();
        let Ticket::Command(cid) = self.io.actions[which].ticket else {
            panic!("{:?}", self.io.actions[which].ticket);
        };
        let waiting = self.waiting.get_mut(&cid).expect("a command that waits");
        assert!(waiting.expected.is_none(), "executed twice");
        assert_eq!(waiting.given, waiting.data.len(), "executed too early");
        let sqe = waiting.sqe;
        let at = sqe.cdw10.get() as usize * BLOCK;
        let len = ((sqe.cdw12.get() & 0xFFFF) as usize + 1) * BLOCK;
        let expected = if std::mem::take(&mut self.fault) {
            (Status::WRITE_FAULT, Vec::new())
        } else {
            match sqe.opcode {
                1 => {
                    self.medium[at..at + len].copy_from_slice(&waiting.data);
                    (Status::SUCCESS, Vec::new())
                }
                2 => (Status::SUCCESS, self.medium[at..at + len].to_vec()),
                5 if self.medium[at..at + len] != waiting.data => {
                    (Status::COMPARE_FAILURE, Vec::new())
                }
                _ => (Status::SUCCESS, Vec::new()),
            }
        };
        waiting.expected = Some(expected);
        self.io.complete(which);
    }

    fn take(&mut self) {
        for reply in self.io.replies() {
            match reply.kind {
                pdu::R2T => {
                    let waiting = self.waiting.get_mut(&reply.u16(0)).unwrap();
                    assert_eq!((reply.u32(4), reply.u32(8)), (0, waiting.data.len() as u32));
                    assert!(!waiting.asked && waiting.given == 0);
                    waiting.asked = true;
                }
                pdu::C2H_DATA => {
                    let waiting = self.waiting.get_mut(&reply.u16(0)).unwrap();
                    assert_eq!(reply.u32(4) as usize, waiting.received.len());
                    waiting.received.extend_from_slice(&reply.data);
                }
                _ => {
                    let cqe = reply.cqe();
                    let waiting = self.waiting.remove(&cqe.cid.get());
                    let waiting = waiting.expect("a command that waits");
                    let (status, data) = waiting.expected.expect("a command that was executed");
                    assert_eq!(cqe.status(), status);
                    assert!(waiting.received == data);
                }
            }
        }
    }

    fn admin(&mut self) {
        for reply in self.admin.settle() {
            let (cid, last) = match reply.kind {
                pdu::C2H_DATA => (reply.u16(0), false),
                _ => (reply.cqe().cid.get(), true),
            };
            assert!(self.admin_waiting.contains_key(&cid));
            if last {
                self.admin_waiting.remove(&cid);
            }
        }
    }

    fn wrong(&mut self, wrong: Wrong) {
        let digests = self.digests;
        let asked = self.asked(0);
        let block = [0; BLOCK];
        let bytes = match (wrong, asked) {
            (Wrong::Duplicate, _) => {
                let in_flight = |(cid, waiting): (&u16, &Waiting)| match waiting.expected {
                    None => Some(*cid),
                    Some(_) => None,
                };
                let Some(cid) = self.waiting.iter().find_map(in_flight) else {
                    return;
                };
                pdu::command(&Sqe::flush(cid, 1), &[], digests)
            }
            (Wrong::Tag, Some(cid)) => pdu::host_data(cid, cid ^ 1, &block, digests),
            (Wrong::Offset, Some(cid)) => {
                let given = self.waiting[&cid].given as u32;
                let range = (given + 4, 4096);
                pdu::transfer((pdu::H2C_DATA, 0), (cid, cid), range, &block, digests)
            }
            (Wrong::Initialize, _) => pdu::initialize(pdu::IC_REQ, NONE, 0),
            (Wrong::Garbage(kind), _) => vec![kind; 40],
            (Wrong::Truncated, _) => {
                let mut bytes = pdu::command(&Sqe::flush(9, 1), &[], digests);
                bytes[4] -= 1;
                bytes
            }
            _ => pdu::host_data(0xFFF0, 0xFFF0, &block, digests),
        };
        self.io.send(&bytes);
        let replies = self.io.replies();
        let last = replies.last().expect("a termination request");
        assert!((1..=6).contains(&last.fatal().0));
        assert!(self.io.connection.is_finished());
        // What is executed now has no answer, and what is not executed no effect.
        let aborted = std::mem::take(&mut self.io.actions);
        drop(aborted);
        self.waiting.clear();
        let (digests, cntlid) = (self.digests, self.cntlid);
        self.io.connection.broken();
        let fresh = self.world.initialized(digests);
        self.io = fresh;
        let cqe = self
            .io
            .connect(crate::harness::connect(1, 0), &crate::harness::data(cntlid));
        assert_eq!(cqe.status(), Status::SUCCESS);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Read { slba, blocks } => {
                let sqe = Sqe::read(0, 1, slba as u64, (blocks - 1) as u16);
                self.submit(sqe, Vec::new(), false, blocks * BLOCK);
            }
            Step::Write {
                slba,
                blocks,
                seed,
                capsule,
            } => {
                let sqe = Sqe::write(0, 1, slba as u64, (blocks - 1) as u16);
                let capsule = capsule && blocks <= 2;
                self.submit(sqe, pattern(blocks * BLOCK, seed), capsule, 0);
            }
            Step::Compare { slba, seed } => {
                let sqe = Sqe::compare(0, 1, slba as u64, 0);
                self.submit(sqe, pattern(BLOCK, seed), true, 0);
            }
            Step::Flush => self.submit(Sqe::flush(0, 1), Vec::new(), false, 0),
            Step::Give {
                which,
                part,
                damaged,
            } => self.give(which, part, damaged),
            Step::Complete { which } => self.complete(which),
            Step::Take => self.take(),
            Step::Identify => {
                let cid = self.admin.start(identify(1, 0, 0), &[], 4096);
                self.admin_waiting.insert(cid, false);
                self.admin();
            }
            Step::EventRequest => {
                let request = admin_command(opcode::ASYNC_EVENT, 0, 0, 0);
                let cid = self.admin.start(request, &[], 0);
                self.admin_waiting.insert(cid, true);
                self.admin();
            }
            Step::Event => {
                let event = Event::NamespaceChanged { nsid: 1 };
                self.world.target.notify(None, event);
                self.admin.wait(Duration::ZERO);
                self.admin();
            }
            Step::Fault => {
                self.world.ram.fail_nth(1, Status::WRITE_FAULT);
                self.fault = true;
            }
            Step::Wrong(wrong) => self.wrong(wrong),
        }
        let held = self.io.connection.bytes_held();
        assert!(held <= (1 << 20) + 9 * BLOCK);
        assert_eq!(self.admin.connection.bytes_held(), 0);
    }

    fn end(mut self) {
        for _ in 0..64 {
            self.take();
            self.give(0, false, false);
            self.complete(0);
        }
        self.take();
        assert!(self.waiting.is_empty(), "{:?}", self.waiting.keys());
        assert_eq!(self.io.connection.bytes_held(), 0);
        assert_eq!(self.io.connection.in_flight(), 0);
        // Event requests stay.
        assert!(self.admin_waiting.values().all(|event| *event));
        assert_eq!(self.admin.connection.in_flight(), self.admin_waiting.len());
        drop((self.io, self.admin));
        let statistics = self.world.target.statistics();
        assert_eq!((statistics.connections, statistics.controllers), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_command_is_answered_once_with_what_it_asked_for(
        steps in prop::collection::vec(step(), 1..120),
        header: bool,
        data: bool,
    ) {
        let mut run = Run::new(Digests { header, data });
        for step in steps {
            run.step(step);
        }
        run.end();
    }
}
