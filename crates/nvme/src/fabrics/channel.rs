//! Secure channels: what a connection is known by before its first command.

/// Whether a listener speaks TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No connection does.
    #[default]
    Off,
    /// A connection may, and one of a host that has a key must.
    Allowed,
    /// Every connection must.
    Required,
}

/// The two ends of a secure channel, which its key has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureChannel {
    /// NQN of the host.
    pub host_nqn: String,
    /// NQN of the subsystem, or that of discovery.
    pub sub_nqn: String,
    /// The key comes from an authentication of the host (secure channel concatenation), which need not authenticate again.
    pub generated: bool,
}
