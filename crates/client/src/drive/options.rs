//! How to open a drive.

use std::sync::{Arc, Mutex};

use toroid_nvme::Controller;
use toroid_nvme::VendorStatus;
use toroid_nvme::fabrics::auth::{Secret, TlsKey};
use toroid_nvme::fabrics::{ConnectOptions, DiscoveryEntry};
use toroid_nvme::tcp::{Address, Connector, Digests};
use toroid_task::CancelToken;
use uuid::Uuid;

use super::{Drive, DriveError};
use crate::host_identity::{self, HostIdentityError};
use crate::ledger::Ledger;
use crate::location::Location;

macro_rules! table {
    ($($name:ident = $sc:literal, $meaning:literal;)*) => {
        &[$(VendorStatus { sc: $sc, meaning: $meaning }),*]
    };
}

/// The status codes of a drive's own, in its words.
const VENDOR_STATUSES: &[VendorStatus] = toroid_isa::drive_statuses!(table);

type Wrap = dyn Fn(Arc<dyn Controller>) -> Arc<dyn Controller> + Send + Sync;

/// How to open a drive. The options for drives on the network do not matter to other drives.
#[derive(Clone, Default)]
#[must_use]
pub struct OpenOptions {
    host_nqn: Option<String>,
    host_id: Option<Uuid>,
    host_secret: Option<Secret>,
    controller_secret: Option<Secret>,
    tls_key: Option<TlsKey>,
    concatenate: bool,
    digests: Digests,
    pub(super) nsid: Option<u32>,
    pub(super) key_id: u32,
    pub(super) read_only: bool,
    pub(super) reads: bool,
    pub(super) cancel: CancelToken,
    pub(super) wrap: Option<Arc<Wrap>>,
    pub(super) ledger: Option<Arc<Mutex<Ledger>>>,
    pub(super) new_store: bool,
    #[cfg(feature = "image")]
    pub(super) verifier: Option<Arc<super::Verifier>>,
    #[cfg(feature = "image")]
    pub(super) backend: Option<Arc<dyn toroid_engine::Backend>>,
}

impl OpenOptions {
    /// The options of [`Drive::open`].
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// NQN of this host on the network. Without it: that of /etc/nvme/hostnqn, or one made once for this user.
    pub fn host_nqn(self, nqn: impl Into<String>) -> OpenOptions {
        OpenOptions {
            host_nqn: Some(nqn.into()),
            ..self
        }
    }

    /// Identifier of this host on the network. Without it: the UUID in the host's NQN, that of /etc/nvme/hostid, or one made once
    /// for this user.
    pub fn host_id(self, id: Uuid) -> OpenOptions {
        OpenOptions {
            host_id: Some(id),
            ..self
        }
    }

    /// The secret by which this host authenticates to a drive on the network.
    pub fn host_secret(self, secret: Secret) -> OpenOptions {
        OpenOptions {
            host_secret: Some(secret),
            ..self
        }
    }

    /// The secret by which a drive on the network must authenticate.
    pub fn controller_secret(self, secret: Secret) -> OpenOptions {
        OpenOptions {
            controller_secret: Some(secret),
            ..self
        }
    }

    /// The key with which connections to a drive on the network are encrypted by TLS; then none is unencrypted.
    pub fn tls_key(self, key: TlsKey) -> OpenOptions {
        OpenOptions {
            tls_key: Some(key),
            ..self
        }
    }

    /// Encrypts connections to a drive on the network by TLS with a key that the authentication gives (secure channel concatenation). Needs the
    /// host's secret and the controller's.
    pub fn concatenate(self) -> OpenOptions {
        OpenOptions {
            concatenate: true,
            ..self
        }
    }

    /// Digests of NVMe/TCP.
    pub fn digests(self, digests: Digests) -> OpenOptions {
        OpenOptions { digests, ..self }
    }

    /// The namespace. Without it: the first that holds blocks.
    pub fn nsid(self, nsid: u32) -> OpenOptions {
        OpenOptions {
            nsid: Some(nsid),
            ..self
        }
    }

    /// The key id of [`Drive::put_keys`], and of programs that name none. Without it: 0.
    pub fn key_id(self, key_id: u32) -> OpenOptions {
        OpenOptions { key_id, ..self }
    }

