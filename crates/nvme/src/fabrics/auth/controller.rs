//! The controller's side.

use std::fmt;

use subtle::ConstantTimeEq;

use super::ffdhe::DhKey;
use super::message::{self, ChallengeValues, Header};
use super::{
    AuthError, AuthHash, AuthPolicy, DhGroup, Exchange, GeneratedKey, Random, Role, Secret,
    Sequence,
};
use crate::Status;

/// How far the authentication of a queue has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthState {
    /// The host has not authenticated; other commands than those for authentication are to be refused.
    Pending,
    /// The host has authenticated and, if it asked for it, so has the controller.
    Authenticated,
    /// The authentication failed, for good. The connection is to be closed once the host has fetched AUTH_Failure1
    /// ([`ControllerAuth::has_message`]).
    Failed(AuthError),
}

/// Authentication of one queue of a controller.
///
/// The transport gives it the data of every AUTH_Send command and fetches the data of every AUTH_Receive command from it.
/// The next AUTH_Receive reports a transaction that failed. A command that completes with an error status changes nothing.
/// Computing a challenge and checking a reply take one or two modular exponentiations, up to tens of milliseconds with the large groups.
pub struct ControllerAuth {
    policy: AuthPolicy,
    /// The host must ask for a key for a secure channel.
    concatenation: bool,
    generated: Option<GeneratedKey>,
    pub(super) sub_nqn: String,
    pub(super) host_nqn: String,
    pub(super) host_secret: Secret,
    pub(super) controller_secret: Option<Secret>,
    state: AuthState,
    step: Step,
    t_id: u16,
    sequence: Sequence,
    pub(super) random: Random,
}

enum Step {
    /// No transaction is in progress.
    Idle,
    /// AUTH_Receive is to fetch a challenge.
    Challenge(AuthHash, DhGroup),
    /// AUTH_Send is to bring the reply to a challenge.
    Reply(Challenge),
    /// AUTH_Receive is to fetch Success1, with the controller's response if the host asked for it.
    Success1(Vec<u8>, Then),
    /// AUTH_Send is to bring Success2.
    Success2,
    /// AUTH_Receive is to fetch AUTH_Failure1.
    Failure1(AuthError),
}

#[derive(Clone, Copy)]
enum Then {
    Done,
    Success2,
}

struct Challenge {
    hash: AuthHash,
    group: DhGroup,
    value: Vec<u8>,
    sequence: u32,
    key: Option<DhKey>,
}

impl ControllerAuth {
    /// Authentication of the host `host_nqn`, which has `host_secret`, at the subsystem `sub_nqn`. With a `controller_secret` hosts may ask the
    /// controller to authenticate too.
    pub fn new(
        policy: AuthPolicy,
        sub_nqn: &str,
        host_nqn: &str,
        host_secret: Secret,
        controller_secret: Option<Secret>,
    ) -> ControllerAuth {
        ControllerAuth {
            policy,
            concatenation: false,
            generated: None,
            sub_nqn: sub_nqn.to_owned(),
            host_nqn: host_nqn.to_owned(),
            host_secret,
            controller_secret,
            state: AuthState::Pending,
            step: Step::Idle,
            t_id: 0,
            sequence: Sequence::default(),
            random: Random::System,
        }
    }

    /// Both sides derive a key for a secure channel; a host that does not ask for it is refused.
    #[must_use]
    pub fn concatenating(self) -> ControllerAuth {
        ControllerAuth {
            policy: self.policy.for_concatenation(),
            concatenation: true,
            ..self
        }
    }

    /// The key for a secure channel, once, after the host has authenticated.
    pub fn generated(&mut self) -> Option<GeneratedKey> {
        match self.state {
            AuthState::Authenticated => self.generated.take(),
            _ => None,
        }
    }

    /// Whether the host has authenticated. A host that has stays so while it authenticates again, until that fails.
    pub fn state(&self) -> &AuthState {
        &self.state
    }

    /// Whether an AUTH_Receive command has a message to fetch.
    pub fn has_message(&self) -> bool {
        matches!(
            self.step,
            Step::Challenge(..) | Step::Success1(..) | Step::Failure1(_)
        )
    }

    /// Takes the data of an AUTH_Send command.
    ///
    /// A message that is malformed, out of order or wrong fails the authentication, and the command succeeds all the same: the host
    /// learns it from the next AUTH_Receive. Fails with Command Sequence Error after a failure.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), Status> {
        if matches!(self.state, AuthState::Failed(_)) {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let step = std::mem::replace(&mut self.step, Step::Idle);
        match self.take(step, payload) {
            Ok(next) => self.step = next,
            Err(error @ AuthError::Refused(_)) => self.state = AuthState::Failed(error),
            Err(error) => {
                self.state = AuthState::Failed(error.clone());
                self.step = Step::Failure1(error);
            }
        }
        Ok(())
    }

