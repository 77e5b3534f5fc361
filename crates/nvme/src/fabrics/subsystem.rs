//! Subsystems, and the hosts that may connect to them.

use std::sync::Arc;

use super::auth::{Secret, TlsKey};
use crate::Controller;

/// The storage of a subsystem.
pub trait Storage: Send + Sync {
    /// The controller that serves the commands of this host. Hosts that see different namespaces get different controllers.
    ///
    /// # Errors
    /// The reason for a refusal, for the log.
    fn attach(&self, host_nqn: &str) -> Result<Arc<dyn Controller>, String>;
}

impl<F: Fn(&str) -> Result<Arc<dyn Controller>, String> + Send + Sync> Storage for F {
    fn attach(&self, host_nqn: &str) -> Result<Arc<dyn Controller>, String> {
        self(host_nqn)
    }
}

/// A subsystem that hosts can connect to.
pub struct Subsystem {
    /// Its NQN.
    pub nqn: String,
    /// Its storage.
    pub storage: Arc<dyn Storage>,
    /// Who may connect.
    pub hosts: Hosts,
}

/// Who may connect to a subsystem.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Every host, unauthenticated.
    Any,
    /// The hosts on this list.
    Listed(Vec<AllowedHost>),
}

/// A host that may connect.
#[derive(Clone, Debug)]
pub struct AllowedHost {
    /// Its NQN.
    pub nqn: String,
    /// The secret with which it authenticates every queue; `None`: it need not authenticate.
    pub secret: Option<Secret>,
    /// The secret with which the controller authenticates when the host asks for it.
    pub controller_secret: Option<Secret>,
    /// The key of its secure channels; without one of these it cannot connect. `None`: its connections need not be encrypted.
    pub tls_key: Option<TlsKey>,
    /// Its authentication is to give a key for its secure channels (secure channel concatenation): without encryption it can only authenticate,
    /// and set its controller up. Needs a secret.
    pub concatenate: bool,
}

impl AllowedHost {
    /// A host that need not authenticate.
    pub fn new(nqn: impl Into<String>) -> AllowedHost {
        AllowedHost {
            nqn: nqn.into(),
            secret: None,
            controller_secret: None,
            tls_key: None,
            concatenate: false,
        }
    }
}

impl Hosts {
    /// The entry of a host that may connect; `Some(None)` where no list restricts the hosts.
    pub(super) fn find(&self, nqn: &str) -> Option<Option<&AllowedHost>> {
        match self {
            Hosts::Any => Some(None),
            Hosts::Listed(hosts) => hosts.iter().find(|host| host.nqn == nqn).map(Some),
        }
    }
}
