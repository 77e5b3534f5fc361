//! What is to be served: the configuration file, and what it says once it is understood.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;
use toroid_drive::image::{display_size, parse_size};
use toroid_drive::ssd::{IoEngine, IoMode, IoOptions};
use toroid_gpu::BackendName;
use toroid_nvme::fabrics::{self, DISCOVERY_NQN, TlsMode};
use toroid_nvme::tcp;
use toroid_tfhe::arithmetic::ArithmeticKind;

use super::log;
use crate::backend::ArithmeticArgs;

/// A configuration with every option.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Key ids are below this.
const KEY_IDS: u32 = 1 << 24;

/// Where a server listens unless it is told.
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), tcp::PORT);

/// Everything that a server is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Config {
    /// Where hosts connect to.
    pub listen: Vec<SocketAddr>,
    /// What the discovery log shows instead.
    pub advertise: Option<SocketAddr>,
    /// Where metrics and health are.
    pub metrics: Option<Endpoint>,
    /// Whether any host may connect from other machines.
    pub allow_any_host: bool,
    /// Whether connections are encrypted; `None`: those of hosts that have a key.
    pub tls: Option<Tls>,
    /// Arithmetic of bootstraps.
    #[serde(with = "ArithmeticName")]
    pub arithmetic: ArithmeticKind,
    /// What computes.
    #[serde(serialize_with = "shown")]
    pub backend: BackendName,
    /// What is logged, and how.
    pub log: Log,
    /// How images are read and written.
    pub io: Io,
    /// Memory of each drive.
    pub memory: Memory,
    /// What hosts may use.
    pub limits: Limits,
    /// What is served.
    pub subsystems: Vec<Subsystem>,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subsystem {
    /// Its name; `None` takes one from the UUID of its first image.
    pub nqn: Option<String>,
    /// Its namespaces.
    pub namespaces: Vec<Namespace>,
    /// Who may connect; `None` for everybody.
    pub hosts: Option<Vec<AllowedHost>>,
    /// Whether hosts get namespaces of the Computational Programs and Subsystem Local Memory command sets, on the first drive that they
    /// see. Experimental.
    pub computational: bool,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: u32,
    /// The image.
    pub image: PathBuf,
    /// Hosts that see it; `None` for all of the subsystem.
    pub hosts: Option<Vec<String>>,
}

/// A host that may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedHost {
    /// Its name.
    pub nqn: String,
    /// The key ids that it may use; `None` for all.
    pub keys: Option<BTreeSet<u32>>,
    /// File with the secret by which it authenticates.
    pub secret_file: Option<PathBuf>,
    /// File with the secret by which the controller authenticates.
    pub controller_secret_file: Option<PathBuf>,
    /// File with the key of its encrypted connections. Without one they need not be.
    pub tls_key_file: Option<PathBuf>,
    /// Whether its connections are encrypted with a key of its authentication.
    pub concatenate: bool,
}

impl AllowedHost {
    /// Whether it cannot use a drive without TLS.
    fn must_encrypt(&self) -> bool {
        self.tls_key_file.is_some() || self.concatenate
    }
}

/// Whether connections are encrypted by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// None.
    Off,
    /// Those of hosts that have a key.
    Allowed,
    /// All.
    Required,
}

impl From<Tls> for TlsMode {
    fn from(tls: Tls) -> TlsMode {
        match tls {
            Tls::Off => TlsMode::Off,
            Tls::Allowed => TlsMode::Allowed,
            Tls::Required => TlsMode::Required,
        }
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Least level.
    pub level: log::Level,
    /// Text or JSON.
    pub format: log::Format,
}

/// How images are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// Past the page cache.
    pub direct: bool,
    /// By what.
    #[serde(with = "IoEngineName")]
    pub engine: IoEngine,
}

/// [`ArithmeticKind`], as the file names it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ArithmeticKind", rename_all = "lowercase")]
enum ArithmeticName {
    Fft,
    Ntt,
}

/// [`IoEngine`], as the file names it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IoEngine", rename_all = "snake_case")]
enum IoEngineName {
    Auto,
    IoUring,
    Threads,
}

impl Io {
    /// As an image takes it.
    pub fn of_image(self) -> IoOptions {
        let mode = if self.direct {
            IoMode::Direct
        } else {
            IoMode::Buffered
        };
        IoOptions {
            mode,
            engine: self.engine,
        }
    }
}

