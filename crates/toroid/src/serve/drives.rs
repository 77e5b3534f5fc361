//! The drives behind the subsystems, and what each host sees of them.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use toroid_client::drive::DriveError;
use toroid_drive::image::Image;
use toroid_drive::ssd::Injection;
use toroid_drive::{
    Computational, ComputationalConfig, Drive, DriveConfig, HostIdentity, KeyAccess,
    SubsystemController,
};
use toroid_engine::backend::Backend;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::{AllowedHost, Hosts, Storage, Subsystem};

use super::config::{self, Config};
use super::counters::{Counted, Counters};
use super::secret;

/// A drive as a namespace.
pub struct Served {
    /// NQN of the subsystem.
    pub subsystem: String,
    /// Namespace identifier.
    pub nsid: u32,
    /// The image.
    pub image: PathBuf,
    /// The drive.
    pub drive: Arc<Drive>,
}

/// Everything that a config serves.
pub struct Opened {
    /// For the target.
    pub subsystems: Vec<Subsystem>,
    /// Every drive.
    pub drives: Arc<Vec<Served>>,
    /// The arithmetic, shared by all drives, so that their tenants share it fairly.
    pub backend: Arc<dyn Backend>,
}

/// What is behind one subsystem.
struct Behind {
    nqn: String,
    serial: String,
    drives: Arc<Vec<Served>>,
    /// Namespaces with the hosts that see them.
    namespaces: Vec<config::Namespace>,
    hosts: Option<Vec<config::AllowedHost>>,
    counters: Arc<Counters>,
    tenants: RandomState,
    /// Programs and memory of the hosts, where they get such namespaces.
    computational: Option<Computational>,
}

impl Storage for Behind {
    fn attach(&self, host_nqn: &str) -> Result<Arc<dyn Controller>, String> {
        let known = self.hosts.iter().flatten();
        let keys = known
            .filter(|host| host.nqn == host_nqn)
            .find_map(|host| host.keys.clone())
            .map_or(KeyAccess::All, KeyAccess::Only);
        let sees = |namespace: &config::Namespace| {
            let mask = namespace.hosts.as_ref();
            mask.is_none_or(|hosts| hosts.iter().any(|nqn| nqn == host_nqn))
        };
        let shown: BTreeSet<u32> = self
            .namespaces
            .iter()
            .filter(|namespace| sees(namespace))
            .map(|namespace| namespace.nsid)
            .collect();
        let mut members: Vec<(u32, Arc<dyn Controller>)> = Vec::new();
        let mut first = None;
        for served in self.drives.iter() {
            if served.subsystem == self.nqn && shown.contains(&served.nsid) {
                let controller = served.drive.controller_for(HostIdentity {
                    name: host_nqn.to_owned(),
                    // Tenant 0 is the drive itself.
                    tenant: self.tenants.hash_one(host_nqn) | 1,
                    keys: keys.clone(),
                });
                first.get_or_insert_with(|| controller.clone());
                members.push((served.nsid, Arc::new(controller)));
            }
        }
        let controller: Arc<dyn Controller> = match members.as_slice() {
            [] => return Err("no namespace is for this host".to_owned()),
            // With the drive's namespaces of other command sets.
            [(1, controller)] if self.namespaces.len() == 1 => Arc::clone(controller),
            _ => Arc::new(
                SubsystemController::new(&self.serial, members)
                    .map_err(|error| error.to_string())?,
            ),
        };
        let controller = match (&self.computational, first) {
            (Some(computational), Some(first)) => {
                let attached = computational.attach(controller, first);
                Arc::new(attached.map_err(|error| error.to_string())?)
            }
            _ => controller,
        };
        Ok(Arc::new(Counted::new(
            controller,
            Arc::clone(&self.counters),
            host_nqn,
            &self.nqn,
        )))
    }
}

