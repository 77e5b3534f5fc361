//! `toroid drive serve`: drives as NVMe subsystems on the network.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use toroid_drive::ssd::Injection;
use toroid_engine::PARTIAL_LIFETIME;
use toroid_gpu::Chosen;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::{Event, Target};
use toroid_nvme::tcp::{self, Address};

use crate::backend::{self, ComputeArgs};
use crate::interrupt;
use crate::output::Output;
use crate::serve::config::{self, Config, Endpoint, Nqn, Size};
use crate::serve::counters::Counters;
use crate::serve::drives::Opened;
use crate::serve::memory::MemoryWatch;
use crate::serve::metrics::Sources;
use crate::serve::{http, log, memory};

/// How often the drives are looked at.
const WATCH: Duration = Duration::from_secs(1);

/// Arguments of `toroid drive serve`. Options take the place of what the configuration says.
#[derive(clap::Args)]
pub struct Args {
    /// The drive image, as the one namespace of one subsystem.
    #[arg(required_unless_present_any = ["config", "print_config"])]
    image: Option<PathBuf>,
    /// Read the configuration from a file (see --print-config).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// NQN of the image's subsystem; made of the image's UUID if not given.
    #[arg(long, requires = "image")]
    nqn: Option<Nqn>,
    /// NQN of a host that may connect to the image's subsystem; once for each host. Without any, every host may.
    #[arg(long = "host", value_name = "NQN", requires = "image")]
    hosts: Vec<Nqn>,
    /// File with the key (NVMeTLSkey-1:...) with which the one host encrypts its connections by TLS; it cannot connect without.
    #[arg(long, value_name = "FILE", requires = "hosts")]
    tls_key: Option<PathBuf>,
    /// Whether connections are encrypted; those of hosts that have a key if not given.
    #[arg(long, value_enum, value_name = "WHETHER")]
    tls: Option<config::Tls>,
    /// Address to listen on [default: 127.0.0.1:4420]; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Address that discovery tells hosts, if they reach this machine under another one.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<SocketAddr>,
    /// Address, or port of 127.0.0.1, for a live page, /status, /metrics and /healthz over HTTP.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Endpoint>,
    /// Let every host connect from everywhere.
    #[arg(long)]
    allow_any_host: bool,
    /// Add namespaces of the Computational Programs and Subsystem Local Memory command sets to the image's subsystem.
    #[arg(long, requires = "image")]
    experimental_computational_programs: bool,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Read and write images past the page cache.
    #[arg(long)]
    direct: bool,
    /// Memory of each drive for samples, such as 64MiB.
    #[arg(long, value_name = "SIZE")]
    samples_memory: Option<Size>,
    /// Memory of each drive for keys, test vectors and programs, such as 4GiB.
    #[arg(long, value_name = "SIZE")]
    keys_memory: Option<Size>,
    /// What to log: off, error, warn, info, debug, trace, or by module.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<log::Level>,
    /// How to log.
    #[arg(long, value_enum)]
    log_format: Option<log::Format>,
    /// Have every image fail like this, for tests: flush, or read:A..B, write:A..B, full:A..B with logical blocks.
    #[arg(long, value_name = "FAULT", hide = true)]
    inject: Vec<Injection>,
    /// Check configuration and options, print what they say, and open nothing.
    #[arg(long)]
    check: bool,
    /// Print a configuration file with every option.
    #[arg(long, exclusive = true)]
    print_config: bool,
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if let Some(image) = &self.image {
            if !config.subsystems.is_empty() {
                bail!("the configuration has subsystems; expected no image beside them");
            }
            let hosts = self.hosts.iter().map(|nqn| config::AllowedHost {
                nqn: nqn.0.clone(),
                keys: None,
                secret_file: None,
                controller_secret_file: None,
                tls_key_file: self.tls_key.clone(),
                concatenate: false,
            });
            config.subsystems.push(config::Subsystem {
                nqn: self.nqn.as_ref().map(|nqn| nqn.0.clone()),
                namespaces: vec![config::Namespace {
                    nsid: 1,
                    image: image.clone(),
                    hosts: None,
                }],
                hosts: (!self.hosts.is_empty()).then(|| hosts.collect()),
                computational: self.experimental_computational_programs,
            });
        }
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        config.advertise = self.advertise.or(config.advertise);
        config.metrics = self.metrics.or(config.metrics);
        config.allow_any_host |= self.allow_any_host;
        config.tls = self.tls.or(config.tls);
        let arithmetic = self.compute.arithmetic.chosen();
        config.arithmetic = arithmetic.unwrap_or(config.arithmetic);
        config.backend = self.compute.backend.unwrap_or(config.backend);
        config.io.direct |= self.direct;
        config.memory.samples = self.samples_memory.or(config.memory.samples);
        config.memory.keys = self.keys_memory.or(config.memory.keys);
        if let Some(level) = &self.log_level {
            config.log.level = level.clone();
        }
        config.log.format = self.log_format.unwrap_or(config.log.format);
        config.check()?;
        Ok(config)
    }
}

