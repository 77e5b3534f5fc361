//! Every command on its way to a drive: counted and timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt};
use toroid_drive::bridge::Effect;
use toroid_nvme::{
    Controller, ControllerInfo, ErrorInformation, Health, Request, Response, Status,
    StatusCodeType, opcode,
};
use toroid_task::CancelToken;

/// Names of the commands that are told apart; the last one for all others.
pub const COMMANDS: [&str; 7] = [
    "read",
    "write",
    "flush",
    "compare",
    "write_zeroes",
    "dataset_management",
    "other",
];

/// Names of the classes of status.
pub const STATUSES: [&str; 7] = [
    "success", "generic", "command", "media", "path", "vendor", "reserved",
];

/// Kinds of command whose time is told apart.
pub const KINDS: [&str; 4] = ["read", "write", "compute", "other"];

/// Upper bounds of the time histograms' buckets, in microseconds.
pub const BOUNDS_US: [u64; 22] = [
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
];

/// Copies of the counters. Threads count in different ones, so that they do not fight for a cache line.
const STRIPES: usize = 16;

/// Times of one kind of command.
#[derive(Debug)]
struct Times {
    /// The last one: longer than the largest bound.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    begun: AtomicU64,
    ended: AtomicU64,
    abandoned: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    completed: [[AtomicU64; STATUSES.len()]; COMMANDS.len()],
    times: [Times; KINDS.len()],
}

impl Stripe {
    fn new() -> Stripe {
        Stripe {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            completed: [const { [const { AtomicU64::new(0) }; _] }; _],
            times: [const {
                Times {
                    buckets: [const { AtomicU64::new(0) }; _],
                    sum_ns: AtomicU64::new(0),
                }
            }; _],
        }
    }
}

/// What commands did, and how long they took.
#[derive(Debug)]
pub struct Counters(Vec<Stripe>);

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Commands that have not completed.
    pub in_flight: u64,
    /// Commands whose connection ended before they completed.
    pub abandoned: u64,
    /// Bytes of data and metadata that went to hosts.
    pub bytes_read: u64,
    /// Bytes of data and metadata of successful writes.
    pub bytes_written: u64,
    /// Completions by command and class of status.
    pub completed: [[u64; STATUSES.len()]; COMMANDS.len()],
    /// Commands by kind and bucket, and their time in all.
    pub times: [([u64; BOUNDS_US.len() + 1], Duration); KINDS.len()],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters((0..STRIPES).map(|_| Stripe::new()).collect())
    }
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    fn stripe(&self) -> &Stripe {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
        }
        &self.0[OWN.with(|own| *own)]
    }

    fn begin(self: &Arc<Counters>) -> UnderWay {
        add(&self.stripe().begun, 1);
        UnderWay {
            counters: Arc::clone(self),
            begun: Instant::now(),
            completed: false,
        }
    }

    /// The sums of all threads.
    pub fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        // Ends before beginnings, so that there are never more ends.
        let ended: u64 = self.0.iter().map(|stripe| get(&stripe.ended)).sum();
        let begun: u64 = self.0.iter().map(|stripe| get(&stripe.begun)).sum();
        sum.in_flight = begun.saturating_sub(ended);
        for stripe in &self.0 {
            sum.abandoned += get(&stripe.abandoned);
            sum.bytes_read += get(&stripe.bytes_read);
            sum.bytes_written += get(&stripe.bytes_written);
            for (row, counts) in sum.completed.iter_mut().zip(&stripe.completed) {
                for (total, count) in row.iter_mut().zip(counts) {
                    *total += get(count);
                }
            }
            for ((buckets, time), times) in sum.times.iter_mut().zip(&stripe.times) {
                for (total, count) in buckets.iter_mut().zip(&times.buckets) {
                    *total += get(count);
                }
                *time += Duration::from_nanos(get(&times.sum_ns));
            }
        }
        sum
    }
}

/// A command between its beginning and its end.
struct UnderWay {
    counters: Arc<Counters>,
    begun: Instant,
    completed: bool,
}

