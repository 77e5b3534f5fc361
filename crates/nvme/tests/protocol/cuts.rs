//! A conversation of initiator and target that is cut at every PDU boundary, and inside.

use toroid_nvme::admin::{cns, opcode};
use toroid_nvme::fabrics::{CATTR_NO_FLOW_CONTROL, Connect, Job, cc, property};
use toroid_nvme::log::feature;
use toroid_nvme::tcp::{Digests, host};
use toroid_nvme::{Response, Sqe};
use toroid_task::CancelToken;
use zerocopy::IntoBytes;

use crate::harness::{Peer, World, admin_command, data, fabrics, features, identify, pattern};
use crate::pdu::{BOTH, NONE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToTarget,
    ToHost,
}

/// Where the connection of a queue (0 or 1) breaks: so many bytes of one direction arrive.
#[derive(Clone, Copy, Debug)]
struct Cut {
    queue: usize,
    direction: Direction,
    bytes: usize,
}

/// A connection with both its ends.
struct Link {
    host: host::Connection,
    /// `None` when it is lost, and the target has let it go.
    target: Option<Peer>,
    queue: usize,
    cut: Option<Cut>,
    /// Bytes that went to the target and to the host.
    passed: [usize; 2],
    /// Everything that went each way.
    streams: [Vec<u8>; 2],
    submitted: usize,
    completed: usize,
    /// Of commands that were under way when the connection was lost.
    aborts: Vec<CancelToken>,
}

impl Link {
    fn new(world: &World, digests: Digests, queue: usize, cut: Option<Cut>) -> Link {
        Link {
            host: host::Connection::new(digests, 8),
            target: Some(world.open()),
            queue,
            cut,
            passed: [0; 2],
            streams: [Vec::new(), Vec::new()],
            submitted: 0,
            completed: 0,
            aborts: Vec::new(),
        }
    }

    /// Of `bytes` as many as arrive; says whether the connection breaks.
    fn arriving(&mut self, direction: Direction, mut bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let way = direction as usize;
        let mut broken = false;
        if let Some(cut) = self.cut
            && (cut.queue, cut.direction) == (self.queue, direction)
        {
            let left = cut.bytes - self.passed[way];
            broken = bytes.len() >= left;
            bytes.truncate(left);
        }
        self.passed[way] += bytes.len();
        self.streams[way].extend_from_slice(&bytes);
        (bytes, broken)
    }

    /// Moves bytes both ways and lets the target work until nothing moves.
    fn pump(&mut self) {
        loop {
            let Some(target) = &mut self.target else {
                return;
            };
            let mut bytes = Vec::new();
            for piece in self.host.output() {
                bytes.extend_from_slice(&piece);
            }
            self.host.sent(bytes.len());
            let to_target = bytes.len();
            let mut answer = Vec::new();
            for piece in target.connection.output() {
                answer.extend_from_slice(&piece);
            }
            target.connection.sent(answer.len(), target.now);
            target.collect();
            let to_host = answer.len();
            let (bytes, first) = self.arriving(Direction::ToTarget, bytes);
            let (answer, second) = self.arriving(Direction::ToHost, answer);
            if let Some(target) = &mut self.target {
                target.send(&bytes);
            }
            for chunk in answer.chunks(1000) {
                self.host.space()[..chunk.len()].copy_from_slice(chunk);
                self.host.received(chunk.len());
            }
            if first || second {
                self.lose();
                return;
            }
            let Some(target) = &mut self.target else {
                return;
            };
            if to_target + to_host == 0 {
                if target.actions.is_empty() {
                    break;
                }
                target.complete(0);
            }
        }
        if self
            .target
            .as_ref()
            .is_some_and(|target| target.connection.is_finished())
        {
            self.lose();
        }
    }

    /// Both ends see the end of the stream; the target's shell drops what is under way with the connection.
    fn lose(&mut self) {
        if let Some(mut target) = self.target.take() {
            target.connection.received(0, target.now);
            for action in &target.actions {
                if let Job::Io { cancel, .. } = &action.job {
                    self.aborts.push(cancel.clone());
                }
            }
            assert!(target.connection.is_finished());
        }
        self.host.received(0);
    }

    /// Executes a command, if the connection lasts that long.
    fn call(&mut self, sqe: Sqe, data: &[u8], room: usize) -> Option<Response> {
        if !self.host.has_room() {
            // The initialization has not come through.
            self.pump();
        }
        if !self.host.has_room() {
            return None;
        }
        let cid = self.host.submit(sqe, data.to_vec(), room);
        self.submitted += 1;
        self.pump();
        let (completed, response) = self.host.completed()?;
        assert_eq!(completed, cid);
        self.completed += 1;
        if !response.cqe.status().is_success() {
            // Only because the admin queue was lost meanwhile.
            assert_eq!(self.cut.map(|cut| cut.queue), Some(0), "{:?}", response.cqe);
            return None;
        }
        Some(response)
    }
}

/// What of the conversation the host knows to be done.
#[derive(Default, PartialEq, Eq, Debug)]
struct Done {
    capsule: bool,
    transfer: bool,
    flushed: bool,
    disconnected: bool,
}

const FIRST: usize = 4096;
const SECOND: usize = 160 << 10;

