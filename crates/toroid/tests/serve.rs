//! `toroid drive serve` as hosts and operators see it.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toroid_client::session::Session;
use toroid_drive::image::Image;
use toroid_isa::{VrNumber, VrType};
use toroid_nvme::fabrics::auth::Secret;
use toroid_nvme::fabrics::{ConnectError, ConnectOptions, RemoteController};
use toroid_nvme::tcp::{self, Address, Connector};
use toroid_nvme::{
    BROADCAST_NSID, Controller, NvmeError, Request, Sqe, Status, flush, read_blocks, write_blocks,
};
use toroid_task::Progress;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::TINY;
use toroid_tfhe::random::Csprng;

const SUBSYSTEM: &str = "nqn.2024-01.example:vault";
const ALICE: &str = "nqn.2024-01.example:alice";
const BOB: &str = "nqn.2024-01.example:bob";
const EVE: &str = "nqn.2024-01.example:eve";

/// A folder to run the program in.
struct Place(TempDir);

impl Place {
    /// With images of these names.
    fn new(images: &[&str]) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for image in images {
            let line = format!("drive format {image} --size 16MiB --swap 4MiB");
            place.ok(&line);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toroid"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path());
        command
    }

    /// Runs a line that must succeed; its standard output.
    fn ok(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "toroid {line}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line that must fail with this exit code and with these words.
    fn fails(&self, code: i32, line: &str, words: &[&str]) {
        let output = self.command(line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "toroid {line}: {error}");
        for word in words {
            assert!(
                error.contains(word),
                "toroid {line}: {word:?} is not in {error:?}"
            );
        }
    }

    /// Serves on any free port of loopback.
    fn serve(&self, line: &str) -> Server {
        let log = self.path("log");
        let line = format!("--json drive serve --listen 127.0.0.1:0 {line}");
        let mut child = self
            .command(&line)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        let said = serde_json::from_str(&first)
            .unwrap_or_else(|_| panic!("{line}: {first:?}, {}", fs::read_to_string(&log).unwrap()));
        Server { child, said, log }
    }
}

/// The program while it serves.
struct Server {
    child: Child,
    /// Its first line.
    said: Value,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// The address of the subsystem that is first in the plan.
    fn address(&self) -> Address {
        self.said["drives"][0].as_str().unwrap().parse().unwrap()
    }

    fn terminate(&self) {
        let sent = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end; the exit code and the log.
    fn ended(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), fs::read_to_string(&self.log).unwrap());
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Status line and body of what HTTP gives for a path.
    fn http(&self, method: &str, path: &str) -> (String, String) {
        self.http_of(method, path, "test")
    }

    /// The same, with the server asked for by this name.
    fn http_of(&self, method: &str, path: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.said["metrics"].as_str().unwrap()).unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.lines().next().unwrap();
        (status.to_owned(), body.to_owned())
    }

    /// Every sample of the metrics, by name and labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let (status, page) = self.http("GET", "/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(page.ends_with("# EOF\n"));
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                (name.to_owned(), value.parse().unwrap())
            })
            .collect()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn options(nqn: &str) -> ConnectOptions {
    ConnectOptions::new(nqn, [7; 16])
}

const TWO_NAMESPACES: &str = r#"
    [[subsystem]]
    nqn = "nqn.2024-01.example:vault"
    [[subsystem.namespace]]
    nsid = 3
    image = "a.img"
    hosts = ["nqn.2024-01.example:alice"]
    [[subsystem.namespace]]
    nsid = 9
    image = "b.img"
    [[subsystem.host]]
    nqn = "nqn.2024-01.example:alice"
    [[subsystem.host]]
    nqn = "nqn.2024-01.example:bob"
    keys = [5]
"#;

