//! TLS with pre-shared keys below NVMe/TCP, over loopback sockets: who gets in, who does not, and what a stranger can hold.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use toroid_nvme::fabrics::auth::{AuthHash, FailureReason, Secret, TlsKey};
use toroid_nvme::fabrics::{
    AllowedHost, ConnectError, ConnectOptions, HostQueue, Hosts, Limits, QueueSettings,
    RemoteController, Subsystem, Target, TlsMode, Transport,
};
use toroid_nvme::tcp::{self, Address, Connector, Listener, serve};
use toroid_nvme::testing::RamController;
use toroid_nvme::{Controller, Namespace, read_blocks, write_blocks};

const SUBSYSTEM: &str = "nqn.2024-01.io.example:drive";
const HOST: &str = "nqn.2024-01.io.example:host";
const OTHER: &str = "nqn.2024-01.io.example:other";
const PLAIN: &str = "nqn.2024-01.io.example:plain";

struct Served {
    address: SocketAddr,
    target: Arc<Target>,
    /// Keys of [`HOST`] and [`OTHER`]; [`PLAIN`] has none.
    keys: [TlsKey; 2],
    _stop: oneshot::Sender<()>,
}

async fn start(mode: TlsMode, limits: Limits) -> Served {
    let keys = [AuthHash::Sha256, AuthHash::Sha384].map(|hash| TlsKey::generate(hash).unwrap());
    let hosts = vec![
        AllowedHost {
            tls_key: Some(keys[0].clone()),
            ..AllowedHost::new(HOST)
        },
        AllowedHost {
            tls_key: Some(keys[1].clone()),
            ..AllowedHost::new(OTHER)
        },
        AllowedHost::new(PLAIN),
    ];
    serve_hosts(mode, limits, keys, Hosts::Listed(hosts)).await
}

async fn serve_hosts(mode: TlsMode, limits: Limits, keys: [TlsKey; 2], hosts: Hosts) -> Served {
    let target = target(limits, hosts);
    let (address, _stop) = listen(&target, "127.0.0.1:0", mode).await;
    Served {
        address,
        target,
        keys,
        _stop,
    }
}

fn target(limits: Limits, hosts: Hosts) -> Arc<Target> {
    let namespace = Namespace::new(1, 4096, 1024, 0)
        .unwrap()
        .with_nguid([1; 16]);
    let ram = Arc::new(RamController::new(namespace));
    let subsystem = Subsystem {
        nqn: SUBSYSTEM.into(),
        storage: Arc::new(move |_: &str| Ok(Arc::clone(&ram) as Arc<dyn Controller>)),
        hosts,
    };
    Target::new(vec![subsystem], limits, None).unwrap()
}

/// Another listener of the target, until the sender is dropped.
async fn listen(
    target: &Arc<Target>,
    address: &str,
    mode: TlsMode,
) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = Listener::new(listener, mode);
    tokio::spawn(serve(listener, Arc::clone(target), 64, async {
        let _ = stopped.await;
    }));
    (address, stop)
}

fn at(address: SocketAddr) -> Address {
    format!("nvme+tcp://{address}/{SUBSYSTEM}").parse().unwrap()
}

fn options(host: &str, key: Option<&TlsKey>) -> ConnectOptions {
    ConnectOptions {
        io_queues: 2,
        tls_key: key.cloned(),
        ..ConnectOptions::new(host, [9; 16])
    }
}

async fn attempt(
    address: SocketAddr,
    host: &str,
    key: Option<&TlsKey>,
) -> Result<RemoteController, ConnectError> {
    tcp::connect(&at(address), &options(host, key)).await
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 3) as u8 ^ (i >> 9) as u8).collect()
}

async fn round_trip(controller: &RemoteController) {
    for blocks in [1, 3, 32, 256, 700] {
        let bytes = pattern(blocks * 4096);
        write_blocks(controller, 1, 5, &bytes, &[], false)
            .await
            .unwrap();
        let read = read_blocks(controller, 1, 5, blocks as u64).await.unwrap();
        assert!(read.data == bytes);
    }
}