    /// Writes nothing to open the drive: what a crash left half done stays as it is. An image is opened without the permission to
    /// write it, together with others who only read it.
    pub fn read_only(self) -> OpenOptions {
        OpenOptions {
            read_only: true,
            ..self
        }
    }

    /// Changes nothing in the blob store, so that a client that does is not disturbed. The drive computes as it does otherwise.
    pub fn reads(self) -> OpenOptions {
        OpenOptions {
            reads: true,
            ..self
        }
    }

    /// Gives up the drive's work when `cancel` is cancelled.
    pub fn cancel(self, cancel: CancelToken) -> OpenOptions {
        OpenOptions { cancel, ..self }
    }

    /// Sends the session's commands through the controller that `wrap` makes of the drive's: to record them, or to make some fail.
    pub fn wrap(
        self,
        wrap: impl Fn(Arc<dyn Controller>) -> Arc<dyn Controller> + Send + Sync + 'static,
    ) -> OpenOptions {
        OpenOptions {
            wrap: Some(Arc::new(wrap)),
            ..self
        }
    }

    /// Binds what is put to the ledger's client key, and checks what comes back ([`ledger`](crate::ledger)).
    pub fn ledger(self, ledger: Arc<Mutex<Ledger>>) -> OpenOptions {
        OpenOptions {
            ledger: Some(ledger),
            ..self
        }
    }

    /// Takes a store that the ledger does not know at the drive's place, from then on. Without it, the place must have the store that it had before.
    pub fn new_store(self) -> OpenOptions {
        OpenOptions {
            new_store: true,
            ..self
        }
    }

    /// What computes on an image. Without it: this machine's processor, with the f64 FFT.
    #[cfg(feature = "image")]
    pub fn backend(self, backend: Arc<dyn toroid_engine::Backend>) -> OpenOptions {
        OpenOptions {
            backend: Some(backend),
            ..self
        }
    }

    /// Computes results of [`Drive::run`] and [`Drive::call`] again, or a share of them, and refuses those that differ. The drive must
    /// compute by arithmetic `ntt`.
    #[cfg(feature = "image")]
    pub fn verifier(self, verifier: Arc<super::Verifier>) -> OpenOptions {
        OpenOptions {
            verifier: Some(verifier),
            ..self
        }
    }

    /// The drives that a discovery service on the network shows this host.
    ///
    /// # Errors
    /// [`DriveError::HostIdentity`], [`DriveError::Connect`].
    pub fn discover(&self, address: &Address) -> Result<Vec<DiscoveryEntry>, DriveError> {
        let options = self.connect_options()?;
        super::runtime()?
            .block_on(self.connector(address).discover(&options))
            .map_err(|source| DriveError::connect(address, source))
    }

    pub(super) fn connector(&self, address: &Address) -> Connector {
        Connector {
            address: address.clone(),
            digests: self.digests,
        }
    }

    /// How these options connect to a drive on the network.
    pub(super) fn connect_options(&self) -> Result<ConnectOptions, HostIdentityError> {
        let (nqn, id) = host_identity::of_host(self.host_nqn.as_deref(), self.host_id)?;
        Ok(ConnectOptions {
            secret: self.host_secret.clone(),
            controller_secret: self.controller_secret.clone(),
            tls_key: self.tls_key.clone(),
            concatenate: self.concatenate,
            vendor_statuses: VENDOR_STATUSES,
            ..ConnectOptions::new(nqn, id.into_bytes())
        })
    }

    /// Opens a drive, as [`Drive::open`] does.
    ///
    /// # Errors
    /// [`DriveError`].
    pub fn open<L>(&self, location: L) -> Result<Drive, DriveError>
    where
        L: TryInto<Location>,
        DriveError: From<L::Error>,
    {
        Drive::open_with(&location.try_into()?, self)
    }

    /// Makes an empty blob store on a drive, and opens it. Everything in the namespace is lost; without `force`, a namespace that
    /// may hold something is refused.
    ///
    /// # Errors
    /// [`DriveError::HoldsStore`], [`DriveError::MayHold`], and those of [`OpenOptions::open`].
    pub fn format<L>(&self, location: L, force: bool) -> Result<Drive, DriveError>
    where
        L: TryInto<Location>,
        DriveError: From<L::Error>,
    {
        Drive::format_with(&location.try_into()?, self, force)
    }
}