/// Memory of each drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// For samples; more overflow to the image's swap area.
    pub samples: Option<Size>,
    /// For keys, test vectors and programs.
    pub keys: Option<Size>,
    /// Samples on the stack.
    pub stack_slots: Option<u32>,
}

/// What hosts may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at a time per address.
    pub connections: u32,
    /// Controllers at a time, of all hosts.
    pub controllers: u32,
    /// Controllers at a time per host.
    #[serde(alias = "controllers_a_host")]
    pub controllers_per_host: u32,
    /// I/O queues per controller.
    pub io_queues: u16,
    /// Commands in flight per queue.
    pub queue_entries: u16,
    /// Data that a connection's commands may hold.
    pub bytes_in_flight: Size,
    /// Data, input and output that all connections may hold.
    pub total_bytes_in_flight: Size,
    /// Connections per address that have not connected to a controller.
    pub newcomers_per_address: u32,
    /// Seconds for Connect, and for the authentication.
    pub handshake_seconds: u32,
    /// Seconds after which a peer that takes no data is disconnected.
    pub stall_seconds: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        let limits = fabrics::Limits::default();
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        Limits {
            connections: 1024,
            controllers: narrow(limits.controllers),
            controllers_per_host: narrow(limits.controllers_per_host),
            io_queues: limits.io_queues,
            queue_entries: limits.queue_entries,
            bytes_in_flight: Size(limits.bytes_in_flight as u64),
            total_bytes_in_flight: Size(limits.total_bytes_in_flight as u64),
            newcomers_per_address: narrow(limits.newcomers_per_address),
            handshake_seconds: seconds(limits.handshake),
            stall_seconds: seconds(limits.stall),
        }
    }
}

impl Limits {
    /// The limits of the target.
    pub fn of_target(&self) -> fabrics::Limits {
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        fabrics::Limits {
            io_queues: self.io_queues,
            queue_entries: self.queue_entries,
            bytes_in_flight: bytes(self.bytes_in_flight),
            total_bytes_in_flight: bytes(self.total_bytes_in_flight),
            newcomers_per_address: self.newcomers_per_address as usize,
            controllers: self.controllers as usize,
            controllers_per_host: self.controllers_per_host as usize,
            handshake: Duration::from_secs(self.handshake_seconds.into()),
            stall: Duration::from_secs(self.stall_seconds.into()),
            ..fabrics::Limits::default()
        }
    }
}

/// Bytes, such as `"16MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Size, String> {
        text.parse()
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        parse_size(text)
            .map(Size)
            .map_err(|error| error.to_string())
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&display_size(self.0))
    }
}

/// An address; a port alone is one of this machine only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "SocketAddr")]
pub struct Endpoint(pub SocketAddr);

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> SocketAddr {
        endpoint.0
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Endpoint, String> {
        text.parse()
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Endpoint((Ipv4Addr::LOCALHOST, port).into()));
        }
        let address = text.parse().map(Endpoint);
        address.map_err(|_| format!("{text:?} is not an address; expected IP:PORT, or a port"))
    }
}

/// The name of a subsystem or of a host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Nqn(pub String);

impl TryFrom<String> for Nqn {
    type Error = String;

    fn try_from(text: String) -> Result<Nqn, String> {
        if !fabrics::is_nqn(&text) || text == DISCOVERY_NQN {
            return Err(format!(
                "{text:?} is no NQN; expected nqn.YYYY-MM.DOMAIN:NAME of at most {} bytes",
                fabrics::MAX_NQN
            ));
        }
        Ok(Nqn(text))
    }
}

impl FromStr for Nqn {
    type Err = String;

    fn from_str(text: &str) -> Result<Nqn, String> {
        Nqn::try_from(text.to_owned())
    }
}