impl UnderWay {
    fn complete(mut self, code: u8, sent: u64, response: &Response) {
        let time = self.begun.elapsed();
        let (command, is_write) = match code {
            opcode::READ => (0, false),
            opcode::WRITE => (1, true),
            opcode::FLUSH => (2, false),
            opcode::COMPARE => (3, false),
            opcode::WRITE_ZEROES => (4, false),
            opcode::DATASET_MANAGEMENT => (5, false),
            _ => (6, false),
        };
        let status = response.cqe.status();
        let kind = if status.is_success() && Effect::of(&response.cqe) == Some(Effect::Computed) {
            2
        } else if command < 2 {
            command
        } else {
            3
        };
        let stripe = self.counters.stripe();
        add(&stripe.completed[command][class(status)], 1);
        let received = (response.data.len() + response.metadata.len()) as u64;
        if received > 0 {
            add(&stripe.bytes_read, received);
        }
        if is_write && status.is_success() {
            add(&stripe.bytes_written, sent);
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let times = &stripe.times[kind];
        let bucket = BOUNDS_US.partition_point(|bound| bound * 1000 < nanoseconds);
        add(&times.buckets[bucket], 1);
        add(&times.sum_ns, nanoseconds);
        self.completed = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let stripe = self.counters.stripe();
        add(&stripe.ended, 1);
        if !self.completed {
            add(&stripe.abandoned, 1);
        }
    }
}

/// Place in [`STATUSES`].
fn class(status: Status) -> usize {
    if status.is_success() {
        return 0;
    }
    match status.code_type() {
        StatusCodeType::Generic => 1,
        StatusCodeType::CommandSpecific => 2,
        StatusCodeType::MediaAndDataIntegrity => 3,
        StatusCodeType::PathRelated => 4,
        StatusCodeType::VendorSpecific => 5,
        StatusCodeType::Reserved(_) => 6,
    }
}

/// A controller of one host, with its commands counted and timed.
pub struct Counted {
    controller: Arc<dyn Controller>,
    counters: Arc<Counters>,
    host: String,
    subsystem: String,
    attached: Instant,
    used: AtomicBool,
}

impl Counted {
    /// The controller that `host` sees.
    pub fn new(
        controller: Arc<dyn Controller>,
        counters: Arc<Counters>,
        host: &str,
        subsystem: &str,
    ) -> Counted {
        let namespaces = controller.info().namespaces.iter();
        let namespaces: Vec<u32> = namespaces.map(|namespace| namespace.nsid()).collect();
        tracing::debug!(host, subsystem, ?namespaces, "controller created");
        Counted {
            controller,
            counters,
            host: host.to_owned(),
            subsystem: subsystem.to_owned(),
            attached: Instant::now(),
            used: AtomicBool::new(false),
        }
    }

    /// Says who works here, with the first command: before it, the host may not have authenticated.
    fn first_command(&self) {
        if !self.used.load(Ordering::Relaxed) && !self.used.swap(true, Ordering::Relaxed) {
            tracing::info!(host = self.host, subsystem = self.subsystem, "host at work");
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (host, subsystem) = (&self.host, &self.subsystem);
        let seconds = self.attached.elapsed().as_secs();
        if *self.used.get_mut() {
            tracing::info!(host, subsystem, seconds, "host gone");
        } else {
            tracing::debug!(host, subsystem, seconds, "controller gone");
        }
    }
}

impl Controller for Counted {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        self.submit_abortable(request, CancelToken::new())
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        self.first_command();
        let code = request.sqe.opcode;
        let sent = (request.data.len() + request.metadata.len()) as u64;
        let in_flight = self.counters.begin();
        let completion = self.controller.submit_abortable(request, cancel);
        async move {
            let response = completion.await;
            in_flight.complete(code, sent, &response);
            response
        }
        .boxed()
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        self.controller.admin(request)
    }

    fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }

    fn errors(&self) -> Vec<ErrorInformation> {
        self.controller.errors()
    }