#[test]
fn hosts_see_their_namespaces_and_others_are_refused() {
    let place = Place::new(&["a.img", "b.img"]);
    place.write("serve.toml", TWO_NAMESPACES);
    let server = place.serve("--config serve.toml --log-format json");
    assert_eq!(server.said["subsystems"][0]["nqn"], SUBSYSTEM);
    assert_eq!(server.said["metrics"], Value::Null);
    let address = server.address();
    runtime().block_on(async {
        let nsids = |controller: &RemoteController| {
            let namespaces = controller.info().namespaces.iter();
            namespaces.map(|n| n.nsid()).collect::<Vec<_>>()
        };
        let alice = tcp::connect(&address, &options(ALICE)).await.unwrap();
        let bob = tcp::connect(&address, &options(BOB)).await.unwrap();
        assert_eq!(nsids(&alice), [3, 9]);
        assert_eq!(nsids(&bob), [9]);
        let first = alice.info().namespace(3).unwrap();
        let second = alice.info().namespace(9).unwrap();
        assert_ne!(first.nguid(), second.nguid());
        assert_eq!(bob.info().namespace(9), Some(second));

        write_blocks(&alice, 3, 0, &[3; 4096], &[], false)
            .await
            .unwrap();
        write_blocks(&alice, 9, 0, &[9; 4096], &[], false)
            .await
            .unwrap();
        flush(&alice, BROADCAST_NSID).await.unwrap();
        let read = read_blocks(&bob, 9, 0, 1).await.unwrap();
        assert_eq!(read.data, [9; 4096]);
        let hidden = read_blocks(&bob, 3, 0, 1).await.unwrap_err();
        assert_eq!(hidden, NvmeError::UnknownNamespace { nsid: 3 });
        let hidden = bob.submit(Request::new(Sqe::read(1, 3, 0, 0))).await;
        assert_eq!(hidden.cqe.status(), Status::INVALID_NAMESPACE);

        let refused = tcp::connect(&address, &options(EVE)).await.err();
        assert!(
            matches!(refused, Some(ConnectError::HostRefused { .. })),
            "{refused:?}"
        );
        let connector = Connector::from(&address);
        assert!(connector.discover(&options(EVE)).await.unwrap().is_empty());
        assert_eq!(connector.discover(&options(BOB)).await.unwrap().len(), 1);
    });
    server.terminate();
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |message: &str| {
        lines
            .iter()
            .filter(|line| line["message"] == message)
            .count()
    };
    assert_eq!(count("drive opened"), 2, "{log}");
    assert_eq!(count("host at work"), 2, "{log}");
    assert_eq!(count("host is not on the list"), 1, "{log}");
    assert_eq!(count("drive flushed and closed"), 2, "{log}");
    assert_eq!(lines.last().unwrap()["message"], "stopped");
}

#[test]
fn one_image_needs_no_configuration() {
    let place = Place::new(&["a.img"]);
    let uuid = {
        let image = Image::open(&place.path("a.img")).unwrap();
        image.info().uuid()
    };
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
    let server = place.serve(&format!("a.img --host {BOB} --log-level off"));
    let address = server.address();
    assert_eq!(address.nqn, nqn);
    assert_ne!(address.port, 0);
    runtime().block_on(async {
        let bob = tcp::connect(&address, &options(BOB)).await.unwrap();
        assert_eq!(bob.info().namespaces.len(), 1);
        assert_eq!(bob.info().namespaces[0].nsid(), 1);
        assert!(tcp::connect(&address, &options(EVE)).await.is_err());
    });
    // While a drive has it, nobody else gets the image.
    place.fails(1, "drive serve a.img --listen 127.0.0.1:0", &["in use"]);
    server.terminate();
    assert_eq!(server.ended(), (Some(0), String::new()));

    // In text, the first line is what `--drive` takes.
    let mut child = place
        .command("drive serve a.img --listen 127.0.0.1:0 --log-level off")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let address: Address = first.trim_end().parse().unwrap();
    assert_eq!(address.nqn, nqn);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn hosts_and_controllers_authenticate() {
    let place = Place::new(&["a.img"]);
    place.ok("keys host-secret --out alice.dhchap --hash sha512");
    place.ok("keys host-secret --out vault.dhchap");
    place.fails(1, "keys host-secret --out vault.dhchap", &["--force"]);
    let secret = |name: &str| -> Secret {
        let text = fs::read_to_string(place.path(name)).unwrap();
        text.trim_end().parse().unwrap()
    };
    place.write(
        "serve.toml",
        r#"
        [[subsystem]]
        nqn = "nqn.2024-01.example:vault"
        [[subsystem.namespace]]
        image = "a.img"
        [[subsystem.host]]
        nqn = "nqn.2024-01.example:alice"
        secret_file = "alice.dhchap"
        controller_secret_file = "vault.dhchap"
        "#,
    );
    let server = place.serve("--config serve.toml --log-level debug");
    let address = server.address();
    let (alice, vault) = (secret("alice.dhchap"), secret("vault.dhchap"));
    runtime().block_on(async {
        let with = |secret: &Secret, controller: Option<&Secret>| ConnectOptions {
            secret: Some(secret.clone()),
            controller_secret: controller.cloned(),
            ..options(ALICE)
        };
        for controller in [None, Some(&vault)] {
            let controller = tcp::connect(&address, &with(&alice, controller))
                .await
                .unwrap();
            write_blocks(&controller, 1, 0, &[1; 4096], &[], false)
                .await
                .unwrap();
        }
        let wrong = [
            options(ALICE),
            with(&vault, None),
            with(&alice, Some(&alice)),
        ];
        for options in wrong {
            assert!(tcp::connect(&address, &options).await.is_err());
        }
    });
    server.terminate();
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
    for secret in [&alice, &vault] {
        let text = secret.to_text();
        let key = text.rsplit(':').nth(1).unwrap();
        assert!(!log.contains(key), "a secret is in the log");
    }

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = place.path("alice.dhchap");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let words = ["alice.dhchap is open to others (mode 640)", "chmod 600"];
        place.fails(
            1,
            "drive serve --config serve.toml --listen 127.0.0.1:0",
            &words,
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "DHHC-1:00:AAAA:").unwrap();
        let words = ["alice.dhchap holds no secret"];
        place.fails(
            1,
            "drive serve --config serve.toml --listen 127.0.0.1:0",
            &words,
        );
    }
}