impl Opened {
    /// Opens every drive, with these faults, and reads every secret.
    pub fn open(
        config: &Config,
        backend: Arc<dyn Backend>,
        faults: &[Injection],
        counters: &Arc<Counters>,
    ) -> anyhow::Result<Opened> {
        let mut drives = Vec::new();
        let mut named = Vec::new();
        for subsystem in &config.subsystems {
            let allowed = allowed(subsystem)?;
            let mut identity = None;
            let place = drives.len();
            for namespace in &subsystem.namespaces {
                let (drive, uuid) = open_drive(config, namespace, faults, &backend)?;
                let (nqn, _) = identity.get_or_insert_with(|| {
                    let of_image = || format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
                    let nqn = subsystem.nqn.clone().unwrap_or_else(of_image);
                    (nqn, uuid.replace('-', "").chars().take(20).collect())
                });
                drives.push(Served {
                    subsystem: nqn.clone(),
                    nsid: namespace.nsid,
                    image: namespace.image.clone(),
                    drive: Arc::new(drive),
                });
            }
            let (nqn, serial): (String, String) =
                identity.context("a subsystem without namespaces")?;
            for served in drives.iter().skip(place) {
                let (nsid, image) = (served.nsid, served.image.display());
                tracing::info!(subsystem = nqn, nsid, %image, "drive opened");
            }
            named.push((nqn, serial, allowed, subsystem));
        }
        let drives = Arc::new(drives);
        let tenants = RandomState::new();
        let subsystems = named.into_iter().map(|(nqn, serial, hosts, subsystem)| {
            let computational = subsystem
                .computational
                .then(|| Computational::new(ComputationalConfig::default()))
                .transpose()?;
            let behind = Behind {
                computational,
                nqn: nqn.clone(),
                serial,
                drives: Arc::clone(&drives),
                namespaces: subsystem.namespaces.clone(),
                hosts: subsystem.hosts.clone(),
                counters: Arc::clone(counters),
                tenants: tenants.clone(),
            };
            Ok(Subsystem {
                nqn,
                storage: Arc::new(behind),
                hosts,
            })
        });
        Ok(Opened {
            subsystems: subsystems.collect::<anyhow::Result<_>>()?,
            drives,
            backend,
        })
    }

    /// Lets the drives' work end and flushes them. Goes on with the others where one fails.
    pub fn shutdown(&self) -> anyhow::Result<()> {
        let mut result = Ok(());
        for served in self.drives.iter() {
            let (subsystem, nsid) = (&served.subsystem, served.nsid);
            let image = served.image.display();
            match served.drive.shutdown() {
                Ok(()) => tracing::info!(subsystem, nsid, %image, "drive flushed and closed"),
                Err(error) => {
                    let error = anyhow::Error::new(error);
                    let reason = format!("{error:#}");
                    tracing::error!(subsystem, nsid, %image, reason, "drive not flushed");
                    result = Err(error.context(image.to_string()));
                }
            }
        }
        result
    }
}

fn open_drive(
    config: &Config,
    namespace: &config::Namespace,
    faults: &[Injection],
    backend: &Arc<dyn Backend>,
) -> anyhow::Result<(Drive, String)> {
    let path = &namespace.image;
    let options = config.io.of_image();
    let image = match faults {
        [] => Image::open_with(path, options),
        faults => Image::open_faulty(path, options, faults.iter().cloned()),
    };
    let image = image.map_err(|source| DriveError::of_image(path, source))?;
    let uuid = image.info().uuid();
    let mut drive = DriveConfig::new(Arc::clone(backend));
    let memory = &config.memory;
    drive.paged_bytes = memory.samples.map_or(drive.paged_bytes, |size| size.0);
    drive.persistent_bytes = memory.keys.map_or(drive.persistent_bytes, |size| size.0);
    let slots = memory.stack_slots.map(|slots| slots as usize);
    drive.stack_slots = slots.unwrap_or(drive.stack_slots);
    let drive =
        Drive::open(image, drive).with_context(|| format!("cannot open {}", path.display()))?;
    Ok((drive, uuid))
}

fn allowed(subsystem: &config::Subsystem) -> anyhow::Result<Hosts> {
    let Some(hosts) = &subsystem.hosts else {
        return Ok(Hosts::Any);
    };
    let read = |path: &Option<PathBuf>| path.as_deref().map(secret::read).transpose();
    let hosts = hosts.iter().map(|host| {
        Ok(AllowedHost {
            nqn: host.nqn.clone(),
            secret: read(&host.secret_file)?,
            controller_secret: read(&host.controller_secret_file)?,
            tls_key: host
                .tls_key_file
                .as_deref()
                .map(secret::read_tls_key)
                .transpose()?,
            concatenate: host.concatenate,
        })
    });
    Ok(Hosts::Listed(hosts.collect::<anyhow::Result<_>>()?))
}