    fn health(&self) -> Health {
        self.controller.health()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use toroid_nvme::testing::RamController;
    use toroid_nvme::{Cqe, Namespace, Sqe, flush, read_blocks, write_blocks};

    fn counted() -> (Counted, Arc<RamController>, Arc<Counters>) {
        let ram = Arc::new(RamController::new(Namespace::new(1, 4096, 16, 0).unwrap()));
        let counters = Arc::new(Counters::default());
        let controller = Counted::new(
            Arc::clone(&ram) as _,
            Arc::clone(&counters),
            "nqn.h",
            "nqn.s",
        );
        (controller, ram, counters)
    }

    #[test]
    fn commands_are_counted_by_kind_and_status() {
        let (controller, ram, counters) = counted();
        let block = controller.info().namespaces[0].block_size() as usize;
        assert_eq!(counters.snapshot(), Snapshot::default());
        block_on(async {
            let bytes = vec![1; 2 * block];
            write_blocks(&controller, 1, 0, &bytes, &[], false)
                .await
                .unwrap();
            read_blocks(&controller, 1, 0, 1).await.unwrap();
            flush(&controller, 1).await.unwrap();
            ram.fail_nth(1, Status::UNRECOVERED_READ_ERROR);
            read_blocks(&controller, 1, 0, 1).await.unwrap_err();
            ram.fail_nth(1, Status::vendor(0xC0));
            write_blocks(&controller, 1, 0, &bytes, &[], false)
                .await
                .unwrap_err();
            let unknown = Sqe {
                opcode: 0x7C,
                nsid: 1.into(),
                ..Sqe::default()
            };
            controller.submit(Request::new(unknown)).await;
        });
        let counts = counters.snapshot();
        let at = |command: &str, status: &str| {
            let command = COMMANDS.iter().position(|name| *name == command).unwrap();
            let status = STATUSES.iter().position(|name| *name == status).unwrap();
            counts.completed[command][status]
        };
        assert_eq!(at("write", "success"), 1);
        assert_eq!(at("write", "vendor"), 1);
        assert_eq!(at("read", "success"), 1);
        assert_eq!(at("read", "media"), 1);
        assert_eq!(at("flush", "success"), 1);
        assert_eq!(at("other", "generic"), 1);
        assert_eq!(counts.completed.as_flattened().iter().sum::<u64>(), 6);
        assert_eq!(counts.bytes_written, 2 * block as u64);
        assert_eq!(counts.bytes_read, block as u64);
        let timed: Vec<u64> = counts.times.iter().map(|(n, _)| n.iter().sum()).collect();
        assert_eq!(timed, [2, 2, 0, 2]);
        assert_eq!((counts.in_flight, counts.abandoned), (0, 0));
    }

    #[test]
    fn a_command_that_nobody_waits_for_is_in_flight_no_more() {
        let (controller, _ram, counters) = counted();
        let command = controller.submit(Request::new(Sqe::read(1, 1, 0, 0)));
        assert_eq!(counters.snapshot().in_flight, 1);
        drop(command);
        let counts = counters.snapshot();
        assert_eq!((counts.in_flight, counts.abandoned), (0, 1));
    }

    #[test]
    fn a_program_is_timed_as_such() {
        let counters = Arc::new(Counters::default());
        let mut response = Response::success(1);
        response.cqe.dw0 = (Effect::Computed as u32).into();
        counters.begin().complete(opcode::WRITE, 4096, &response);
        let counts = counters.snapshot();
        let (buckets, sum) = counts.times[2];
        assert_eq!(buckets.iter().sum::<u64>(), 1);
        assert!(sum > Duration::ZERO);
        response.cqe = Cqe::new(1, Status::WRITE_FAULT, false);
        response.cqe.dw0 = (Effect::Computed as u32).into();
        counters.begin().complete(opcode::WRITE, 4096, &response);
        let counts = counters.snapshot();
        assert_eq!(counts.times[1].0.iter().sum::<u64>(), 1);
        assert_eq!(counts.bytes_written, 4096);
    }
}