/// The file as it stands.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    #[serde(deserialize_with = "one_or_several")]
    listen: Vec<SocketAddr>,
    advertise: Option<SocketAddr>,
    metrics: Option<Endpoint>,
    allow_any_host: bool,
    tls: Option<Tls>,
    #[serde(with = "ArithmeticName")]
    arithmetic: ArithmeticKind,
    #[serde(deserialize_with = "named")]
    backend: BackendName,
    /// The former way to choose the NTT.
    exact: bool,
    log: Log,
    io: Io,
    memory: Memory,
    limits: Limits,
    #[serde(rename = "subsystem")]
    subsystems: Vec<Spanned<FileSubsystem>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSubsystem {
    nqn: Option<Spanned<Nqn>>,
    #[serde(rename = "namespace", default)]
    namespaces: Vec<FileNamespace>,
    #[serde(rename = "host")]
    hosts: Option<Vec<FileHost>>,
    #[serde(default)]
    experimental_computational_programs: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNamespace {
    nsid: Option<Spanned<u32>>,
    image: Spanned<PathBuf>,
    hosts: Option<Vec<Spanned<Nqn>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHost {
    nqn: Spanned<Nqn>,
    keys: Option<Vec<Spanned<u32>>>,
    secret_file: Option<PathBuf>,
    controller_secret_file: Option<Spanned<PathBuf>>,
    tls_key_file: Option<PathBuf>,
    concatenate: Option<Spanned<bool>>,
}

/// A name that is written as it is read.
fn shown<S: Serializer>(name: &BackendName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}

fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BackendName, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(de::Error::custom)
}

/// An address, or a list of them.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    struct Addresses;

    impl<'de> Visitor<'de> for Addresses {
        type Value = Vec<SocketAddr>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an address such as \"127.0.0.1:4420\", or a list of them")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<SocketAddr>, E> {
            let address = text.parse();
            address
                .map(|address| vec![address])
                .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<SocketAddr>, A::Error> {
            let mut addresses = Vec::new();
            while let Some(address) = list.next_element()? {
                addresses.push(address);
            }
            Ok(addresses)
        }
    }

    deserializer.deserialize_any(Addresses)
}

/// A text with errors at its lines.
struct Source<'a> {
    name: String,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Option<Range<usize>>, message: impl fmt::Display) -> anyhow::Error {
        let name = &self.name;
        let Some(before) = span.and_then(|span| self.text.get(..span.start)) else {
            return anyhow!("{name}: {message}");
        };
        let line = before.matches('\n').count() + 1;
        anyhow!("{name}:{line}: {message}")
    }
}

/// The least that samples, or keys, are given in memory.
const LEAST_MEMORY: u64 = 1 << 20;

impl Default for Config {
    /// What is served if nothing is said, but for the subsystems.
    fn default() -> Config {
        Config {
            listen: vec![DEFAULT_LISTEN],
            advertise: None,
            metrics: None,
            allow_any_host: false,
            tls: None,
            arithmetic: ArithmeticKind::default(),
            backend: BackendName::default(),
            log: Log::default(),
            io: Io::default(),
            memory: Memory::default(),
            limits: Limits::default(),
            subsystems: Vec::new(),
        }
    }
}

