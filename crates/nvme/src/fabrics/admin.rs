//! Admin and Fabrics commands of a controller.

use std::time::{Duration, Instant};

use zerocopy::{FromZeros, IntoBytes};

use super::command::{DISCOVERY_NQN, cc, csts, fctype, property, put_text};
use super::controller::{Aborted, COOLEST, Event, FabricsController, HOTTEST};
use super::discovery::{Port, discovery_log};
use super::target::Target;
use crate::admin::{cns, csi, opcode};
use crate::log::{self, feature, log_page};
use crate::{
    BROADCAST_NSID, ControllerInfo, Cqe, IdentifyController, IdentifyNamespace, Request, Response,
    Sqe, Status,
};

/// Version 2.0 of the base specification.
const VERSION: u32 = 0x0002_0000;
/// NMIC: a namespace may belong to several controllers.
const SHARED: u8 = 1;
/// Granularity of the keep alive timer, in units of 100 ms.
const KAS: u16 = 1;
/// Asynchronous Event Requests that may wait.
const EVENT_REQUESTS: usize = 4;
/// Abort commands in flight (0-based).
const ABORT_LIMIT: u8 = 3;
/// Time that becoming ready may take, in units of 500 ms.
const READY_TIMEOUT: u64 = 20;

/// MDTS of discovery controllers, as a power of two of 4096 bytes: small, since any host can create one.
const DISCOVERY_MDTS: u8 = 4;

/// How a command continues.
pub(super) enum Answer {
    /// It has completed.
    Done(Response),
    /// The controller completes it later.
    Held,
    /// The storage executes it.
    Storage(Request),
    /// It has completed, and the storage is to be flushed.
    Flush(Response),
}

fn done(cid: u16) -> Answer {
    Answer::Done(Response::success(cid))
}

fn failed(cid: u16, status: Status) -> Answer {
    Answer::Done(Response::failure(cid, status, true))
}

fn with_value(cid: u16, value: u64) -> Answer {
    let mut response = Response::success(cid);
    response.cqe.dw0 = (value as u32).into();
    response.cqe.dw1 = ((value >> 32) as u32).into();
    Answer::Done(response)
}

fn with_data(cid: u16, data: Vec<u8>) -> Answer {
    let mut response = Response::success(cid);
    response.data = data;
    Answer::Done(response)
}

impl FabricsController {
    fn is_discovery(&self) -> bool {
        self.subsystem.is_none()
    }

    fn has_other_command_sets(&self) -> bool {
        self.info()
            .is_some_and(|info| !info.other_namespaces.is_empty())
    }