#[cfg(feature = "tls")]
#[test]
fn hosts_encrypt_their_connections() {
    let place = Place::new(&["a.img"]);
    place.ok("keys tls-key --out alice.psk");
    place.ok("keys tls-key --out other.psk --hash sha384");
    place.fails(1, "keys tls-key --out alice.psk", &["--force"]);
    place.write(
        "serve.toml",
        r#"
        tls = "required"
        [[subsystem]]
        nqn = "nqn.2024-01.example:vault"
        [[subsystem.namespace]]
        image = "a.img"
        [[subsystem.host]]
        nqn = "nqn.2024-01.example:alice"
        tls_key_file = "alice.psk"
        "#,
    );
    let by_options =
        format!("a.img --nqn nqn.2024-01.example:vault --host {ALICE} --tls-key alice.psk");
    for (arguments, without) in [("--config serve.toml", false), (by_options.as_str(), true)] {
        let server = place.serve(&format!("{arguments} --log-level debug"));
        let url = server.address().to_string();
        let info = format!("drive info {url} --host-nqn {ALICE}");
        place.ok(&format!("{info} --tls-key alice.psk"));
        place.ok(&format!(
            "drive discover {url} --host-nqn {ALICE} --tls-key alice.psk"
        ));
        place.fails(
            1,
            &format!("{info} --tls-key other.psk"),
            &["no secure channel"],
        );
        let words = if without { "does not admit host" } else { "" };
        place.fails(1, &info, &[words]);
        server.terminate();
        let (code, log) = server.ended();
        assert_eq!(code, Some(0), "{log}");
        let text = fs::read_to_string(place.path("alice.psk")).unwrap();
        let key = text.trim_end().rsplit(':').nth(1).unwrap().to_owned();
        assert!(!log.contains(&key), "a key is in the log");
    }
    place.fails(
        1,
        "drive serve --config serve.toml --tls off --check",
        &["has a TLS key"],
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = place.path("alice.psk");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let serve = "drive serve --config serve.toml --listen 127.0.0.1:0";
        place.fails(1, serve, &["alice.psk is open to others (mode 644)"]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "DHHC-1:00:AAAA:").unwrap();
        place.fails(1, serve, &["alice.psk holds no TLS key"]);
    }
}