impl Config {
    /// Reads a configuration file. Relative paths in it are those from its own folder.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn read(path: &Path) -> anyhow::Result<Config> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Config::parse(&text, &shown.to_string(), folder)
    }

    /// Reads a configuration called `name`, whose relative paths are those from `folder`.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str, name: &str, folder: &Path) -> anyhow::Result<Config> {
        let source = Source {
            name: name.to_owned(),
            text,
        };
        let file: File = toml::from_str(text)
            .map_err(|error| source.error(error.span(), error.message().trim()))?;
        let subsystems = file.subsystems.iter();
        let subsystems = subsystems.map(|subsystem| check_subsystem(&source, subsystem, folder));
        let arithmetic = ArithmeticArgs {
            arithmetic: Some(file.arithmetic),
            exact: file.exact,
        };
        let config = Config {
            subsystems: subsystems.collect::<anyhow::Result<_>>()?,
            listen: if file.listen.is_empty() {
                vec![DEFAULT_LISTEN]
            } else {
                file.listen
            },
            advertise: file.advertise,
            metrics: file.metrics,
            allow_any_host: file.allow_any_host,
            tls: file.tls,
            arithmetic: arithmetic.chosen().unwrap_or_default(),
            backend: file.backend,
            log: file.log,
            io: file.io,
            memory: file.memory,
            limits: file.limits,
        };
        let mut names = BTreeSet::new();
        let mut images = BTreeSet::new();
        for (subsystem, checked) in file.subsystems.iter().zip(&config.subsystems) {
            let subsystem = subsystem.get_ref();
            if let Some(nqn) = &subsystem.nqn
                && !names.insert(&nqn.get_ref().0)
            {
                let message = format!("there is a subsystem {} already", nqn.get_ref().0);
                return Err(source.error(Some(nqn.span()), message));
            }
            for (namespace, checked) in subsystem.namespaces.iter().zip(&checked.namespaces) {
                if !images.insert(&checked.image) {
                    let message = format!(
                        "{} is another namespace already; an image can be only one",
                        checked.image.display()
                    );
                    return Err(source.error(Some(namespace.image.span()), message));
                }
            }
        }
        Ok(config)
    }

    /// Checks what depends on several options.
    ///
    /// # Errors
    /// What is missing, or too open.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.subsystems.is_empty(),
            "nothing to serve; expected an image, or a configuration with a [[subsystem]]"
        );
        let exposed = self
            .listen
            .iter()
            .find(|address| !address.ip().is_loopback());
        let open = self
            .subsystems
            .iter()
            .find(|subsystem| subsystem.hosts.is_none());
        if let (Some(address), Some(subsystem), false) = (exposed, open, self.allow_any_host) {
            bail!(
                "{} would let in every host that reaches {address}; expected a list of hosts, or --allow-any-host",
                subsystem.nqn.as_deref().unwrap_or("the subsystem")
            );
        }
        for subsystem in &self.subsystems {
            let hosts = || subsystem.hosts.iter().flatten();
            match self.tls {
                Some(Tls::Off) => {
                    if let Some(host) = hosts().find(|host| host.must_encrypt()) {
                        bail!(
                            "host {} has a TLS key, or takes one from its authentication, so it cannot connect without TLS; expected tls = \"allowed\" or \"required\"",
                            host.nqn
                        );
                    }
                }
                Some(Tls::Required) => {
                    ensure!(
                        subsystem.hosts.is_some(),
                        "TLS is required, and keys belong to hosts; expected a list of hosts"
                    );
                    if let Some(host) = hosts().find(|host| host.concatenate) {
                        bail!(
                            "TLS is required, but host {} authenticates for its key without; expected tls = \"allowed\"",
                            host.nqn
                        );
                    }
                    if let Some(host) = hosts().find(|host| host.tls_key_file.is_none()) {
                        bail!(
                            "TLS is required, and host {} has no key; expected a tls_key_file",
                            host.nqn
                        );
                    }
                }
                Some(Tls::Allowed) | None => {}
            }
        }
        let mut owners: BTreeMap<&Path, &str> = BTreeMap::new();
        let hosts = self.subsystems.iter().filter_map(|s| s.hosts.as_ref());
        for host in hosts.flatten() {
            if let Some(file) = &host.tls_key_file
                && let Some(other) = owners.insert(file, &host.nqn)
                && other != host.nqn
            {
                bail!(
                    "hosts {other} and {} have the same tls_key_file, so that each could connect as the other; expected a key for each host",
                    host.nqn
                );
            }
        }
        let limits = &self.limits;
        for (name, value, least) in [
            // An admin queue and an I/O queue.
            ("connections", limits.connections, 2),
            ("handshake_seconds", limits.handshake_seconds, 1),
            ("stall_seconds", limits.stall_seconds, 1),
        ] {
            ensure!(
                value >= least,
                "the limit {name} is {value}; expected at least {least}"
            );
        }
        limits.of_target().check()?;
        for (name, size) in [("samples", self.memory.samples), ("keys", self.memory.keys)] {
            ensure!(
                size.is_none_or(|size| size.0 >= LEAST_MEMORY),
                "the memory for {name} is below 1 MiB, which no program works with"
            );
        }
        let mut addresses = self.listen.clone();
        addresses.extend(self.metrics.map(|endpoint| endpoint.0));
        addresses.retain(|address| address.port() != 0);
        addresses.sort();
        if let Some([address, _]) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("{address} is to be listened on twice");
        }
        for subsystem in &self.subsystems {
            let mut names = BTreeSet::new();
            for host in subsystem.hosts.iter().flatten() {
                ensure!(
                    names.insert(&host.nqn),
                    "there is a host {} already",
                    host.nqn
                );
            }
        }
        Ok(())
    }

    /// Whether connections are encrypted.
    pub fn tls_mode(&self) -> TlsMode {
        let mut hosts = self.subsystems.iter().flat_map(|own| &own.hosts).flatten();
        match self.tls {
            Some(tls) => tls.into(),
            None if hosts.any(AllowedHost::must_encrypt) => TlsMode::Allowed,
            None => TlsMode::Off,
        }
    }

    /// An address beyond this machine at which every host is let in.
    pub fn open_to_all(&self) -> Option<SocketAddr> {
        let open = self
            .subsystems
            .iter()
            .any(|subsystem| subsystem.hosts.is_none());
        let exposed = self
            .listen
            .iter()
            .find(|address| !address.ip().is_loopback());
        exposed.filter(|_| open).copied()
    }

    /// Hosts that are let in by their name alone, where somebody else could use it.
    pub fn unauthenticated(&self) -> Vec<&str> {
        if self.listen.iter().all(|address| address.ip().is_loopback()) {
            return Vec::new();
        }
        let hosts = self
            .subsystems
            .iter()
            .flat_map(|subsystem| &subsystem.hosts);
        hosts
            .flatten()
            .filter(|host| host.secret_file.is_none() && host.tls_key_file.is_none())
            .map(|host| host.nqn.as_str())
            .collect()
    }
}