/// Waits until the target has so many connections.
async fn connections(served: &Served, count: u64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while served.target.statistics().connections != count {
        let now = served.target.statistics();
        assert!(tokio::time::Instant::now() < deadline, "{now:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Passes the bytes of every connection to `address` on, and keeps what the hosts send. After `most` bytes of a connection's host it is cut.
async fn relay(address: SocketAddr, most: usize) -> (SocketAddr, Arc<std::sync::Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (host, _) = listener.accept().await.unwrap();
            let target = TcpStream::connect(address).await.unwrap();
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let (mut from_host, mut to_host) = host.into_split();
                let (mut from_target, mut to_target) = target.into_split();
                let back = tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_target, &mut to_host).await;
                });
                let mut left = most;
                let mut buffer = vec![0; 1 << 16];
                while left > 0 {
                    let Ok(count @ 1..) = from_host.read(&mut buffer).await else {
                        break;
                    };
                    let count = count.min(left);
                    left -= count;
                    all.lock().unwrap().extend_from_slice(&buffer[..count]);
                    if to_target.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
                back.abort();
            });
        }
    });
    (own, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_blocks_round_trip_and_are_not_on_the_wire() {
    let served = start(TlsMode::Required, Limits::default()).await;
    let (address, seen) = relay(served.address, usize::MAX).await;
    for (host, key) in [(HOST, &served.keys[0]), (OTHER, &served.keys[1])] {
        let controller = attempt(address, host, Some(key)).await.unwrap();
        round_trip(&controller).await;
    }
    let seen = seen.lock().unwrap();
    let plain = pattern(64 * 4096);
    let holds = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
    assert!(seen.len() > 2 * 700 * 4096);
    assert!(!holds(&plain[100_000..100_032]));
    // The identity of the key is in clear, the Connect command's data are not.
    let identity = served.keys[0].psk(HOST, SUBSYSTEM).identity;
    assert!(holds(identity.as_bytes()));
    assert!(!holds(&[HOST.as_bytes(), &[0; 16]].concat()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_an_unknown_host_and_no_key_stay_out() {
    for mode in [TlsMode::Allowed, TlsMode::Required] {
        let served = start(mode, Limits::default()).await;
        let [own, other] = &served.keys;
        for (host, key) in [
            (HOST, other),
            (OTHER, own),
            (PLAIN, own),
            ("nqn.2024-01.io.example:stranger", own),
        ] {
            let error = attempt(served.address, host, Some(key)).await.err();
            assert!(matches!(error, Some(ConnectError::Tls { .. })), "{error:?}");
        }
        let plain = attempt(served.address, HOST, None).await.err();
        match mode {
            TlsMode::Required => {
                // The connection ends before any PDU is read, whoever it is.
                assert!(!matches!(
                    plain,
                    None | Some(ConnectError::HostRefused { .. })
                ));
                assert!(attempt(served.address, PLAIN, None).await.is_err());
            }
            _ => {
                assert!(
                    matches!(plain, Some(ConnectError::HostRefused { .. })),
                    "{plain:?}"
                );
                round_trip(&attempt(served.address, PLAIN, None).await.unwrap()).await;
            }
        }
        round_trip(&attempt(served.address, HOST, Some(own)).await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_to_a_plain_port_is_no_connection() {
    let served = start(TlsMode::Off, Limits::default()).await;
    let key = served.keys[0].clone();
    let error = attempt(served.address, HOST, Some(&key)).await.err();
    assert!(matches!(error, Some(ConnectError::Tls { .. })), "{error:?}");
    // Nor does a host with a key get in without TLS: no plain connection takes its place.
    let error = attempt(served.address, HOST, None).await.err();
    assert!(
        matches!(error, Some(ConnectError::HostRefused { .. })),
        "{error:?}"
    );
    attempt(served.address, PLAIN, None).await.unwrap();
}

/// Opens queues with the key of another host.
struct Borrowed<'a> {
    connector: Connector,
    from: (&'a str, &'a TlsKey),
    subsystem: &'a str,
}

impl Transport for Borrowed<'_> {
    async fn open(&self, settings: QueueSettings) -> Result<HostQueue, ConnectError> {
        let (host, key) = self.from;
        let tls = Some(key.psk(host, self.subsystem));
        self.connector.open(QueueSettings { tls, ..settings }).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_is_of_one_host_and_one_subsystem() {
    let served = start(TlsMode::Allowed, Limits::default()).await;
    const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
    for (host, subsystem, fits) in [
        (HOST, SUBSYSTEM, true),
        (OTHER, SUBSYSTEM, false),
        (PLAIN, SUBSYSTEM, false),
        (HOST, DISCOVERY, false),
    ] {
        let borrowed = Borrowed {
            connector: Connector::from(&at(served.address)),
            from: (HOST, &served.keys[0]),
            subsystem,
        };
        let connected = RemoteController::connect(&borrowed, SUBSYSTEM, &options(host, None)).await;
        match connected {
            Ok(_) => assert!(fits, "{host} {subsystem}"),
            Err(error) => assert!(
                !fits && matches!(error, ConnectError::HostRefused { .. }),
                "{error:?}"
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_says_who_must_use_tls() {
    let served = start(TlsMode::Allowed, Limits::default()).await;
    let connector = Connector::from(&at(served.address));
    for (host, key, required) in [
        (HOST, Some(&served.keys[0]), true),
        (HOST, None, true),
        (PLAIN, None, false),
    ] {
        let entries = connector.discover(&options(host, key)).await.unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].subnqn(), Some(SUBSYSTEM));
        assert_eq!(entries[0].requires_tls(), required, "{host}");
    }
    let served = start(TlsMode::Required, Limits::default()).await;
    let connector = Connector::from(&at(served.address));
    let key = Some(&served.keys[0]);
    let entries = connector.discover(&options(HOST, key)).await.unwrap();
    assert!(entries[0].requires_tls());
    assert!(connector.discover(&options(PLAIN, None)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_lists_every_listener_with_its_own_address_and_tls() {
    let served = start(TlsMode::Off, Limits::default()).await;
    let (second, _stop) = listen(&served.target, "127.0.0.2:0", TlsMode::Required).await;
    let plain = Connector::from(&at(served.address));
    let secure = Connector::from(&at(second));
    let place = |id: u16, address: SocketAddr, tls| {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        (id, ip, port, tls)
    };
    let expected = [place(1, served.address, false), place(2, second, true)];
    let key = Some(&served.keys[0]);
    // Once the second one listens, the log has both, first the one that the host has used.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let entries = plain.discover(&options(HOST, None)).await.unwrap();
        if entries.len() == 2 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline);
    }
    let here = expected.clone();
    let [first, other] = expected;
    for (connector, key, expected) in [(&plain, None, here), (&secure, key, [other, first])] {
        let entries = connector.discover(&options(HOST, key)).await.unwrap();
        let found = entries.iter().map(|entry| {
            let id = entry.portid.get();
            (id, entry.traddr(), entry.trsvcid(), entry.requires_tls())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
        // A host gets to the subsystem by each entry as it says.
        for entry in &entries {
            let address = format!("{}:{}", entry.traddr(), entry.trsvcid());
            let key = entry.requires_tls().then_some(&served.keys[0]);
            let there = attempt(address.parse().unwrap(), HOST, key).await;
            // The plain listener does not admit a host whose queues must be encrypted.
            assert_eq!(there.is_ok(), entry.requires_tls());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_goes_through_the_channel() {
    let secret = Secret::generate(AuthHash::Sha256).unwrap();
    let keys = [AuthHash::Sha256, AuthHash::Sha256].map(|hash| TlsKey::generate(hash).unwrap());
    let hosts = Hosts::Listed(vec![AllowedHost {
        secret: Some(secret.clone()),
        tls_key: Some(keys[0].clone()),
        ..AllowedHost::new(HOST)
    }]);
    let served = serve_hosts(TlsMode::Required, Limits::default(), keys, hosts).await;
    let with = |secret: Option<&Secret>| ConnectOptions {
        secret: secret.cloned(),
        timeout: Duration::from_secs(60),
        ..options(HOST, Some(&served.keys[0]))
    };
    let address = at(served.address);
    round_trip(&tcp::connect(&address, &with(Some(&secret))).await.unwrap()).await;
    let error = tcp::connect(&address, &with(None)).await.err();
    assert!(matches!(error, Some(ConnectError::NoSecret)), "{error:?}");
}

/// A record that says a ClientHello of 500 bytes follows, and part of it.
const BEGUN: [u8; 60] = {
    let mut bytes = [0; 60];
    let head = [22, 3, 1, 1, 248, 1, 0, 1, 244, 3, 3];
    let mut i = 0;
    while i < head.len() {
        bytes[i] = head[i];
        i += 1;
    }
    bytes
};

#[tokio::test(flavor = "multi_thread")]
async fn slow_broken_and_cut_handshakes_end_and_hold_little() {
    let limits = Limits {
        handshake: Duration::from_millis(500),
        newcomers_per_address: 8,
        ..Limits::default()
    };
    for mode in [TlsMode::Allowed, TlsMode::Required] {
        let served = start(mode, limits.clone()).await;
        // Said nothing; began; began and went; garbage; a plain connection's start.
        for (bytes, goes) in [
            (&[][..], false),
            (&BEGUN[..], false),
            (&BEGUN[..1], false),
            (&BEGUN[..], true),
            (&[22; 64][..], false),
            (&[0; 300][..], false),
        ] {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            if goes {
                drop(stream);
            } else {
                // The target ends it, with an alert or without one.
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                assert!(rest.len() < 1000);
            }
            connections(&served, 0).await;
        }
        assert_eq!(served.target.statistics().bytes_in_flight, 0);
        // So many may begin at a time; what they hold counts, and is returned.
        let mut begun = Vec::new();
        for _ in 0..8 {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            stream.write_all(&BEGUN).await.unwrap();
            begun.push(stream);
        }
        let mut ninth = TcpStream::connect(served.address).await.unwrap();
        assert_eq!(ninth.read(&mut [0; 16]).await.unwrap_or(0), 0);
        let mut most = 0;
        while served.target.statistics().connections > 0 {
            most = most.max(served.target.statistics().bytes_in_flight);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!((1..=8 * (128 << 10)).contains(&most), "{most}");
        assert_eq!(served.target.statistics().bytes_in_flight, 0);
        drop(begun);
        let key = served.keys[0].clone();
        let slow = ConnectOptions {
            timeout: Duration::from_secs(60),
            ..options(HOST, Some(&key))
        };
        // On a busy machine the short limit may end an honest handshake too.
        let mut connected = tcp::connect(&at(served.address), &slow).await;
        for _ in 0..20 {
            if connected.is_ok() {
                break;
            }
            connected = tcp::connect(&at(served.address), &slow).await;
        }
        round_trip(&connected.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_ends_both_sides() {
    let served = start(TlsMode::Required, Limits::default()).await;
    // Within the handshake, within Connect, and within the data of a write.
    for most in [100, 600, 300_000] {
        let (address, _) = relay(served.address, most).await;
        let key = Some(&served.keys[0]);
        if let Ok(controller) = attempt(address, HOST, key).await {
            assert_eq!(most, 300_000);
            let bytes = pattern(256 * 4096);
            let written = write_blocks(&controller, 1, 0, &bytes, &[], false).await;
            assert!(written.is_err());
        } else {
            assert!(most < 300_000);
        }
        connections(&served, 0).await;
        assert_eq!(served.target.statistics().bytes_in_flight, 0);
    }
}

/// Passes the bytes of every connection to `address` on, until `cut` says so: then both sides see the ends of their streams.
async fn relay_until(address: SocketAddr, cut: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut host, _) = listener.accept().await.unwrap();
            let mut cut = cut.clone();
            tokio::spawn(async move {
                let mut target = TcpStream::connect(address).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut host, &mut target) => {}
                    _ = cut.wait_for(|cut| *cut) => {}
                }
            });
        }
    });
    own
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_between_two_commands_is_noticed_and_an_announced_end_is_none() {
    let served = start(TlsMode::Required, Limits::default()).await;
    let key = Some(&served.keys[0]);
    // The host says that it ends.
    let controller = attempt(served.address, HOST, key).await.unwrap();
    round_trip(&controller).await;
    drop(controller);
    connections(&served, 0).await;
    assert_eq!(served.target.statistics().failed, 0);
    // Nothing is under way, so that only TLS can tell.
    let (cut, until) = watch::channel(false);
    let relay = relay_until(served.address, until).await;
    let controller = attempt(relay, HOST, key).await.unwrap();
    round_trip(&controller).await;
    cut.send(true).unwrap();
    connections(&served, 0).await;
    // The admin queue's end, that is: I/O queues without commands may end so.
    assert_eq!(served.target.statistics().failed, 1);
    assert!(read_blocks(&controller, 1, 0, 1).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_ends_in_the_middle_of_a_handshake() {
    let served = start(TlsMode::Required, Limits::default()).await;
    let mut begun = TcpStream::connect(served.address).await.unwrap();
    begun.write_all(&BEGUN).await.unwrap();
    connections(&served, 1).await;
    served.target.close();
    assert_eq!(begun.read(&mut [0; 16]).await.unwrap_or(0), 0);
    connections(&served, 0).await;
}

/// A target whose host has both secrets and is to take its key from its authentication, or not.
async fn serve_secrets(concatenate: bool, mode: TlsMode) -> (Served, [Secret; 2]) {
    let secrets = [AuthHash::Sha256, AuthHash::Sha384].map(|hash| Secret::generate(hash).unwrap());
    let keys = [AuthHash::Sha256, AuthHash::Sha256].map(|hash| TlsKey::generate(hash).unwrap());
    let hosts = Hosts::Listed(vec![AllowedHost {
        secret: Some(secrets[0].clone()),
        controller_secret: Some(secrets[1].clone()),
        concatenate,
        ..AllowedHost::new(HOST)
    }]);
    let limits = Limits {
        handshake: Duration::from_secs(60),
        ..Limits::default()
    };
    (serve_hosts(mode, limits, keys, hosts).await, secrets)
}

fn with_secrets(secrets: &[Secret; 2], concatenate: bool) -> ConnectOptions {
    ConnectOptions {
        secret: Some(secrets[0].clone()),
        controller_secret: Some(secrets[1].clone()),
        concatenate,
        timeout: Duration::from_secs(60),
        ..options(HOST, None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authentication_gives_a_key_that_encrypts_every_queue() {
    let (served, secrets) = serve_secrets(true, TlsMode::Allowed).await;
    let (address, seen) = relay(served.address, usize::MAX).await;
    let options = with_secrets(&secrets, true);
    let first = tcp::connect(&at(address), &options).await.unwrap();
    round_trip(&first).await;
    // Another connection has a key of its own, and the first goes on.
    let second = tcp::connect(&at(address), &options).await.unwrap();
    round_trip(&second).await;
    round_trip(&first).await;
    let seen = seen.lock().unwrap();
    let plain = pattern(64 * 4096);
    let holds = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
    assert!(seen.len() > 3 * 700 * 4096);
    assert!(!holds(&plain[100_000..100_032]));
    assert!(holds(format!("NVMe1G01 {HOST} {SUBSYSTEM} ").as_bytes()));
}

/// Never encrypts.
struct Stripped(Connector);

impl Transport for Stripped {
    async fn open(&self, settings: QueueSettings) -> Result<HostQueue, ConnectError> {
        self.0
            .open(QueueSettings {
                tls: None,
                ..settings
            })
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_to_take_its_key_from_its_authentication_must() {
    let (served, secrets) = serve_secrets(true, TlsMode::Allowed).await;
    let address = at(served.address);
    let mismatch = |error: Option<ConnectError>| {
        let reason = match &error {
            Some(ConnectError::Auth(error)) => error.reason(),
            _ => panic!("{error:?}"),
        };
        assert_eq!(reason, FailureReason::ConcatenationMismatch, "{error:?}");
    };
    mismatch(
        tcp::connect(&address, &with_secrets(&secrets, false))
            .await
            .err(),
    );
    // A host that authenticates for a key, and then goes on without encryption.
    let stripped = Stripped(Connector::from(&address));
    let options = with_secrets(&secrets, true);
    mismatch(
        RemoteController::connect(&stripped, SUBSYSTEM, &options)
            .await
            .err(),
    );
    let one_way = ConnectOptions {
        controller_secret: None,
        ..with_secrets(&secrets, true)
    };
    let error = tcp::connect(&address, &one_way).await.err();
    assert!(
        matches!(error, Some(ConnectError::Concatenation)),
        "{error:?}"
    );
    // A key that nobody has generated.
    let stranger = TlsKey::generate(AuthHash::Sha256).unwrap();
    let error = attempt(served.address, HOST, Some(&stranger)).await.err();
    assert!(matches!(error, Some(ConnectError::Tls { .. })), "{error:?}");
    // A target that does not want it says so, too.
    let (served, secrets) = serve_secrets(false, TlsMode::Allowed).await;
    let options = with_secrets(&secrets, true);
    mismatch(tcp::connect(&at(served.address), &options).await.err());
}