#[cfg(feature = "tls")]
#[test]
fn hosts_take_their_tls_key_from_their_authentication() {
    let place = Place::new(&["a.img"]);
    for file in ["alice", "vault", "other"] {
        place.ok(&format!("keys host-secret --out {file}.dhchap"));
    }
    place.write(
        "serve.toml",
        r#"
        [[subsystem]]
        nqn = "nqn.2024-01.example:vault"
        [[subsystem.namespace]]
        image = "a.img"
        [[subsystem.host]]
        nqn = "nqn.2024-01.example:alice"
        secret_file = "alice.dhchap"
        controller_secret_file = "vault.dhchap"
        concatenate = true
        "#,
    );
    let server = place.serve("--config serve.toml --metrics 0 --log-level debug");
    let url = server.address().to_string();
    let secrets = |host: &str, controller: &str| {
        format!("--host-nqn {ALICE} --host-secret {host} --controller-secret {controller}")
    };
    let both = secrets("alice.dhchap", "vault.dhchap");
    place.ok(&format!("drive info {url} {both} --concatenate"));
    // Without the key, or with another secret on either side, there is no way in.
    let wrong = [
        both.clone(),
        secrets("other.dhchap", "vault.dhchap") + " --concatenate",
        secrets("alice.dhchap", "other.dhchap") + " --concatenate",
    ];
    for arguments in wrong {
        place.fails(
            1,
            &format!("drive info {url} {arguments}"),
            &["authenticat"],
        );
    }
    // An option that cannot do what it says is refused before anything connects.
    for arguments in [
        format!("--host-nqn {ALICE} --host-secret alice.dhchap --concatenate"),
        format!("{both} --tls-key alice.dhchap --concatenate"),
    ] {
        let words = ["--concatenate"];
        place.fails(2, &format!("drive info {url} {arguments}"), &words);
    }
    server.terminate();
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
}

/// x + y by table; writing y runs it.
const PROGRAM: &str = "
    .key 5
    .reg x   = cor:1
    .reg y   = cow:2
    .tv  id  = x
        homadd    x, y
        bootstrap id, x
        return    x
";

#[test]
fn computes_and_tells_of_it() {
    let place = Place::new(&["a.img", "b.img"]);
    place.write("serve.toml", TWO_NAMESPACES);
    let server = place.serve("--config serve.toml --metrics 0");
    let address = server.address();
    let (status, body) = server.http("GET", "/healthz");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(health["ok"], true);
    assert_eq!(health["drives"][1]["nsid"], 9);
    assert_eq!(health["drives"][1]["read_only"], false);
    runtime().block_on(async {
        let controller = tcp::connect(&address, &options(BOB)).await.unwrap();
        let session = Session::open(Arc::new(controller), 9).await.unwrap();
        let mut rng = Csprng::from_os().unwrap();
        let client = ClientKey::generate(&TINY, &mut rng);
        session
            .put_keys(5, &client, &Progress::none())
            .await
            .unwrap();
        let assembly = toroid_isa::assemble(PROGRAM).unwrap();
        session.install(&TINY, &assembly).await.unwrap();
        for (ty, id, message) in [(VrType::LweCor, 1, 3), (VrType::LweCow, 2, -2)] {
            let sample = client.encrypt(message).unwrap();
            let register = VrNumber::new(ty, 5, id).unwrap();
            session.put_sample(register, &sample).await.unwrap();
        }
        let register = VrNumber::new(VrType::LweCow, 5, 2).unwrap();
        let stored = session.get_sample(register).await.unwrap();
        assert_eq!(client.decrypt(&stored.ciphertext).unwrap(), 1);
        // A key id of somebody else.
        let register = VrNumber::new(VrType::LweCow, 6, 2).unwrap();
        let sample = client.encrypt(0).unwrap();
        let denied = session.put_sample(register, &sample).await;
        assert!(denied.is_err());
    });
    let metrics = server.metrics();
    let value = |name: &str| {
        let value = metrics.get(name);
        *value.unwrap_or_else(|| panic!("no {name} in {metrics:#?}"))
    };
    let second = format!("subsystem=\"{SUBSYSTEM}\",nsid=\"9\"");
    let first = format!("subsystem=\"{SUBSYSTEM}\",nsid=\"3\"");
    assert_eq!(value(&format!("toroid_bootstraps_total{{{second}}}")), 1.0);
    assert_eq!(value(&format!("toroid_bootstraps_total{{{first}}}")), 0.0);
    let of_bob = format!("toroid_host_bootstraps_total{{{second},host=\"{BOB}\"}}");
    assert_eq!(value(&of_bob), 1.0);
    let ran = format!("toroid_programs_total{{{second},result=\"ran\"}}");
    assert_eq!(value(&ran), 1.0);
    assert!(value("toroid_commands_total{command=\"write\",status=\"success\"}") > 10.0);
    assert!(value("toroid_commands_total{command=\"write\",status=\"media\"}") >= 1.0);
    assert_eq!(
        value("toroid_command_duration_seconds_count{kind=\"compute\"}"),
        1.0
    );
    assert!(value("toroid_command_duration_seconds_sum{kind=\"compute\"}") > 0.0);
    let last = "toroid_command_duration_seconds_bucket{le=\"+Inf\",kind=\"write\"}";
    assert_eq!(
        value(last),
        value("toroid_command_duration_seconds_count{kind=\"write\"}")
    );
    assert!(value("toroid_written_bytes_total") > 100_000.0);
    assert_eq!(value("toroid_commands_in_flight"), 0.0);
    assert!(value("toroid_connections_accepted_total") >= 2.0);
    for (method, path, expected) in [
        ("GET", "/nothing", "HTTP/1.1 404 Not Found"),
        ("POST", "/metrics", "HTTP/1.1 405 Method Not Allowed"),
        ("POST", "/status", "HTTP/1.1 405 Method Not Allowed"),
        // Whose name leads to this machine may be anybody's.
        ("GET", "/", "HTTP/1.1 421 Misdirected Request"),
        ("GET", "/status", "HTTP/1.1 421 Misdirected Request"),
    ] {
        assert_eq!(server.http(method, path).0, expected);
    }
    let (status, page) = server.http_of("GET", "/", "localhost");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(page.starts_with("<!doctype html>"));
    the_page_has_the_figures_of_the_metrics(&server, &metrics);
    let address = server.said["metrics"].as_str().unwrap();
    let shown = place.ok(&format!(
        "--json drive top {address} --count 2 --interval 0.01"
    ));
    let looks: Vec<Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (looks.len(), &looks[1]["drives"][1]["rows"]),
        (2, &1.into())
    );
    let shown = place.ok(&format!(
        "drive top http://{address}/metrics --count 2 --interval 0.01"
    ));
    assert!(shown.contains("rows 0.0 a second"), "{shown}");
    place.fails(1, "drive top 1 --count 1", &["127.0.0.1:1 does not answer"]);
    // Many at once, and nonsense, do no harm.
    for _ in 0..20 {
        let address = server.said["metrics"].as_str().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"\0\0\0\0\r\n\r\n").unwrap();
    }
    server.metrics();
    server.terminate();
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("program ran"), "{log}");
}

