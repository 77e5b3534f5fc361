//! Target and initiator over loopback sockets, with a controller in memory behind the target.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use toroid_nvme::fabrics::auth::{AuthHash, Secret};
use toroid_nvme::fabrics::{
    AllowedHost, ConnectError, ConnectOptions, Hosts, Limits, Subsystem, Target,
};
use toroid_nvme::tcp::{self, Address, Connector, Digests, serve};
use toroid_nvme::testing::RamController;
use toroid_nvme::{
    BROADCAST_NSID, Controller, ControllerInfo, DsmRange, Namespace, NvmeError, Request, Sqe,
    Status, flush, read_blocks, write_blocks, write_zeroes,
};
use zerocopy::IntoBytes;

const SUBSYSTEM: &str = "nqn.2024-01.io.example:drive";
const HOST: &str = "nqn.2024-01.io.example:host";

struct Served {
    address: SocketAddr,
    target: Arc<Target>,
    ram: Arc<RamController>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

fn info() -> ControllerInfo {
    ControllerInfo {
        mdts_bytes: 1 << 20,
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
        other_namespaces: Vec::new(),
        vendor_statuses: &[],
    }
}

async fn start(hosts: Hosts, limits: Limits) -> Served {
    let ram = Arc::new(RamController::with_info(info()));
    let served = serve_with(Arc::clone(&ram) as Arc<dyn Controller>, hosts, limits).await;
    Served { ram, ..served }
}

async fn serve_with(behind: Arc<dyn Controller>, hosts: Hosts, limits: Limits) -> Served {
    let subsystem = Subsystem {
        nqn: SUBSYSTEM.into(),
        storage: Arc::new(move |_: &str| Ok(Arc::clone(&behind))),
        hosts,
    };
    let target = Target::new(vec![subsystem], limits, None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(serve(listener, Arc::clone(&target), 64, async {
        let _ = stopped.await;
    }));
    Served {
        address,
        target,
        ram: Arc::new(RamController::with_info(info())),
        stop,
        task,
    }
}

fn address(served: &Served) -> Address {
    format!("nvme+tcp://{}/{SUBSYSTEM}", served.address)
        .parse()
        .unwrap()
}

fn options() -> ConnectOptions {
    ConnectOptions {
        io_queues: 2,
        ..ConnectOptions::new(HOST, [9; 16])
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i / 3) as u8 ^ (i >> 9) as u8 ^ seed)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_any_size_round_trip_with_every_choice_of_digests() {
    let served = start(Hosts::Any, Limits::default()).await;
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let connector = Connector {
            address: address(&served),
            digests: Digests { header, data },
        };
        let controller = connector.connect(&options()).await.unwrap();
        assert_eq!(controller.info().namespaces, info().namespaces);
        assert_eq!(controller.info().mdts_bytes, 1 << 20);
        // In the capsule, in one R2T, in several PDUs of it, in several commands.
        for blocks in [1, 2, 3, 32, 33, 256, 700] {
            let bytes = pattern(blocks * 4096, blocks as u8);
            write_blocks(&controller, 1, 5, &bytes, &[], false)
                .await
                .unwrap();
            let read = read_blocks(&controller, 1, 5, blocks as u64).await.unwrap();
            assert!(read.data == bytes);
        }
        for blocks in [1, 16, 2048] {
            let bytes = pattern(blocks * 512, 3);
            let metadata = pattern(blocks * 64, 4);
            write_blocks(&controller, 2, 7, &bytes, &metadata, true)
                .await
                .unwrap();
            let read = read_blocks(&controller, 2, 7, blocks as u64).await.unwrap();
            assert!(read.data == bytes && read.metadata == metadata);
            // What lies behind the target has data and metadata apart.
            let inside = read_blocks(&*served.ram, 2, 7, blocks as u64)
                .await
                .unwrap();
            assert!(inside == read);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_io_command_and_its_failures() {
    let served = start(Hosts::Any, Limits::default()).await;
    let controller = tcp::connect(&address(&served), &options()).await.unwrap();
    let bytes = pattern(8192, 1);
    write_blocks(&controller, 1, 0, &bytes, &[], false)
        .await
        .unwrap();
    flush(&controller, 1).await.unwrap();
    flush(&controller, BROADCAST_NSID).await.unwrap();
    assert_eq!(served.ram.unflushed_blocks(), 0);
    let compare = |data: Vec<u8>| {
        let sqe = Sqe::compare(0, 1, 0, 1);
        let metadata = Vec::new();
        controller.submit(Request {
            sqe,
            data,
            metadata,
        })
    };
    assert!(compare(bytes.clone()).await.cqe.status().is_success());
    let other = compare(pattern(8192, 2)).await;
    assert_eq!(other.cqe.status(), Status::COMPARE_FAILURE);
    write_zeroes(&controller, 1, 1, 1).await.unwrap();
    let read = read_blocks(&controller, 1, 0, 2).await.unwrap();
    assert!(read.data[..4096] == bytes[..4096] && read.data[4096..] == [0; 4096]);
    let range = DsmRange {
        attributes: 0.into(),
        blocks: 1.into(),
        slba: 0.into(),
    };
    // The list alone, or in a buffer that has room for the longest.
    for room in [16, 4096] {
        write_blocks(&controller, 1, 0, &bytes, &[], false)
            .await
            .unwrap();
        let mut data = range.as_bytes().to_vec();
        data.resize(room, 0);
        let deallocate = Request {
            sqe: Sqe::deallocate(0, 1, 0),
            data,
            metadata: Vec::new(),
        };
        assert!(
            controller
                .submit(deallocate)
                .await
                .cqe
                .status()
                .is_success()
        );
        let read = read_blocks(&controller, 1, 0, 2).await.unwrap();
        assert!(read.data[..4096] == [0; 4096] && read.data[4096..] == bytes[4096..]);
    }

    served.ram.fail_nth(1, Status::UNRECOVERED_READ_ERROR);
    let failed = read_blocks(&controller, 1, 0, 1).await.unwrap_err();
    assert_eq!(failed.status(), Some(Status::UNRECOVERED_READ_ERROR));
    let beyond = controller
        .submit(Request::new(Sqe::read(7, 1, 1024, 0)))
        .await;
    assert_eq!(beyond.cqe.status(), Status::LBA_OUT_OF_RANGE);
    assert!(beyond.cqe.do_not_retry());
    assert_eq!(beyond.cqe.cid.get(), 7);
    let unknown = controller.submit(Request::new(Sqe::flush(0, 3))).await;
    assert_eq!(unknown.cqe.status(), Status::INVALID_NAMESPACE);
    let nothing = Sqe {
        opcode: 0x7C,
        nsid: 1.into(),
        ..Sqe::default()
    };
    let nothing = controller.submit(Request::new(nothing)).await;
    assert_eq!(nothing.cqe.status(), Status::INVALID_OPCODE);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_at_once_within_small_limits() {
    let limits = Limits {
        queue_entries: 8,
        bytes_in_flight: 1 << 20,
        ..Limits::default()
    };
    let served = start(Hosts::Any, limits).await;
    let controller = tcp::connect(&address(&served), &options()).await.unwrap();
    let each = (0..100u64).map(|i| {
        let controller = &controller;
        async move {
            let (slba, blocks) = (i % 10 * 100, 1 + i % 7 * 11);
            let bytes = pattern(blocks as usize * 4096, i as u8);
            write_blocks(controller, 1, slba, &bytes, &[], false).await?;
            let read = read_blocks(controller, 1, slba, blocks).await?;
            Ok::<_, NvmeError>(read.data.len() == bytes.len())
        }
    });
    let results = futures::future::join_all(each).await;
    assert!(results.into_iter().all(|result| result.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_lists_the_subsystems_that_the_host_may_use() {
    let listed = Hosts::Listed(vec![AllowedHost::new(HOST)]);
    let served = start(listed, Limits::default()).await;
    let entries = Connector::from(&address(&served))
        .discover(&options())
        .await
        .unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].subnqn(), Some(SUBSYSTEM));
    assert_eq!(entries[0].traddr(), "127.0.0.1");
    assert_eq!(entries[0].trsvcid(), served.address.port().to_string());
    let stranger = ConnectOptions::new("nqn.2024-01.io.example:stranger", [1; 16]);
    assert!(
        Connector::from(&address(&served))
            .discover(&stranger)
            .await
            .unwrap()
            .is_empty()
    );
    let refused = tcp::connect(&address(&served), &stranger).await.err();
    assert!(matches!(refused, Some(ConnectError::HostRefused { .. })));
    assert_eq!(served.target.statistics().refused, 1);
    tcp::connect(&address(&served), &options()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_in_both_directions() {
    let (own, controllers) = (secret(), secret());
    let listed = Hosts::Listed(vec![AllowedHost {
        secret: Some(own.clone()),
        controller_secret: Some(controllers.clone()),
        ..AllowedHost::new(HOST)
    }]);
    let limits = Limits {
        handshake: Duration::from_secs(60),
        ..Limits::default()
    };
    let served = start(listed, limits).await;
    let attempt = |secret: Option<&Secret>, controller_secret: Option<&Secret>| {
        let options = ConnectOptions {
            secret: secret.cloned(),
            controller_secret: controller_secret.cloned(),
            timeout: Duration::from_secs(60),
            ..options()
        };
        let address = address(&served);
        async move { tcp::connect(&address, &options).await }
    };
    for controllers in [None, Some(&controllers)] {
        let controller = attempt(Some(&own), controllers).await.unwrap();
        assert_eq!(
            read_blocks(&controller, 1, 0, 1).await.unwrap().data,
            [0; 4096]
        );
    }
    let none = attempt(None, None).await.err();
    assert!(matches!(none, Some(ConnectError::NoSecret)));
    let wrong = attempt(Some(&secret()), None).await.err();
    assert!(matches!(wrong, Some(ConnectError::Auth(_))), "{wrong:?}");
    let impostor = attempt(Some(&own), Some(&secret())).await.err();
    assert!(
        matches!(impostor, Some(ConnectError::Auth(_))),
        "{impostor:?}"
    );
    assert!(served.target.statistics().refused >= 1);
}

fn secret() -> Secret {
    Secret::generate(AuthHash::Sha256).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_host_is_disconnected_and_another_keeps_working() {
    let served = start(Hosts::Any, Limits::default()).await;
    let silent = ConnectOptions {
        keep_alive: Duration::from_millis(300),
        ..options()
    };
    let controller = tcp::connect(&address(&served), &silent).await.unwrap();
    // While the keep alive task runs, the controller stays.
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(controller.is_connected());
    assert_eq!(served.target.statistics().controllers, 1);
    drop(controller);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while served.target.statistics().connections > 0 {
        assert!(tokio::time::Instant::now() < deadline, "connections stay");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(served.target.statistics().controllers, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_lets_commands_end_and_closes_connections() {
    let served = start(Hosts::Any, Limits::default()).await;
    let controller = tcp::connect(&address(&served), &options()).await.unwrap();
    write_blocks(&controller, 1, 0, &pattern(4096, 1), &[], false)
        .await
        .unwrap();
    served.stop.send(()).unwrap();
    served.task.await.unwrap().unwrap();
    let lost = read_blocks(&controller, 1, 0, 1).await.unwrap_err();
    assert_eq!(lost.status(), Some(Status::HOST_PATHING_ERROR));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while controller.is_connected() {
        assert!(tokio::time::Instant::now() < deadline, "a queue stays open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Takes its time for every command.
struct Slow(RamController);

impl Controller for Slow {
    fn submit(&self, request: Request) -> futures::future::BoxFuture<'_, toroid_nvme::Response> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.0.submit(request).await
        })
    }

    fn info(&self) -> &ControllerInfo {
        self.0.info()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_waits_for_commands_in_flight() {
    let served = serve_with(
        Arc::new(Slow(RamController::with_info(info()))),
        Hosts::Any,
        Limits::default(),
    )
    .await;
    let controller = tcp::connect(&address(&served), &options()).await.unwrap();
    let reading =
        tokio::spawn(async move { (read_blocks(&controller, 1, 0, 1).await, controller) });
    tokio::time::sleep(Duration::from_millis(200)).await;
    served.stop.send(()).unwrap();
    let (read, _host) = reading.await.unwrap();
    assert_eq!(read.unwrap().data, [0; 4096]);
    served.task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomers_of_one_address_have_a_limit() {
    let limits = Limits {
        newcomers_per_address: 3,
        ..Limits::default()
    };
    let served = start(Hosts::Any, limits).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(TcpStream::connect(served.address).await.unwrap());
    }
    let mut fourth = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(fourth.read(&mut [0; 1]).await.unwrap(), 0);
    // Those that are connected to a controller do not count.
    kept.truncate(1);
    while served.target.statistics().connections > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let connector = Connector {
        address: address(&served),
        digests: Digests::default(),
    };
    let controller = connector.connect(&options()).await.unwrap();
    write_blocks(&controller, 1, 0, &pattern(4096, 1), &[], false)
        .await
        .unwrap();
    drop(kept);
}

#[test]
fn addresses() {
    let parse = |text: &str| text.parse::<Address>();
    let full = parse("nvme+tcp://drive.example:1234/nqn.x:y").unwrap();
    assert_eq!(
        (full.host.as_str(), full.port, full.nqn.as_str()),
        ("drive.example", 1234, "nqn.x:y")
    );
    assert_eq!(full.to_string(), "nvme+tcp://drive.example:1234/nqn.x:y");
    assert_eq!(parse("nvme+tcp://[::1]/nqn.x").unwrap().host, "::1");
    assert_eq!(
        parse("nvme+tcp://[::1]:9/nqn.x").unwrap().to_string(),
        "nvme+tcp://[::1]:9/nqn.x"
    );
    assert_eq!(parse("nvme+tcp://h").unwrap().port, 4420);
    for bad in [
        "",
        "http://h/nqn.x",
        "nvme+tcp:///nqn.x",
        "nvme+tcp://h:x/nqn.x",
        "nvme+tcp://h/iqn.x",
        "nvme+tcp://[::1/nqn.x",
        "nvme+tcp://[::1]9/nqn.x",
        // As an address it would not be read again.
        "nvme+tcp://[[1]/nqn.x",
        "nvme+tcp://a]/nqn.x",
        "nvme+tcp://a\0b/nqn.x",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}
