//! The host's side.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::ffdhe::DhKey;
use super::message::{self, Header};
use super::{
    AuthError, AuthHash, AuthPolicy, Exchange, GeneratedKey, Random, Role, Secret, Sequence,
};

/// What a host does after [`HostAuth::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// Send the message with AUTH_Send, then fetch the next with AUTH_Receive and give it to [`HostAuth::next`].
    Send(Vec<u8>),
    /// The host is authenticated, once it has sent this message, if there is one, with AUTH_Send.
    Done(Option<Vec<u8>>),
}

/// Authentication of one queue by a host.
///
/// [`start`](HostAuth::start) gives the first message; after it is sent with AUTH_Send, fetch [`RECEIVE_LEN`](super::RECEIVE_LEN) bytes with AUTH_Receive
/// and give them to [`next`](HostAuth::next), until that says [`HostStep::Done`]. If it fails, send what
/// [`failure`](HostAuth::failure) gives and close the connection. A host may start again after it is done, to authenticate anew.
pub struct HostAuth {
    policy: AuthPolicy,
    /// A key for a secure channel is to come out of it.
    concatenation: bool,
    generated: Option<GeneratedKey>,
    pub(super) sub_nqn: String,
    pub(super) host_nqn: String,
    pub(super) host_secret: Secret,
    pub(super) controller_secret: Option<Secret>,
    step: Step,
    t_id: u16,
    sequence: Sequence,
    pub(super) random: Random,
}

enum Step {
    /// No transaction is in progress.
    Idle,
    /// A challenge is to come.
    Challenge,
    /// Success1 is to come, with this response to the host's challenge if it sent one.
    Success1(AuthHash, Option<Zeroizing<Vec<u8>>>),
    /// The host found the controller's messages wrong.
    Failed(AuthError),
}

impl HostAuth {
    /// Authentication of the host `host_nqn`, which has `host_secret`, at the subsystem `sub_nqn`. With a `controller_secret` the controller
    /// must authenticate too. `t_id` numbers the first transaction; it should differ between the queues of one host.
    pub fn new(
        policy: AuthPolicy,
        sub_nqn: &str,
        host_nqn: &str,
        host_secret: Secret,
        controller_secret: Option<Secret>,
        t_id: u16,
    ) -> HostAuth {
        HostAuth {
            policy,
            concatenation: false,
            generated: None,
            sub_nqn: sub_nqn.to_owned(),
            host_nqn: host_nqn.to_owned(),
            host_secret,
            controller_secret,
            step: Step::Idle,
            t_id: t_id.wrapping_sub(1),
            sequence: Sequence::default(),
            random: Random::System,
        }
    }

    /// Has both sides derive a key for a secure channel.
    #[must_use]
    pub fn concatenating(self) -> HostAuth {
        HostAuth {
            policy: self.policy.for_concatenation(),
            concatenation: true,
            ..self
        }
    }

    /// The key for a secure channel, once [`next`](HostAuth::next) has said [`HostStep::Done`].
    pub fn generated(&mut self) -> Option<GeneratedKey> {
        self.generated
            .take()
            .filter(|_| matches!(self.step, Step::Idle))
    }

    /// Begins a transaction: the AUTH_Negotiate message, to send with AUTH_Send. A transaction in progress is abandoned.
    pub fn start(&mut self) -> Vec<u8> {
        self.t_id = self.t_id.wrapping_add(1);
        self.step = Step::Challenge;
        self.generated = None;
        let sc_c = if self.concatenation {
            message::NEW_TLS_PSK
        } else {
            message::NO_CONCATENATION
        };
        message::negotiate(self.t_id, &self.policy, sc_c)
    }

    /// Takes what AUTH_Receive fetched (bytes after the message are ignored) and says what to do next.
    pub fn next(&mut self, received: &[u8]) -> Result<HostStep, AuthError> {
        let step = std::mem::replace(&mut self.step, Step::Idle);
        let result = self.take(step, received);
        // AUTH_Failure2 answers messages of the controller, but not its AUTH_Failure1.
        if result.is_err() {
            self.generated = None;
        }
        if let Err(error) = &result
            && !matches!(error, AuthError::Refused(_))
        {
            self.step = Step::Failed(error.clone());
        }
        result
    }

    /// After [`next`](HostAuth::next) failed: the AUTH_Failure2 message that tells the controller, if it does not know.
    pub fn failure(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Failed(error) => Some(message::failure(
                message::FAILURE2,
                self.t_id,
                error.reason(),
            )),
            other => {
                self.step = other;
                None
            }
        }
    }

    fn take(&mut self, step: Step, received: &[u8]) -> Result<HostStep, AuthError> {
        let header = Header::parse(received)?;
        if header.is(message::FAILURE1) {
            return Err(AuthError::Refused(message::parse_failure(
                message::FAILURE1,
                received,
            )?));
        }
        match step {
            Step::Challenge => {
                header.check(message::CHALLENGE, self.t_id)?;
                self.reply(received).map(HostStep::Send)
            }
            Step::Success1(hash, expected) => {
                header.check(message::SUCCESS1, self.t_id)?;
                let response = message::parse_success1(received, hash)?;
                match (expected, response) {
                    (None, _) => Ok(HostStep::Done(None)),
                    (Some(_), None) => Err(AuthError::ControllerSilent),
                    (Some(expected), Some(response)) if expected.ct_eq(response).into() => {
                        Ok(HostStep::Done(Some(message::success2(self.t_id))))
                    }
                    (Some(_), Some(_)) => Err(AuthError::ControllerResponse),
                }
            }
            Step::Idle | Step::Failed(_) => Err(header.unexpected("no message")),
        }
    }

    fn reply(&mut self, received: &[u8]) -> Result<Vec<u8>, AuthError> {
        let challenge = message::parse_challenge(received, &self.policy)?;
        let hash = challenge.hash;
        let key = DhKey::generate(challenge.group, &mut self.random)?;
        let shared = match &key {
            Some(key) => Some(key.shared(challenge.public)?),
            None => None,
        };
        let own_challenge = match self.controller_secret {
            Some(_) => Some(self.random.challenge(hash)?),
            None => None,
        };
        let sequence = self.sequence.next(&mut self.random)?;
        let exchange = Exchange {
            hash,
            shared: shared.as_ref().map(|shared| &***shared),
            t_id: self.t_id,
            concatenation: self.concatenation,
            host_nqn: &self.host_nqn,
            sub_nqn: &self.sub_nqn,
        };
        let response = exchange.response(
            Role::Host,
            &self.host_secret,
            challenge.challenge,
            challenge.sequence,
        );
        let expected = match (&self.controller_secret, &own_challenge) {
            (Some(secret), Some(value)) => {
                Some(exchange.response(Role::Controller, secret, value, sequence))
            }
            _ => None,
        };
        let generated = own_challenge
            .as_ref()
            .and_then(|own| exchange.generated([challenge.challenge, own]));
        self.generated = generated;
        self.step = Step::Success1(hash, expected);
        Ok(message::reply(
            self.t_id,
            &response,
            own_challenge.as_deref(),
            sequence,
            key.as_ref().map_or(&[], DhKey::public),
        ))
    }
}

impl fmt::Debug for HostAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostAuth")
            .field("sub_nqn", &self.sub_nqn)
            .field("host_nqn", &self.host_nqn)
            .finish_non_exhaustive()
    }
}