/// What `/status` tells is what the metrics told, where nothing has happened since.
fn the_page_has_the_figures_of_the_metrics(server: &Server, metrics: &BTreeMap<String, f64>) {
    let (status, body) = server.http_of("GET", "/status", "127.0.0.1");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let figures: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&figures["kind"], &figures["ok"]),
        (&"drive".into(), &true.into())
    );
    assert!(figures["memory"]["process_bytes"].as_u64().unwrap() > 1 << 20);
    for drive in figures["drives"].as_array().unwrap() {
        let labels = format!("subsystem=\"{SUBSYSTEM}\",nsid=\"{}\"", drive["nsid"]);
        for (field, metric) in [
            ("/rows", "rows_total"),
            ("/bootstraps", "bootstraps_total"),
            ("/pages_in", "pages_in_total"),
            ("/pages_out", "pages_out_total"),
            ("/register_bytes", "register_bytes_total"),
            ("/media_errors", "media_errors_total"),
            ("/programs/running", "programs_running"),
            ("/programs/waiting", "programs_waiting"),
            ("/memory/samples_bytes", "resident_bytes"),
            ("/memory/samples_limit", "resident_limit_bytes"),
            ("/memory/swapped_bytes", "swapped_bytes"),
            ("/memory/swap_bytes", "swap_bytes"),
            ("/memory/keys_bytes", "keys_bytes"),
            ("/memory/keys_limit", "keys_limit_bytes"),
            ("/space/bytes", "image_bytes"),
            ("/hosts_known", "hosts_known"),
        ] {
            let told = metrics[&format!("toroid_{metric}{{{labels}}}")];
            assert_eq!(
                drive.pointer(field).unwrap().as_f64(),
                Some(told),
                "{field}"
            );
        }
    }
    let second = &figures["drives"][1];
    assert_eq!(
        (&second["rows"], &second["programs"]["ran"]),
        (&1.into(), &1.into())
    );
    assert_eq!(second["hosts"][0]["host"], BOB);
    assert_eq!(second["hosts"][0]["rows"], 1);
    assert_eq!(second["running"], Value::Array(Vec::new()));
    assert_ne!(second["errors"][0]["reason"], "");
}