    /// Whether the host has enabled the controller, and it is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.update_status() & csts::RDY != 0
    }

    /// The current status. A controller becomes ready, or ceases to be, once no earlier command of its host is in flight.
    pub(super) fn update_status(&self) -> u32 {
        let mut state = self.state();
        let idle = self.flights.none() && self.predecessors.iter().all(|flights| flights.none());
        if state.changing && idle {
            state.changing = false;
            state.status ^= csts::RDY;
        }
        state.status
    }

    /// Property Get and Property Set.
    pub(super) fn property(&self, target: &Target, sqe: &Sqe) -> Answer {
        let cid = sqe.cid.get();
        let offset = sqe.cdw11.get();
        if sqe.nsid.get() as u8 == fctype::PROPERTY_SET {
            return match offset {
                property::CC => self.configure(cid, sqe.cdw12.get()),
                _ => failed(cid, Status::INVALID_FIELD),
            };
        }
        let wide = sqe.cdw10.get() & 7 == 1;
        let value = match (offset, wide) {
            (property::CAP, true) => {
                let entries = u64::from(target.limits.queue_entries - 1);
                // Contiguous queues; the NVM command set, and all supported sets where there are others.
                let sets = 1 << 37 | u64::from(self.has_other_command_sets()) << 43;
                // Ready with all media; CRTO holds the time-out too.
                entries | 1 << 16 | READY_TIMEOUT << 24 | sets | 1 << 59
            }
            (property::VS, false) => VERSION.into(),
            (property::CC, false) => self.state().configuration.into(),
            (property::CSTS, false) => self.update_status().into(),
            (property::CRTO, false) => READY_TIMEOUT,
            _ => return failed(cid, Status::INVALID_FIELD),
        };
        with_value(cid, value)
    }

    fn configure(&self, cid: u16, value: u32) -> Answer {
        let mut state = self.state();
        let before = state.configuration;
        state.configuration = value;
        let (was, is) = (before & cc::EN != 0, value & cc::EN != 0);
        if !was && is {
            let sets = value & cc::CSS;
            // All supported sets are the NVM set where there is no other: some hosts ask for them without looking at CAP.
            let good = value & cc::MPS == 0 && (sets == 0 || sets == cc::CSS_ALL);
            // RDY follows once no earlier command is in flight.
            state.status = if good { 0 } else { csts::CFS };
            state.changing = good;
        } else if was && !is {
            state.changing = state.status & csts::RDY != 0;
            state.status &= csts::RDY;
            // The host may reuse their identifiers.
            let requests = std::mem::take(&mut state.requests);
            let aborted = |cid| Cqe::new(cid, Status::ABORT_REQUESTED, false);
            state.completions.extend(requests.into_iter().map(aborted));
            state.granted = 0;
            state.events.clear();
            state.reported.clear();
            state.features.clear();
            state.temperature = COOLEST..HOTTEST;
            drop(state);
            self.end_io();
            return done(cid);
        }
        if value & cc::SHN != 0 && before & cc::SHN == 0 {
            state.status |= csts::SHUTDOWN_OCCURRING;
            drop(state);
            self.end_io();
            return Answer::Flush(Response::success(cid));
        }
        done(cid)
    }

    /// The storage has flushed: shutting down is complete.
    pub(super) fn shut_down(&self) {
        let mut state = self.state();
        // A reset in between also ended the shutdown.
        if state.status & csts::SHUTDOWN_OCCURRING != 0 {
            state.status ^= csts::SHUTDOWN_OCCURRING | csts::SHUTDOWN_COMPLETE;
        }
    }

    /// An admin command, with its data if it has any. `port` is the one that the host has connected to.
    pub(super) fn admin(
        &self,
        target: &Target,
        sqe: &Sqe,
        data: Vec<u8>,
        (port, now): (Port, Instant),
    ) -> Answer {
        let cid = sqe.cid.get();
        // Only I/O commands can be fused, and this target has none that are.
        if sqe.flags & 3 != 0 {
            return failed(cid, Status::INVALID_FIELD);
        }
        if self.state().configuration & cc::EN == 0 {
            return failed(cid, Status::COMMAND_SEQUENCE_ERROR);
        }
        match sqe.opcode {
            opcode::KEEP_ALIVE => {
                self.seen(now);
                done(cid)
            }
            opcode::ASYNC_EVENT => self.event_request(cid),
            opcode::GET_LOG_PAGE => self.get_log_page(target, sqe, port),
            opcode::SET_FEATURES => self.set_features(target, sqe),
            opcode::GET_FEATURES => self.get_features(target, sqe),
            opcode::IDENTIFY => self.identify(target, sqe),
            _ if !self.is_ready() => failed(cid, Status::COMMAND_SEQUENCE_ERROR),
            opcode::ABORT => self.abort(sqe),
            _ if self.is_discovery() => failed(cid, Status::INVALID_OPCODE),
            _ => Answer::Storage(Request {
                sqe: *sqe,
                data,
                metadata: Vec::new(),
            }),
        }
    }

    fn event_request(&self, cid: u16) -> Answer {
        let mut state = self.state();
        if state.requests.len() >= EVENT_REQUESTS {
            return failed(cid, Status::AER_LIMIT_EXCEEDED);
        }
        state.requests.push_back(cid);
        state.report();
        Answer::Held
    }

    fn abort(&self, sqe: &Sqe) -> Answer {
        let (qid, victim) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) as u16);
        let mut state = self.state();
        let aborted = if qid == 0 {
            let requests = state.requests.len();
            state.requests.retain(|request| *request != victim);
            let aborted = state.requests.len() < requests;
            if aborted {
                let cqe = Cqe::new(victim, Status::ABORT_REQUESTED, false);
                state.completions.push_back(cqe);
            }
            aborted
        } else {
            let Some(queue) = state.queues.get(&qid).cloned() else {
                return failed(sqe.cid.get(), Status::INVALID_FIELD);
            };
            drop(state);
            // The completion of a command in progress tells whether it stopped in time.
            queue.abort(victim) == Aborted::Now
        };
        with_value(sqe.cid.get(), u64::from(!aborted))
    }

    fn set_features(&self, target: &Target, sqe: &Sqe) -> Answer {
        let cid = sqe.cid.get();
        let value = sqe.cdw11.get();
        if sqe.cdw10.get() >> 31 != 0 {
            return failed(cid, Status::FEATURE_NOT_SAVEABLE);
        }
        match sqe.cdw10.get() as u8 {
            feature::QUEUES if !self.is_discovery() => {
                let (sq, cq) = (value & 0xFFFF, value >> 16);
                if sq == 0xFFFF || cq == 0xFFFF {
                    return failed(cid, Status::INVALID_FIELD);
                }
                let granted = (sq.min(cq) + 1).min(target.limits.io_queues.into()) as u16;
                let mut state = self.state();
                if !state.queues.is_empty() {
                    return failed(cid, Status::COMMAND_SEQUENCE_ERROR);
                }
                state.granted = granted;
                with_value(cid, queues(granted))
            }
            feature::KEEP_ALIVE => {
                self.state().keep_alive = keep_alive(value);
                done(cid)
            }
            feature::TEMPERATURE => {
                // The composite temperature, or all sensors, of which there are no others; 0 is the threshold above, 1 that below.
                let (sensor, under) = (value >> 16 & 0xF, value >> 20 & 3);
                if !matches!(sensor, 0 | 0xF) || under > 1 {
                    return failed(cid, Status::INVALID_FIELD);
                }
                let mut state = self.state();
                match under {
                    0 => state.temperature.end = value as u16,
                    _ => state.temperature.start = value as u16,
                }
                drop(state);
                self.look_at_temperature();
                done(cid)
            }
            feature::WRITE_CACHE if value & 1 == 0 => failed(cid, Status::FEATURE_NOT_CHANGEABLE),
            feature::POWER if value & 0x1F != 0 => failed(cid, Status::INVALID_FIELD),
            id @ (feature::ARBITRATION
            | feature::POWER
            | feature::ERROR_RECOVERY
            | feature::WRITE_CACHE
            | feature::WRITE_ATOMICITY
            | feature::EVENTS) => {
                self.state().features.insert(id, value);
                self.look_at_temperature();
                done(cid)
            }
            _ => failed(cid, Status::INVALID_FIELD),
        }
    }

    /// Reports a temperature that has reached a threshold, if the host wants to know.
    fn look_at_temperature(&self) {
        if !self.state().is_temperate() {
            self.post(Event::Temperature);
        }
    }

    fn get_features(&self, target: &Target, sqe: &Sqe) -> Answer {
        const CHANGEABLE: u64 = 1 << 2;
        let cid = sqe.cid.get();
        let id = sqe.cdw10.get() as u8;
        let select = sqe.cdw10.get() >> 8 & 7;
        let under = sqe.cdw11.get() >> 20 & 3;
        let default = match id {
            feature::ARBITRATION
            | feature::POWER
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY => 0,
            feature::TEMPERATURE if under > 1 => return failed(cid, Status::INVALID_FIELD),
            feature::TEMPERATURE if under == 1 => COOLEST.into(),
            feature::TEMPERATURE => HOTTEST.into(),
            feature::WRITE_CACHE => 1,
            feature::EVENTS => 0,
            feature::QUEUES if !self.is_discovery() => queues(target.limits.io_queues),
            feature::KEEP_ALIVE => 0,
            feature::HOST_IDENTIFIER => {
                // The identifier of 16 bytes, which bit 0 asks for, is the only one of Fabrics.
                return match sqe.cdw11.get() & 1 {
                    1 => with_data(cid, self.host_id.to_vec()),
                    _ => failed(cid, Status::INVALID_FIELD),
                };
            }
            _ => return failed(cid, Status::INVALID_FIELD),
        };
        let state = self.state();
        let current = match id {
            feature::QUEUES => match state.granted {
                0 => default,
                granted => queues(granted),
            },
            feature::KEEP_ALIVE => state.keep_alive.as_millis() as u64,
            feature::TEMPERATURE if under == 1 => state.temperature.start.into(),
            feature::TEMPERATURE => state.temperature.end.into(),
            id => state
                .features
                .get(&id)
                .map_or(default, |value| (*value).into()),
        };
        match select {
            0 => with_value(cid, current),
            1 | 2 => with_value(cid, default),
            3 => with_value(cid, CHANGEABLE),
            _ => failed(cid, Status::INVALID_FIELD),
        }
    }

    fn get_log_page(&self, target: &Target, sqe: &Sqe, port: Port) -> Answer {
        let cid = sqe.cid.get();
        let (dw10, dw11) = (sqe.cdw10.get(), sqe.cdw11.get());
        let id = dw10 as u8;
        let retain = dw10 & 1 << 15 != 0;
        let dwords = u64::from(dw11 & 0xFFFF) << 16 | u64::from(dw10 >> 16);
        let offset = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
        let len = (dwords + 1) * 4;
        if len > max_transfer(self.info()) || !offset.is_multiple_of(4) {
            return failed(cid, Status::INVALID_FIELD);
        }
        let nsid = sqe.nsid.get();
        if id == log_page::HEALTH
            && !matches!(nsid, 0 | BROADCAST_NSID)
            && self.info().is_some_and(|info| !info.has_namespace(nsid))
        {
            return failed(cid, Status::INVALID_NAMESPACE);
        }
        let Some(mut page) = self.log_page(target, id, sqe, port) else {
            let of_programs = log_page::PROGRAMS..=log_page::MEMORY_RANGE_SETS;
            return match of_programs.contains(&id)
                && self.has_other_command_sets()
                && self.is_ready()
            {
                true => Answer::Storage(Request::new(*sqe)),
                false => failed(cid, Status::INVALID_LOG_PAGE),
            };
        };
        let end = page.len().next_multiple_of(4);
        if offset > end as u64 {
            return failed(cid, Status::INVALID_FIELD);
        }
        if !retain {
            let mut state = self.state();
            if state.reported.remove(&id) {
                state.report();
            }
            if id == log_page::CHANGED_NAMESPACES {
                state.changed.clear();
            }
        }
        page.drain(..page.len().min(offset as usize));
        page.resize(len as usize, 0);
        with_data(cid, page)
    }

    fn log_page(&self, target: &Target, id: u8, sqe: &Sqe, port: Port) -> Option<Vec<u8>> {
        use crate::opcode as io;
        if id == log_page::DISCOVERY {
            return self.is_discovery().then(|| {
                let entries = target.discovery_entries(&self.host_nqn, port);
                discovery_log(1, &entries)
            });
        }
        let storage = self.storage.as_ref()?;
        Some(match id {
            log_page::SUPPORTED => {
                let mut pages = vec![
                    log_page::SUPPORTED,
                    log_page::ERRORS,
                    log_page::HEALTH,
                    log_page::FIRMWARE,
                    log_page::CHANGED_NAMESPACES,
                    log_page::EFFECTS,
                    log_page::REASONS,
                ];
                let mut others = storage.info().other_namespaces.iter();
                if others.any(|other| other.csi == csi::PROGRAMS) {
                    pages.extend([
                        log_page::PROGRAMS,
                        log_page::PROGRAM_TYPES,
                        log_page::MEMORY_RANGE_SETS,
                    ]);
                }
                log::supported_page(&pages)
            }
            log_page::ERRORS => log::error_page(&storage.errors()),
            log_page::REASONS => log::reasons_page(&storage.errors()),
            log_page::HEALTH => log::health_page(&storage.health(), self.state().is_temperate()),
            log_page::FIRMWARE => log::firmware_page(&storage.info().firmware),
            log_page::CHANGED_NAMESPACES => {
                let mut page = vec![0; 4096];
                let changed = &self.state().changed;
                let fits = changed.len() <= 1024;
                let all = [BROADCAST_NSID];
                let list = changed.iter().copied().filter(|_| fits);
                let list = list.chain(all.into_iter().filter(|_| !fits));
                for (entry, nsid) in page.chunks_exact_mut(4).zip(list) {
                    entry.copy_from_slice(&nsid.to_le_bytes());
                }
                page
            }
            log_page::EFFECTS => {
                let admin = [
                    opcode::GET_LOG_PAGE,
                    opcode::IDENTIFY,
                    opcode::ABORT,
                    opcode::SET_FEATURES,
                    opcode::GET_FEATURES,
                    opcode::ASYNC_EVENT,
                    opcode::KEEP_ALIVE,
                ];
                let nvm = [
                    (io::FLUSH, false),
                    (io::WRITE, true),
                    (io::READ, false),
                    (io::COMPARE, false),
                    (io::WRITE_ZEROES, true),
                    (io::DATASET_MANAGEMENT, true),
                ];
                match (sqe.cdw14.get() >> 24) as u8 {
                    csi::NVM => log::effects_page(&admin, &nvm),
                    csi => {
                        let sets = &storage.info().other_namespaces;
                        let known = sets.iter().any(|other| other.csi == csi);
                        let (own, io) = csi::commands(csi).filter(|_| known)?;
                        log::effects_page(&[&admin, own].concat(), io)
                    }
                }
            }
            _ => return None,
        })
    }

    fn identify(&self, target: &Target, sqe: &Sqe) -> Answer {
        let cid = sqe.cid.get();
        let nsid = sqe.nsid.get();
        let csi = (sqe.cdw11.get() >> 24) as u8;
        let cns = sqe.cdw10.get() as u8;
        if cns == cns::CONTROLLER {
            return with_data(cid, self.identify_controller(target));
        }
        let Some(info) = self.info() else {
            return failed(cid, Status::INVALID_FIELD);
        };
        let zeroes = || vec![0; 4096];
        let nvm = info.namespace(nsid);
        let other = info
            .other_namespaces
            .iter()
            .find(|other| other.nsid == nsid);
        let has_set = |csi| csi == csi::NVM || info.other_namespaces.iter().any(|o| o.csi == csi);
        let data = match cns {
            cns::NAMESPACE => match (nvm, other) {
                (Some(namespace), _) => {
                    let mut identify = IdentifyNamespace::new(namespace);
                    identify.nmic = SHARED;
                    if namespace.metadata_size() > 0 {
                        identify = identify.interleaved();
                    }
                    identify.as_bytes().to_vec()
                }
                (None, Some(_)) => return failed(cid, Status::INVALID_COMMAND_SET),
                (None, None) if nsid == 0 || nsid == BROADCAST_NSID => {
                    return failed(cid, Status::INVALID_NAMESPACE);
                }
                // Unused identifiers have a structure of zeroes.
                (None, None) => zeroes(),
            },
            cns::NAMESPACES | cns::NAMESPACES_OF_SET => {
                if nsid >= BROADCAST_NSID - 1 {
                    return failed(cid, Status::INVALID_NAMESPACE);
                }
                let wanted = (cns == cns::NAMESPACES_OF_SET).then_some(csi);
                if wanted.is_some_and(|csi| !has_set(csi)) {
                    return failed(cid, Status::INVALID_FIELD);
                }
                let nvm = info.namespaces.iter().map(|n| (n.nsid(), csi::NVM));
                let others = info.other_namespaces.iter().map(|o| (o.nsid, o.csi));
                let mut list: Vec<u32> = nvm
                    .chain(others)
                    .filter(|(id, set)| *id > nsid && wanted.is_none_or(|csi| csi == *set))
                    .map(|(id, _)| id)
                    .collect();
                list.sort_unstable();
                let mut data = zeroes();
                for (entry, id) in data.chunks_exact_mut(4).zip(list) {
                    entry.copy_from_slice(&id.to_le_bytes());
                }
                data
            }
            cns::DESCRIPTORS => {
                let (nguid, set) = match (nvm, other) {
                    (Some(namespace), _) => (namespace.nguid(), csi::NVM),
                    (None, Some(other)) => (other.nguid, other.csi),
                    (None, None) => return failed(cid, Status::INVALID_NAMESPACE),
                };
                let mut data = Vec::with_capacity(4096);
                if nguid != [0; 16] {
                    // NGUID, and the same as a UUID.
                    for kind in [2, 3] {
                        data.extend_from_slice(&[kind, 16, 0, 0]);
                        data.extend_from_slice(&nguid);
                    }
                }
                data.extend_from_slice(&[4, 1, 0, 0, set]);
                data.resize(4096, 0);
                data
            }
            cns::NAMESPACE_OF_SET => match (nvm, other) {
                (Some(_), _) if csi == csi::NVM => zeroes(),
                (None, Some(other)) if csi == other.csi => {
                    return Answer::Storage(Request::new(*sqe));
                }
                (None, None) => return failed(cid, Status::INVALID_NAMESPACE),
                _ => return failed(cid, Status::INVALID_COMMAND_SET),
            },
            cns::CONTROLLER_OF_SET if csi == csi::NVM => zeroes(),
            cns::CONTROLLER_OF_SET if has_set(csi) => return Answer::Storage(Request::new(*sqe)),
            cns::INDEPENDENT_NAMESPACE => {
                if !info.has_namespace(nsid) {
                    return failed(cid, Status::INVALID_NAMESPACE);
                }
                let mut data = zeroes();
                data[1] = SHARED;
                // Namespace status: ready.
                data[14] = 1;
                data
            }
            cns::COMMAND_SETS => {
                // One combination: all of them.
                let others = info
                    .other_namespaces
                    .iter()
                    .map(|other| 1u64 << other.csi.min(63));
                let sets = others.fold(1u64, |sets, bit| sets | bit);
                let mut data = zeroes();
                data[..8].copy_from_slice(&sets.to_le_bytes());
                data
            }
            _ => return failed(cid, Status::INVALID_FIELD),
        };
        with_data(cid, data)
    }

    fn identify_controller(&self, target: &Target) -> Vec<u8> {
        const DISCOVERY_CONTROLLER: u8 = 2;
        const HOST_ID_128: u32 = 1;
        const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
        const NAMESPACE_EVENTS: u32 = 1 << 8;
        const DISCOVERY_EVENTS: u32 = 1 << 31;
        const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
        /// Effects log page, and log page offsets and lengths of 32 bits.
        const LOG_ATTRIBUTES: u8 = 1 << 1 | 1 << 2;
        /// One firmware slot, read-only.
        const FIRMWARE: u8 = 1 | 1 << 1;
        /// SGLs, offsets into capsules and transport data blocks.
        const SGLS: u32 = 1 | 1 << 20 | 1 << 21;
        let limits = &target.limits;
        let mut identify = match self.info() {
            Some(info) => {
                let mut identify = IdentifyController::new(info);
                let others = info.other_namespaces.iter().map(|other| other.nsid);
                let most = others.fold(identify.nn.get(), u32::max);
                identify.nn = most.into();
                identify.ioccsz = ((64 + limits.in_capsule_bytes) / 16).into();
                identify.iorcsz = 1.into();
                identify.cmic = MULTIPLE_CONTROLLERS;
                identify.oaes = NAMESPACE_EVENTS.into();
                identify.acl = ABORT_LIMIT;
                identify.frmw = FIRMWARE;
                identify.elpe = (log::ERROR_ENTRIES - 1) as u8;
                identify.msdbd = 1;
                identify
            }
            None => {
                let mut identify = IdentifyController::new_zeroed();
                identify.cntrltype = DISCOVERY_CONTROLLER;
                identify.sn.fill(b' ');
                identify.mn.fill(b' ');
                identify.mn[..16].copy_from_slice(b"Toroid discovery");
                identify.fr.fill(b' ');
                identify.oaes = DISCOVERY_EVENTS.into();
                identify.mdts = DISCOVERY_MDTS;
                identify
            }
        };
        identify.ver = VERSION.into();
        identify.cntlid = self.id.into();
        identify.ctratt = (HOST_ID_128 | TRAFFIC_BASED_KEEP_ALIVE).into();
        identify.aerl = (EVENT_REQUESTS - 1) as u8;
        identify.kas = KAS.into();
        identify.lpa = LOG_ATTRIBUTES;
        identify.maxcmd = limits.queue_entries.into();
        identify.sgls = SGLS.into();
        let nqn = self.subsystem.as_ref().map_or(DISCOVERY_NQN, |s| &s.nqn);
        put_text(&mut identify.subnqn, nqn);
        identify.as_bytes().to_vec()
    }
}

/// Most bytes that an admin command may transfer.
pub(super) fn max_transfer(info: Option<&ControllerInfo>) -> u64 {
    info.map_or(4096 << DISCOVERY_MDTS, |info| info.mdts_bytes.into())
}

/// A keep alive time-out in milliseconds, rounded up to the timer's granularity; zero for none.
pub(super) fn keep_alive(milliseconds: u32) -> Duration {
    let unit = u64::from(KAS) * 100;
    Duration::from_millis(u64::from(milliseconds).next_multiple_of(unit))
}

/// Value of the Number of Queues feature: submission and completion queues, 0-based.
fn queues(count: u16) -> u64 {
    let count = u64::from(count.saturating_sub(1));
    count | count << 16
}