/// Serves until it is interrupted.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    if args.print_config {
        return output.result(&json!({ "config": config::EXAMPLE }), || {
            config::EXAMPLE.trim_end().to_owned()
        });
    }
    let config = args.config()?;
    if args.check {
        return output.result(&config, || config.to_string());
    }
    log::install(&config.log.level, config.log.format)?;
    if let Some(address) = config.open_to_all() {
        tracing::warn!(%address, "no list of hosts: whoever reaches this address is let in");
    }
    if let Some(Endpoint(address)) = config.metrics
        && !address.ip().is_loopback()
    {
        tracing::warn!(%address, "metrics, with the names of hosts, are open to whoever reaches this address");
    }
    for host in config.unauthenticated() {
        tracing::warn!(host, "no secret: whoever uses this name is let in");
    }
    let counters = Arc::new(Counters::default());
    let Chosen { backend, said } = backend::open(config.backend, config.arithmetic)?;
    tracing::info!("{said}");
    let mut opened = Opened::open(&config, backend, &args.inject, &counters)?;
    let subsystems = std::mem::take(&mut opened.subsystems);
    let target = Target::new(subsystems, config.limits.of_target(), config.advertise)?;
    let sources = Arc::new(Sources {
        started: Instant::now(),
        counters,
        target,
        drives: Arc::clone(&opened.drives),
        backend: Arc::clone(&opened.backend),
    });
    // As many threads as cores. They never compute: drives have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("toroid-network")
        .build()
        .context("cannot start the runtime")?;
    interrupt::expect();
    let served = runtime.block_on(serve(&config, &sources, output));
    if served.is_ok() {
        tracing::info!("connections closed");
    }
    let closed = opened.shutdown();
    runtime.shutdown_background();
    tracing::info!("stopped");
    served.and(closed)
}

/// Listens until the program is interrupted, then until every connection has ended.
async fn serve(config: &Config, sources: &Arc<Sources>, output: &Output) -> anyhow::Result<()> {
    let mut listeners = Vec::new();
    for address in &config.listen {
        listeners.push(bind(*address).await?);
    }
    let metrics = match config.metrics {
        Some(Endpoint(address)) => Some(bind(address).await?),
        None => None,
    };
    announce(&listeners, metrics.as_ref(), sources, output)?;
    if let Some(listener) = metrics {
        tokio::spawn(http::serve(listener, Arc::clone(sources)));
    }
    tokio::spawn(look_after(Arc::clone(sources)));
    // A listener that fails ends the others, but interrupts nothing.
    let (stop, stopped) = watch::channel(false);
    let mut listening = tokio::task::JoinSet::new();
    for listener in listeners {
        let target = Arc::clone(&sources.target);
        let mut stopped = stopped.clone();
        let stopped = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let connections = config.limits.connections as usize;
        let listener = tcp::Listener::new(listener, config.tls_mode());
        listening.spawn(tcp::serve(listener, target, connections, stopped));
    }
    let mut ended = tokio::select! {
        () = interrupt::cancelled() => None,
        ended = listening.join_next() => ended,
    };
    let statistics = sources.target.statistics();
    let (connections, controllers) = (statistics.connections, statistics.controllers);
    let commands = sources.counters.snapshot().in_flight;
    tracing::info!(
        connections,
        controllers,
        commands,
        "stopping: no further connections; running commands end"
    );
    let _ = stop.send(true);
    let mut result = Ok(());
    if ended.is_none() {
        ended = listening.join_next().await;
    }
    while let Some(served) = ended {
        let served = served.context("a listener ended in a panic")?;
        result = result.and(served.context("cannot accept connections"));
        ended = listening.join_next().await;
    }
    result
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

/// Says where everything is: in text a line for each subsystem and address, in JSON one object.
fn announce(
    listeners: &[TcpListener],
    metrics: Option<&TcpListener>,
    sources: &Sources,
    output: &Output,
) -> anyhow::Result<()> {
    let addresses = listeners.iter().map(TcpListener::local_addr);
    let addresses: Vec<SocketAddr> = addresses.collect::<Result<_, _>>()?;
    let metrics = metrics.map(TcpListener::local_addr).transpose()?;
    let subsystems = sources.target.subsystems().iter();
    let mut urls = Vec::new();
    let mut values = Vec::new();
    for subsystem in subsystems {
        for address in &addresses {
            let url = Address {
                host: address.ip().to_string(),
                port: address.port(),
                nqn: subsystem.nqn.clone(),
            };
            urls.push(url.to_string());
        }
        let served = sources.drives.iter();
        let namespaces: Vec<_> = served
            .filter(|served| served.subsystem == subsystem.nqn)
            .map(|served| json!({ "nsid": served.nsid, "image": served.image }))
            .collect();
        values.push(json!({ "nqn": subsystem.nqn, "namespaces": namespaces }));
    }
    for address in &addresses {
        tracing::info!(%address, "listening");
    }
    if let Some(address) = metrics {
        tracing::info!(%address, "metrics and health");
    }
    let value = json!({
        "listen": addresses,
        "metrics": metrics,
        "drives": urls,
        "subsystems": values,
    });
    output.result(&value, || {
        let metrics = metrics.map(|address| format!("http://{address}/metrics"));
        urls.iter()
            .cloned()
            .chain(metrics)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// Looks after the drives: tells of one that has become read-only, drops what hosts have begun to upload and left, and returns memory.
async fn look_after(sources: Arc<Sources>) {
    let mut known = vec![false; sources.drives.len()];
    let mut memory = MemoryWatch::default();
    loop {
        tokio::time::sleep(WATCH).await;
        if memory.is_over(sources.target.statistics().bytes_in_flight) {
            // It has no result.
            let _ = tokio::task::spawn_blocking(memory::give_back).await;
        }
        for (served, known) in sources.drives.iter().zip(&mut known) {
            let engine = served.drive.engine();
            engine.drop_idle_parts(PARTIAL_LIFETIME);
            if !*known && served.drive.health().read_only {
                *known = true;
                let (subsystem, nsid) = (&served.subsystem, served.nsid);
                tracing::error!(subsystem, nsid, "a flush failed: the drive is read-only");
                sources.target.notify(Some(subsystem), Event::ReadOnly);
            }
        }
    }
}