#[test]
fn ends_cleanly_under_load() {
    const WRITERS: u64 = 8;
    let place = Place::new(&["a.img", "b.img"]);
    place.write("serve.toml", TWO_NAMESPACES);
    let server = place.serve("--config serve.toml");
    let address = server.address();
    // The latest value of each block that a completed write has.
    let acknowledged: Arc<Vec<AtomicU64>> =
        Arc::new((0..2 * WRITERS).map(|_| AtomicU64::new(0)).collect());
    let stopping = Arc::new(AtomicBool::new(false));
    let log = runtime().block_on(async {
        let options = ConnectOptions {
            io_queues: 2,
            ..options(ALICE)
        };
        let controller = Arc::new(tcp::connect(&address, &options).await.unwrap());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..2 * WRITERS {
            let (controller, acknowledged) = (Arc::clone(&controller), Arc::clone(&acknowledged));
            let stopping = Arc::clone(&stopping);
            writers.spawn(async move {
                let (nsid, lba) = (if writer % 2 == 0 { 3 } else { 9 }, writer);
                for value in 1u64.. {
                    let block = value.to_le_bytes().repeat(512);
                    match write_blocks(&*controller, nsid, lba, &block, &[], false).await {
                        Ok(()) => {
                            acknowledged[writer as usize].store(value, Ordering::SeqCst);
                        }
                        Err(error) => {
                            assert!(stopping.load(Ordering::SeqCst), "{error}");
                            return;
                        }
                    }
                }
            });
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while acknowledged
            .iter()
            .any(|value| value.load(Ordering::SeqCst) < 3)
        {
            assert!(Instant::now() < deadline, "no progress");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stopping.store(true, Ordering::SeqCst);
        server.terminate();
        let ended = tokio::task::spawn_blocking(move || server.ended());
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
        let (code, log) = ended.await.unwrap();
        assert_eq!(code, Some(0), "{log}");
        log
    });
    for stage in [
        "stopping: no further connections",
        "connections closed",
        "drive flushed and closed",
        "stopped",
    ] {
        assert!(log.contains(stage), "{stage:?} is not in {log}");
    }
    for (name, parity) in [("a.img", 0), ("b.img", 1)] {
        let image = Image::open(&place.path(name)).unwrap();
        for writer in (0..2 * WRITERS).filter(|writer| writer % 2 == parity) {
            let mut block = vec![0; 4096];
            image.read_blocks(writer, &mut block, &mut []).unwrap();
            let stored = u64::from_le_bytes(block[..8].try_into().unwrap());
            assert_eq!(block, stored.to_le_bytes().repeat(512), "a torn block");
            let value = acknowledged[writer as usize].load(Ordering::SeqCst);
            // The write after it may have taken effect, though its completion was never seen.
            assert!(
                stored == value || stored == value + 1,
                "{stored} after {value}"
            );
        }
    }
}

#[test]
fn a_drive_that_cannot_flush_is_not_healthy() {
    let place = Place::new(&["a.img"]);
    let server = place.serve("a.img --metrics 0 --inject flush");
    let address = server.address();
    assert_eq!(server.http("GET", "/healthz").0, "HTTP/1.1 200 OK");
    runtime().block_on(async {
        let controller = tcp::connect(&address, &options(BOB)).await.unwrap();
        write_blocks(&controller, 1, 0, &[1; 4096], &[], false)
            .await
            .unwrap();
        flush(&controller, 1).await.unwrap_err();
    });
    let (status, body) = server.http("GET", "/healthz");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(health["ok"], false);
    assert_eq!(health["drives"][0]["read_only"], true);
    let name = format!(
        "toroid_drive_read_only{{subsystem=\"{}\",nsid=\"1\"}}",
        address.nqn
    );
    assert_eq!(server.metrics()[&name], 1.0);
    server.terminate();
    let (code, log) = server.ended();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("drive not flushed"), "{log}");
}

#[test]
fn wrong_configurations_and_options() {
    let place = Place::new(&["a.img"]);
    place.write("line.toml", "listen = \"127.0.0.1:0\"\n\nlisteners = 3\n");
    let serve = "drive serve --config";
    let words = ["line.toml:3: unknown field `listeners`"];
    place.fails(1, &format!("{serve} line.toml"), &words);
    place.fails(1, &format!("{serve} none.toml"), &["cannot read none.toml"]);
    place.write("empty.toml", "");
    place.fails(1, &format!("{serve} empty.toml"), &["nothing to serve"]);
    place.write("two.toml", TWO_NAMESPACES);
    let words = ["the configuration has subsystems"];
    place.fails(1, &format!("{serve} two.toml a.img"), &words);
    let words = ["cannot open", "b.img"];
    place.fails(1, &format!("{serve} two.toml --listen 127.0.0.1:0"), &words);
    place.fails(
        1,
        "drive serve a.img --listen 0.0.0.0:0",
        &["would let in every host", "--allow-any-host"],
    );
    place.fails(
        1,
        "drive serve a.img --listen 192.0.2.1:1 --allow-any-host",
        &["cannot listen"],
    );
    place.fails(2, "drive serve", &["required"]);
    place.fails(2, "drive serve --nqn nqn.x --config two.toml", &["IMAGE"]);
    place.fails(2, "drive serve a.img --nqn vault", &["is no NQN"]);
    place.fails(2, "drive serve a.img --listen here", &["invalid"]);
    place.fails(
        2,
        "drive serve a.img --log-level loud",
        &["not a log level"],
    );
    place.fails(2, "drive serve --print-config a.img", &["cannot be used"]);

    // Checked without being opened: there is no b.img.
    let said = place.ok(&format!("--json {serve} two.toml --check --metrics 9464"));
    let plan: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(plan["metrics"], "127.0.0.1:9464");
    assert_eq!(plan["subsystems"][0]["namespaces"][1]["nsid"], 9);
    assert_eq!(plan["subsystems"][0]["hosts"][1]["keys"][0], 5);
    let said = place.ok(&format!("{serve} two.toml --check"));
    assert!(
        said.contains("namespace 3: b.img") || said.contains("namespace 9: b.img"),
        "{said}"
    );
    assert!(
        said.contains(&format!("host {BOB}: key ids {{5}}, no authentication")),
        "{said}"
    );
}

/// Memory of a process that is in use, in MiB.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib >> 10
}