    /// The data of an AUTH_Receive command, at most `allocation_len` bytes; a transport fills what the host asks for beyond them with zeroes.
    ///
    /// Fails with Command Sequence Error if there is no message to fetch, with Invalid Field in Command if it is longer than
    /// `allocation_len`, and with Internal Error if the operating system gives no random numbers.
    pub fn receive(&mut self, allocation_len: usize) -> Result<Vec<u8>, Status> {
        let len = match &self.step {
            Step::Challenge(hash, group) => {
                size_of::<message::Challenge>() + hash.output_len() + group.value_len()
            }
            Step::Success1(message, _) => message.len(),
            Step::Failure1(_) => size_of::<message::Failure>(),
            Step::Idle | Step::Reply(_) | Step::Success2 => {
                return Err(Status::COMMAND_SEQUENCE_ERROR);
            }
        };
        if allocation_len < len {
            return Err(Status::INVALID_FIELD);
        }
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Challenge(hash, group) => match self.challenge(hash, group) {
                Ok((challenge, message)) => {
                    self.step = Step::Reply(challenge);
                    Ok(message)
                }
                Err(_) => {
                    self.step = Step::Challenge(hash, group);
                    Err(Status::INTERNAL_ERROR)
                }
            },
            Step::Success1(message, then) => {
                match then {
                    Then::Done => self.state = AuthState::Authenticated,
                    Then::Success2 => self.step = Step::Success2,
                }
                Ok(message)
            }
            Step::Failure1(error) => Ok(message::failure(
                message::FAILURE1,
                self.t_id,
                error.reason(),
            )),
            Step::Idle | Step::Reply(_) | Step::Success2 => Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    }

    fn take(&mut self, step: Step, payload: &[u8]) -> Result<Step, AuthError> {
        let header = Header::parse(payload)?;
        // A host that gave up a transaction begins the next without a word.
        if header.is(message::NEGOTIATE) {
            self.t_id = header.t_id.get();
            self.generated = None;
            let sc_c = if self.concatenation {
                message::NEW_TLS_PSK
            } else {
                message::NO_CONCATENATION
            };
            let (hash, group) = message::choose(payload, &self.policy, sc_c)?;
            return Ok(Step::Challenge(hash, group));
        }
        if header.is(message::FAILURE2) {
            header.check(message::FAILURE2, self.t_id)?;
            let reason = message::parse_failure(message::FAILURE2, payload)?;
            return Err(AuthError::Refused(reason));
        }
        match step {
            Step::Reply(challenge) => {
                header.check(message::REPLY, self.t_id)?;
                self.check_reply(challenge, payload)
            }
            Step::Success2 => {
                header.check(message::SUCCESS2, self.t_id)?;
                message::check_success2(payload)?;
                self.state = AuthState::Authenticated;
                Ok(Step::Idle)
            }
            Step::Idle => Err(header.unexpected("AUTH_Negotiate")),
            Step::Challenge(..) | Step::Success1(..) | Step::Failure1(_) => {
                Err(header.unexpected("an AUTH_Receive command"))
            }
        }
    }

    fn challenge(
        &mut self,
        hash: AuthHash,
        group: DhGroup,
    ) -> Result<(Challenge, Vec<u8>), AuthError> {
        let value = self.random.challenge(hash)?;
        let sequence = self.sequence.next(&mut self.random)?;
        let key = DhKey::generate(group, &mut self.random)?;
        let message = message::challenge(
            self.t_id,
            &ChallengeValues {
                hash,
                group,
                sequence,
                challenge: &value,
                public: key.as_ref().map_or(&[], DhKey::public),
            },
        );
        let challenge = Challenge {
            hash,
            group,
            value,
            sequence,
            key,
        };
        Ok((challenge, message))
    }

    fn check_reply(&mut self, challenge: Challenge, payload: &[u8]) -> Result<Step, AuthError> {
        let reply = message::parse_reply(payload, challenge.hash, challenge.group)?;
        let shared = match &challenge.key {
            Some(key) => Some(key.shared(reply.public)?),
            None => None,
        };
        let exchange = Exchange {
            hash: challenge.hash,
            shared: shared.as_ref().map(|shared| &***shared),
            t_id: self.t_id,
            concatenation: self.concatenation,
            host_nqn: &self.host_nqn,
            sub_nqn: &self.sub_nqn,
        };
        let expected = exchange.response(
            Role::Host,
            &self.host_secret,
            &challenge.value,
            challenge.sequence,
        );
        if !bool::from(expected.ct_eq(reply.response)) {
            return Err(AuthError::HostResponse);
        }
        let generated = reply
            .challenge
            .and_then(|(own, _)| exchange.generated([&challenge.value, own]));
        // With sequence number 0 the host's challenge is for the key alone.
        let response = match (reply.challenge, &self.controller_secret) {
            (None, _) if self.concatenation => {
                return Err(AuthError::Field {
                    field: "CVALID",
                    expected: "1 for a key of a secure channel",
                    found: 0,
                });
            }
            (None, _) => None,
            (Some((_, 0)), _) if self.concatenation => None,
            (Some((_, 0)), _) => {
                return Err(AuthError::Field {
                    field: "SEQNUM",
                    expected: "a number other than 0 with a challenge",
                    found: 0,
                });
            }
            (Some(_), None) => return Err(AuthError::NoControllerSecret),
            (Some((value, sequence)), Some(secret)) => {
                Some(exchange.response(Role::Controller, secret, value, sequence))
            }
        };
        self.generated = generated;
        let then = match response {
            None => Then::Done,
            Some(_) => Then::Success2,
        };
        let message = message::success1(
            self.t_id,
            challenge.hash,
            response.as_deref().map(Vec::as_slice),
        );
        Ok(Step::Success1(message, then))
    }
}

impl fmt::Debug for ControllerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerAuth")
            .field("sub_nqn", &self.sub_nqn)
            .field("host_nqn", &self.host_nqn)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