fn check_subsystem(
    source: &Source<'_>,
    subsystem: &Spanned<FileSubsystem>,
    folder: &Path,
) -> anyhow::Result<Subsystem> {
    let span = subsystem.span();
    let subsystem = subsystem.get_ref();
    if subsystem.namespaces.is_empty() {
        return Err(source.error(Some(span), "a subsystem needs a [[subsystem.namespace]]"));
    }
    let hosts = match &subsystem.hosts {
        None => None,
        Some(hosts) => Some(check_hosts(source, hosts, folder)?),
    };
    let mut namespaces = Vec::new();
    let mut used = BTreeSet::new();
    for (place, namespace) in subsystem.namespaces.iter().enumerate() {
        let (nsid, at) = match &namespace.nsid {
            Some(nsid) => (*nsid.get_ref(), nsid.span()),
            None => (place as u32 + 1, namespace.image.span()),
        };
        if nsid == 0 || nsid > 0xFFFF_FFFE {
            let message = format!("namespace identifier {nsid}; expected 1 to 4294967294");
            return Err(source.error(Some(at), message));
        }
        if !used.insert(nsid) {
            let message = format!("there is a namespace {nsid} already in this subsystem");
            return Err(source.error(Some(at), message));
        }
        if let (Some(first), None) = (namespace.hosts.iter().flatten().next(), &hosts) {
            let message = "a namespace of some hosts needs a list of [[subsystem.host]]: without one, whoever gives their name is let in";
            return Err(source.error(Some(first.span()), message));
        }
        for host in namespace.hosts.iter().flatten() {
            let nqn = &host.get_ref().0;
            let known = |hosts: &Vec<AllowedHost>| hosts.iter().any(|host| host.nqn == *nqn);
            if hosts.as_ref().is_some_and(|hosts| !known(hosts)) {
                let message = format!("{nqn} is no [[subsystem.host]] of this subsystem");
                return Err(source.error(Some(host.span()), message));
            }
        }
        let mask = namespace.hosts.as_ref().map(|hosts| {
            let hosts = hosts.iter();
            hosts.map(|host| host.get_ref().0.clone()).collect()
        });
        namespaces.push(Namespace {
            nsid,
            image: folder.join(namespace.image.get_ref()),
            hosts: mask,
        });
    }
    Ok(Subsystem {
        nqn: subsystem.nqn.as_ref().map(|nqn| nqn.get_ref().0.clone()),
        namespaces,
        hosts,
        computational: subsystem.experimental_computational_programs,
    })
}