#[test]
fn memory_is_returned_after_a_load() {
    let place = Place::new(&["a.img"]);
    let server = place.serve(&format!("a.img --nqn {SUBSYSTEM}"));
    let runtime = Runtime::new().unwrap();
    let address = server.address();
    let hosts: Vec<RemoteController> = (1..9)
        .map(|number| {
            let options = ConnectOptions::new(format!("{ALICE}-{number}"), [number; 16]);
            let connect = tcp::connect(&address, &options);
            runtime.block_on(connect).unwrap()
        })
        .collect();
    let before = resident(&server);
    // 1 MiB each, and far more of them than a second takes.
    let until = Instant::now() + Duration::from_secs(3);
    let reads = hosts
        .iter()
        .flat_map(|host| [host; 16])
        .map(|host| async move {
            while Instant::now() < until {
                read_blocks(host, 1, 0, 256).await.unwrap();
            }
        });
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < until {
                most.fetch_max(resident(&server), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        runtime.block_on(futures::future::join_all(reads));
    });
    let most = most.into_inner();
    assert!(
        most < before + 400,
        "{before} MiB before, {most} MiB under load"
    );
    drop(hosts);
    let limit = Instant::now() + Duration::from_secs(20);
    while resident(&server) > before + 32 {
        assert!(
            Instant::now() < limit,
            "{before} MiB before, {most} MiB under load, {} MiB after",
            resident(&server)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_example_is_documented_and_is_read() {
    let example = include_str!("../src/serve/example.toml");
    let page = include_str!("../../../docs/reference/configuration.md");
    assert!(
        page.contains(example),
        "docs/reference/configuration.md has another example"
    );
    let place = Place::new(&[]);
    assert_eq!(
        place.ok("drive serve --print-config").trim_end(),
        example.trim_end()
    );
    place.write("example.toml", example);
    place.ok("drive serve --config example.toml --check");
}