fn talk(admin: &mut Link, io: &mut Option<Link>, open: impl Fn() -> Link) -> Option<Done> {
    let mut done = Done::default();
    let connect = |qid, cattr| Connect {
        qid,
        sqsize: 7,
        cattr,
        kato: 10_000,
    };
    let connected = admin.call(connect(0, 0).to_sqe(0), data(0xFFFF).as_bytes(), 0)?;
    let cntlid = connected.cqe.dw0.get() as u16;
    let mut enable = fabrics(0);
    (enable.cdw11, enable.cdw12) = (property::CC.into(), (cc::EN | cc::ENTRY_SIZES).into());
    admin.call(enable, &[], 0)?;
    admin.call(features(feature::QUEUES, 0), &[], 0)?;
    let identified = admin.call(identify(cns::CONTROLLER, 0, 0), &[], 4096)?;
    assert_eq!(identified.data.len(), 4096);
    let io = io.insert(open());
    let connect = connect(1, CATTR_NO_FLOW_CONTROL).to_sqe(0);
    io.call(connect, data(cntlid).as_bytes(), 0)?;
    let mut run = || {
        io.call(Sqe::write(0, 1, 0, 0), &pattern(FIRST, 1), 0)?;
        done.capsule = true;
        io.call(Sqe::write(0, 1, 16, 39), &pattern(SECOND, 2), 0)?;
        done.transfer = true;
        let read = io.call(Sqe::read(0, 1, 16, 31), &[], 128 << 10)?;
        assert!(read.data == pattern(SECOND, 2)[..128 << 10]);
        io.call(Sqe::flush(0, 1), &[], 0)?;
        done.flushed = true;
        io.call(fabrics(8), &[], 0)?;
        done.disconnected = true;
        admin.call(admin_command(opcode::KEEP_ALIVE, 0, 0, 0), &[], 0)
    };
    run();
    Some(done)
}

/// The conversation with a cut; gives the streams of both queues where there was none.
fn conversation(digests: Digests, cut: Option<Cut>) -> Vec<[Vec<u8>; 2]> {
    let world = World::small();
    let mut admin = Link::new(&world, digests, 0, cut);
    let mut io = None;
    let done = talk(&mut admin, &mut io, || Link::new(&world, digests, 1, cut));
    let done = done.unwrap_or_default();
    let links: Vec<&Link> = [&admin].into_iter().chain(&io).collect();
    for link in &links {
        // Whatever was under way is known to be: the shell fails it.
        assert_eq!(link.host.in_flight(), link.submitted - link.completed);
        let lost = cut.is_some_and(|cut| cut.queue == link.queue);
        if lost || link.host.in_flight() > 0 {
            assert!(link.host.error().is_some(), "{cut:?}");
        }
        assert!(link.aborts.iter().all(CancelToken::is_cancelled));
    }
    if cut.is_none() {
        let all = Done {
            capsule: true,
            transfer: true,
            flushed: true,
            disconnected: true,
        };
        assert_eq!(done, all);
    }
    let streams = links.iter().map(|link| link.streams.clone()).collect();
    // The admin queue takes the I/O queue with it.
    let admin_lost = admin.target.is_none();
    if admin_lost {
        assert_eq!(world.target.statistics().controllers, 0, "{cut:?}");
        if let Some(Link {
            target: Some(target),
            ..
        }) = &mut io
        {
            target.connection.tick(target.now);
            let refused = target.connection.peer().is_none();
            assert!(target.connection.is_finished() || refused);
        }
    }
    drop((admin, io));
    let statistics = world.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers), (0, 0));
    // What was acknowledged is there; what was flushed, after a loss of power too.
    if done.flushed {
        assert_eq!(world.ram.unflushed_blocks(), 0);
        world.ram.crash();
    }
    let read = |slba, len: usize| {
        let blocks = (len / 4096) as u64;
        let read = toroid_nvme::read_blocks(&*world.ram, 1, slba, blocks);
        futures::executor::block_on(read).unwrap().data
    };
    if done.capsule {
        assert!(read(0, FIRST) == pattern(FIRST, 1));
    }
    if done.transfer {
        assert!(read(16, SECOND) == pattern(SECOND, 2));
    } else {
        // Nothing of it or all of it: the command goes to the storage whole.
        let found = read(16, SECOND);
        assert!(found == pattern(SECOND, 2) || found == vec![0; SECOND]);
    }
    streams
}

/// Ends of the PDUs in a stream.
fn boundaries(stream: &[u8]) -> Vec<usize> {
    let mut all = vec![0];
    let mut at = 0;
    while at < stream.len() {
        at += u32::from_le_bytes(stream[at + 4..at + 8].try_into().unwrap()) as usize;
        all.push(at);
    }
    assert_eq!(at, stream.len());
    all
}

#[test]
fn cuts_everywhere() {
    for digests in [NONE, BOTH] {
        let streams = conversation(digests, None);
        assert_eq!(streams.len(), 2);
        let mut cuts = 0;
        for (queue, ways) in streams.iter().enumerate() {
            for (direction, stream) in [Direction::ToTarget, Direction::ToHost].iter().zip(ways) {
                let mut places = Vec::new();
                for pair in boundaries(stream).windows(2) {
                    let (start, end) = (pair[0], pair[1]);
                    // At the boundary, around it, in the header, behind it, in the data.
                    let inside = [
                        1,
                        7,
                        8,
                        23,
                        24,
                        28,
                        72,
                        76,
                        (end - start) / 2,
                        end - start - 1,
                    ];
                    places.push(start);
                    places.extend(
                        inside
                            .map(|inside| start + inside)
                            .iter()
                            .filter(|at| **at < end),
                    );
                }
                // And anywhere.
                let mut state = 0x2545_F491_4F6C_DD1Du64 ^ stream.len() as u64;
                for _ in 0..24 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    places.push(state as usize % stream.len());
                }
                places.push(stream.len());
                places.sort_unstable();
                places.dedup();
                for bytes in places {
                    let direction = *direction;
                    conversation(
                        digests,
                        Some(Cut {
                            queue,
                            direction,
                            bytes,
                        }),
                    );
                    cuts += 1;
                }
            }
        }
        eprintln!("{cuts} cuts");
        assert!(cuts > 300);
    }
}