fn check_hosts(
    source: &Source<'_>,
    hosts: &[FileHost],
    folder: &Path,
) -> anyhow::Result<Vec<AllowedHost>> {
    let mut checked: Vec<AllowedHost> = Vec::new();
    for host in hosts {
        let nqn = &host.nqn.get_ref().0;
        if checked.iter().any(|other| other.nqn == *nqn) {
            let message = format!("there is a host {nqn} already in this subsystem");
            return Err(source.error(Some(host.nqn.span()), message));
        }
        for key in host.keys.iter().flatten() {
            if *key.get_ref() >= KEY_IDS {
                let message = format!("key id {}; expected one below {KEY_IDS}", key.get_ref());
                return Err(source.error(Some(key.span()), message));
            }
        }
        if let (Some(file), None) = (&host.controller_secret_file, &host.secret_file) {
            let message = "a host can only ask the controller to authenticate if it does so itself; expected secret_file as well";
            return Err(source.error(Some(file.span()), message));
        }
        let concatenate = host.concatenate.as_ref().is_some_and(|yes| *yes.get_ref());
        if let Some(yes) = &host.concatenate
            && concatenate
            && (host.secret_file.is_none() || host.tls_key_file.is_some())
        {
            let message = "a key from the authentication takes the place of tls_key_file, and needs a secret_file";
            return Err(source.error(Some(yes.span()), message));
        }
        let keys = host.keys.as_ref().map(|keys| {
            let keys = keys.iter();
            keys.map(|key| *key.get_ref()).collect()
        });
        let controller = host.controller_secret_file.as_ref();
        checked.push(AllowedHost {
            nqn: nqn.clone(),
            keys,
            secret_file: host.secret_file.as_ref().map(|file| folder.join(file)),
            controller_secret_file: controller.map(|file| folder.join(file.get_ref())),
            tls_key_file: host.tls_key_file.as_ref().map(|file| folder.join(file)),
            concatenate,
        });
    }
    Ok(checked)
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.listen.iter().map(SocketAddr::to_string).collect();
        write!(f, "listens on {}", addresses.join(", "))?;
        if let Some(advertised) = self.advertise {
            write!(f, ", advertised as {advertised}")?;
        }
        if let Some(metrics) = self.metrics {
            write!(f, "\nmetrics at http://{}/metrics", metrics.0)?;
        }
        for subsystem in &self.subsystems {
            let nqn = subsystem.nqn.as_deref();
            write!(f, "\n{}", nqn.unwrap_or("NQN from the image's UUID"))?;
            for namespace in &subsystem.namespaces {
                let (nsid, image) = (namespace.nsid, namespace.image.display());
                write!(f, "\n  namespace {nsid}: {image}")?;
                if let Some(hosts) = &namespace.hosts {
                    write!(f, ", for {}", hosts.join(", "))?;
                }
            }
            match &subsystem.hosts {
                None => write!(f, "\n  every host, all key ids")?,
                Some(hosts) if hosts.is_empty() => write!(f, "\n  no host")?,
                Some(hosts) => {
                    for host in hosts {
                        let keys = match &host.keys {
                            None => "all key ids".to_owned(),
                            Some(keys) => format!("key ids {keys:?}"),
                        };
                        let secret = match (&host.secret_file, &host.controller_secret_file) {
                            (None, _) => "no authentication",
                            (Some(_), None) => "authenticates",
                            (Some(_), Some(_)) => "authenticates, and so may the controller",
                        };
                        let tls = match &host.tls_key_file {
                            None if host.concatenate => ", TLS with a key of its authentication",
                            None => "",
                            Some(_) => ", TLS",
                        };
                        write!(f, "\n  host {}: {keys}, {secret}{tls}", host.nqn)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Config> {
        Config::parse(text, "c.toml", Path::new("/etc/toroid"))
    }

    #[test]
    fn the_example_says_what_it_shows() {
        let config = parse(EXAMPLE).unwrap();
        config.check().unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.log, Log::default());
        assert_eq!(config.io, Io::default());
        assert_eq!(config.subsystems.len(), 1);
        let subsystem = &config.subsystems[0];
        assert_eq!(subsystem.namespaces.len(), 2);
        let image = &subsystem.namespaces[0].image;
        assert!(image.is_absolute(), "{image:?}");
        let hosts = subsystem.hosts.as_ref().unwrap();
        assert_eq!(hosts.len(), 2);
        assert_eq!(hosts[0].keys, Some(BTreeSet::from([0, 1])));
        assert!(hosts[0].controller_secret_file.is_some());
        assert!(hosts[0].tls_key_file.is_some());
        assert!(hosts[1].concatenate);
        assert_eq!(config.tls_mode(), TlsMode::Allowed);
        assert_eq!(
            subsystem.namespaces[1].hosts,
            Some(vec![hosts[1].nqn.clone()])
        );
    }

    #[test]
    fn the_old_name_of_a_limit_is_accepted() {
        let old = EXAMPLE.replace("controllers_per_host", "controllers_a_host");
        assert_ne!(old, EXAMPLE);
        assert_eq!(parse(&old).unwrap().limits, Limits::default());
        let old = EXAMPLE.replace("arithmetic = \"fft\"", "exact = true");
        assert_eq!(parse(&old).unwrap().arithmetic, ArithmeticKind::Ntt);
        let old = EXAMPLE.replace("arithmetic = \"fft\"", "exact = false");
        assert_eq!(parse(&old).unwrap().arithmetic, ArithmeticKind::Fft);
    }

    #[test]
    fn the_shortest() {
        let config = parse("[[subsystem]]\n[[subsystem.namespace]]\nimage = \"a.img\"\n").unwrap();
        config.check().unwrap();
        let subsystem = Subsystem {
            nqn: None,
            namespaces: vec![Namespace {
                nsid: 1,
                image: "/etc/toroid/a.img".into(),
                hosts: None,
            }],
            hosts: None,
            computational: false,
        };
        let expected = Config {
            subsystems: vec![subsystem],
            ..Config::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn errors_tell_the_line() {
        const NAMESPACE: &str = "[[subsystem.namespace]]\nimage = \"a\"\n";
        let cases: &[(&str, &str)] = &[
            ("\nlisten = 4420", "c.toml:2: "),
            ("listen = [\"127.0.0.1\"]", "c.toml:1: "),
            ("listen = \"nowhere\"", "c.toml:1: "),
            ("\n\nlisteners = []", "c.toml:3: unknown field `listeners`"),
            (
                "[log]\nlevel = \"loud\"",
                "c.toml:2: \"loud\" is not a log level",
            ),
            ("[log]\nformat = \"xml\"", "c.toml:2: "),
            ("[io]\nengine = \"dma\"", "c.toml:2: "),
            ("[limits]\nio_queues = 70000", "c.toml:2: "),
            ("[limits]\nbytes_in_flight = \"much\"", "c.toml:2: "),
            ("[memory]\nram = \"1GiB\"", "c.toml:2: unknown field `ram`"),
            (
                "[[subsystem]]\nnqn = \"iqn.x\"",
                "c.toml:2: \"iqn.x\" is no NQN",
            ),
            (
                "[[subsystem]]\nnqn = \"nqn.x\"",
                "c.toml:1: a subsystem needs",
            ),
            (
                "[[subsystem]]\n[[subsystem.namespace]]\nnsid = 1",
                "missing field `image`",
            ),
            (
                "[[subsystem]]\n[[subsystem.namespace]]\nnsid = 0\nimage = \"a\"",
                "c.toml:3: namespace identifier 0",
            ),
            (
                "[[subsystem]]\n[[subsystem.namespace]]\nimage = \"a\"\n[[subsystem.namespace]]\nimage = \"b\"\nnsid = 1",
                "c.toml:6: there is a namespace 1 already",
            ),
            (
                "[[subsystem]]\n[[subsystem.namespace]]\nimage = \"a\"\n[[subsystem]]\n[[subsystem.namespace]]\nimage = \"a\"",
                "c.toml:6: /etc/toroid/a is another namespace already",
            ),
            ("metrics = \"x\"", "c.toml:1: \"x\" is not an address"),
        ];
        for (text, words) in cases {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(
                error.contains(words),
                "{text:?}: {error:?} has no {words:?}"
            );
        }
        let host_cases: &[(&str, &str)] = &[
            (
                "nqn = \"nqn.h\"\nkeys = [0, 16777216]",
                "c.toml:6: key id 16777216",
            ),
            (
                "nqn = \"nqn.h\"\ncontroller_secret_file = \"s\"",
                "c.toml:6: a host can only ask",
            ),
            (
                "nqn = \"nqn.h\"\n[[subsystem.host]]\nnqn = \"nqn.h\"",
                "c.toml:7: there is a host nqn.h already",
            ),
            (
                "nqn = \"nqn.h\"\nconcatenate = true",
                "c.toml:6: a key from the authentication",
            ),
            (
                "nqn = \"nqn.h\"\nsecret_file = \"s\"\ntls_key_file = \"k\"\nconcatenate = true",
                "c.toml:8: a key from the authentication",
            ),
            (
                "nqn = \"nqn.h\"\nsecret = \"DHHC-1:00:\"",
                "unknown field `secret`",
            ),
        ];
        for (text, words) in host_cases {
            let text = format!("[[subsystem]]\n{NAMESPACE}[[subsystem.host]]\n{text}");
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(
                error.contains(words),
                "{text:?}: {error:?} has no {words:?}"
            );
        }
        let mask = format!(
            "[[subsystem]]\n{NAMESPACE}hosts = [\"nqn.h\"]\n[[subsystem.host]]\nnqn = \"nqn.i\""
        );
        let error = format!("{:#}", parse(&mask).unwrap_err());
        assert!(
            error.contains("c.toml:4: nqn.h is no [[subsystem.host]]"),
            "{error}"
        );
        let twice = format!("[[subsystem]]\nnqn = \"nqn.a\"\n{NAMESPACE}");
        let twice = format!("{twice}{}", twice.replace("\"a\"", "\"b\""));
        let error = format!("{:#}", parse(&twice).unwrap_err());
        assert!(
            error.contains("c.toml:6: there is a subsystem nqn.a"),
            "{error}"
        );
    }

    #[test]
    fn every_host_only_at_home() {
        let open = |listen: &str, more: &str| {
            let text = format!(
                "listen = {listen}\n{more}\n[[subsystem]]\n[[subsystem.namespace]]\nimage = \"a\"\n"
            );
            let config = parse(&text).unwrap();
            (config.check().map_err(|error| error.to_string()), config)
        };
        assert!(open("\"[::1]:4420\"", "").0.is_ok());
        let refused = open("[\"127.0.0.1:1\", \"0.0.0.0:4420\"]", "")
            .0
            .unwrap_err();
        assert!(refused.contains("0.0.0.0:4420") && refused.contains("--allow-any-host"));
        assert!(open("\"0.0.0.0:4420\"", "allow_any_host = true").0.is_ok());
        let (checked, mut config) = open("\"127.0.0.1:1\"", "");
        checked.unwrap();
        config.subsystems[0].hosts = Some(vec![AllowedHost {
            nqn: "nqn.h".into(),
            keys: None,
            secret_file: None,
            controller_secret_file: None,
            tls_key_file: None,
            concatenate: false,
        }]);
        assert!(config.unauthenticated().is_empty());
        config.listen = vec!["192.0.2.1:4420".parse().unwrap()];
        config.check().unwrap();
        assert_eq!(config.unauthenticated(), ["nqn.h"]);
        config.limits.connections = 0;
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("connections is 0"), "{error}");
    }

    #[test]
    fn tls_needs_keys_and_keys_need_tls() {
        let with = |mode: &str, hosts: &[&str]| {
            let mut text =
                format!("{mode}\n[[subsystem]]\n[[subsystem.namespace]]\nimage = \"a\"\n");
            for (i, host) in hosts.iter().enumerate() {
                text += &format!("[[subsystem.host]]\nnqn = \"nqn.{i}\"\n{host}\n");
            }
            let config = parse(&text).unwrap();
            let mode = config.tls_mode();
            config
                .check()
                .map(|()| mode)
                .map_err(|error| error.to_string())
        };
        let key = "tls_key_file = \"k\"";
        assert_eq!(with("", &[]), Ok(TlsMode::Off));
        assert_eq!(with("", &["", key]), Ok(TlsMode::Allowed));
        let derived = "secret_file = \"s\"\nconcatenate = true";
        assert_eq!(with("", &["", derived]), Ok(TlsMode::Allowed));
        assert_eq!(with("tls = \"allowed\"", &[]), Ok(TlsMode::Allowed));
        assert_eq!(with("tls = \"required\"", &[key]), Ok(TlsMode::Required));
        for (mode, hosts, words) in [
            ("off", &["", key][..], "host nqn.1 has a TLS key"),
            ("required", &[key, ""][..], "host nqn.1 has no key"),
            ("required", &[][..], "a list of hosts"),
            (
                "allowed",
                &[key, key][..],
                "nqn.0 and nqn.1 have the same tls_key_file",
            ),
            (
                "required",
                &[derived][..],
                "host nqn.0 authenticates for its key",
            ),
            (
                "off",
                &[derived][..],
                "host nqn.0 has a TLS key, or takes one",
            ),
        ] {
            let error = with(&format!("tls = \"{mode}\""), hosts).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn endpoints() {
        let of = |text: &str| {
            text.parse::<Endpoint>()
                .map(|endpoint| endpoint.0.to_string())
        };
        assert_eq!(of("9464").as_deref(), Ok("127.0.0.1:9464"));
        assert_eq!(of("0.0.0.0:9464").as_deref(), Ok("0.0.0.0:9464"));
        assert!(of("localhost:1").is_err() && of("70000").is_err());
    }
}
