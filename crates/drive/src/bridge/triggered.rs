//! Programs that commands trigger.

use std::collections::BTreeSet;
use std::time::Duration;

use toroid_engine::{MapFacts, Prepared, PreparedRun, Requester, RunOutcome};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{Instruction, VrNumber};
use toroid_nvme::Status;

use super::command::{Context, Effect, Reply, blocks_of};
use super::commands::{Bridge, READ_TRIES, Step, Trigger};
use super::log::{ProgramRun, TraceKind};
use super::status::{Fault, METADATA_INVALID, METADATA_MISMATCH};
use super::under_way::Run;
use super::watches::Watch;

/// A program that has run on what triggered it, with what describes its result.
struct Computed<'a> {
    ran: Ran<'a>,
    result: ScMetadata,
}

enum Ran<'a> {
    OnSample(Box<PreparedRun<'a>>, Run),
    OnColumn {
        facts: MapFacts,
        duration: Duration,
        under_way: Run,
        /// Of a write: empties the register of the column.
        emptied: Option<Prepared<'a>>,
    },
}

impl Bridge {
    /// Runs the program that a command triggers, and ends the command.
    pub(crate) fn run(&self, context: &Context, mut trigger: Trigger) -> Result<Reply, Fault> {
        for _ in 0..READ_TRIES {
            context.check_cancelled()?;
            let io = trigger.io;
            if let Some(reply) = self.try_run(context, trigger)? {
                return Ok(reply);
            }
            trigger = match self.read(context, io)? {
                Step::Run(trigger) => *trigger,
                Step::Done(reply) => return Ok(reply),
            };
        }
        Err(Fault::passing(
            METADATA_MISMATCH,
            "the blocks were written again and again before the run could begin",
        ))
    }

    /// Runs the program; `None` if the command must read its blocks again.
    fn try_run(&self, context: &Context, mut trigger: Trigger) -> Result<Option<Reply>, Fault> {
        let cid = context.cid();
        let vr = trigger.object.sc().vr();
        let program = VrNumber::program(vr.key_id())
            .map_err(|error| Fault::new(METADATA_INVALID, error.to_string()))?;
        self.log.trace(TraceKind::ProgramStarted {
            cid,
            program,
            trigger: vr,
        });
        let computed = self.compute(context, program, &mut trigger);
        let status = match &computed {
            Ok(Some(_)) => Status::SUCCESS,
            Ok(None) => METADATA_MISMATCH,
            Err(fault) => fault.status,
        };
        self.log.trace(TraceKind::ProgramEnded {
            cid,
            program,
            status,
        });
        let put = match computed {
            Ok(None) => return Ok(None),
            Ok(Some(computed)) => self.put_result(context, &trigger, computed),
            Err(fault) => Err(fault),
        };
        let computed = put.inspect_err(|_| self.program_failed(context, vr.key_id()))?;
        match computed.ran {
            Ran::OnSample(prepared, under_way) => {
                let outcome = prepared.commit();
                self.stored(&trigger.object);
                self.program_ran(context, vr, &outcome, &under_way);
            }
            Ran::OnColumn {
                facts,
                duration,
                under_way,
                emptied,
            } => {
                emptied.map(Prepared::commit);
                self.map_ran(context, program, (&facts, duration), &under_way);
            }
        }
        Ok(Some(self.deliver(context, trigger, &computed.result)))
    }

    /// Runs the program, and puts its result in the place of the trigger's sample or column. `None` if the blocks of a read were
    /// written before the run began, so that their sample must not reach its register.
    fn compute(
        &self,
        context: &Context,
        program: VrNumber,
        trigger: &mut Trigger,
    ) -> Result<Option<Computed<'_>>, Fault> {
        if trigger.object.sc().column() {
            return self.compute_column(context, trigger);
        }
        let Trigger { object, blocks, .. } = trigger;
        // The program's own key id, whatever the host may use: another may have stored it.
        let key_ids = BTreeSet::from([program.key_id()]);
        let under_way = Run::begin(&self.log, context, program, 1);
        let requester = Requester {
            tenant: context.host.identity.tenant,
            cancel: &context.cancel,
            key_ids: Some(&key_ids),
            progress: Some(under_way.progress()),
        };
        let part = object.part(context, &blocks.data)?;
        let begun = self.engine.begin_run(&part, requester);
        // What is stored from here on is later than the run.
        if trigger.watch.as_ref().is_some_and(Watch::saw_a_write) {
            return Ok(None);
        }
        let prepared = begun?.execute()?;
        let outcome = prepared.outcome();
        let result = object.result(outcome)?;
        blocks.data[..object.len].copy_from_slice(&outcome.bytes);
        blocks.metadata = self.carrier.nvme_metadata(&result, trigger.io.blocks)?;
        let ran = Ran::OnSample(Box::new(prepared), under_way);
        Ok(Some(Computed { ran, result }))
    }

    fn compute_column(
        &self,
        context: &Context,
        trigger: &mut Trigger,
    ) -> Result<Option<Computed<'_>>, Fault> {
        let is_write = trigger.is_write();
        let Trigger {
            object,
            blocks,
            watch,
            io,
        } = trigger;
        let mapped = self.map_trigger(context, (object, &blocks.data), watch.as_ref());
        let Some((mapped, under_way)) = mapped? else {
            return Ok(None);
        };
        blocks.data[..object.len].copy_from_slice(&mapped.bytes);
        blocks.metadata = self.carrier.nvme_metadata(&mapped.sc, io.blocks)?;
        let emptied = is_write.then(|| self.prepare_emptying(object));
        let ran = Ran::OnColumn {
            facts: mapped.facts,
            duration: mapped.duration,
            under_way,
            emptied: emptied.transpose()?,
        };
        Ok(Some(Computed {
            ran,
            result: mapped.sc,
        }))
    }

    /// Writes the result of a write's program to the SSD; that of a read's is not stored.
    fn put_result<'a>(
        &self,
        context: &Context,
        trigger: &Trigger,
        computed: Computed<'a>,
    ) -> Result<Computed<'a>, Fault> {
        if trigger.is_write() {
            let (io, description) = (trigger.io, &trigger.object.description);
            let result = Some(computed.result);
            let put = self
                .carrier
                .commit(context, io, &trigger.blocks, description, result);
            self.watches.written(&blocks_of(io));
            put?;
        }
        Ok(computed)
    }

    /// Ends the command.
    fn deliver(&self, context: &Context, trigger: Trigger, result: &ScMetadata) -> Reply {
        if trigger.is_write() {
            let bytes = trigger.blocks.data.len();
            return self.was_written(&context.host, bytes, Effect::Computed);
        }
        self.carrier
            .delivered(&trigger.object.description, Some(result));
        self.was_read(&context.host, trigger.blocks, Effect::Computed)
    }

    pub(crate) fn program_failed(&self, context: &Context, key_id: u32) {
        self.log.count(|statistics| {
            statistics.programs.entry(key_id).or_default().failures += 1;
        });
        let account = &context.host.account;
        account.count(|statistics| statistics.program_failures += 1);
    }

    /// Counts a run on columns.
    pub(super) fn map_ran(
        &self,
        context: &Context,
        program: VrNumber,
        (facts, duration): (&MapFacts, Duration),
        under_way: &Run,
    ) {
        let bootstraps = facts.bootstraps;
        let rows = under_way.ended(bootstraps);
        self.count_run(context, program.key_id(), (rows, bootstraps), duration);
        tracing::info!(
            host = context.host.identity.name,
            %program,
            ?duration,
            bootstraps,
            "program ran on columns"
        );
    }

    fn count_run(
        &self,
        context: &Context,
        key_id: u32,
        (rows, bootstraps): (u64, u64),
        duration: Duration,
    ) {
        self.log.count(|statistics| {
            let program = statistics.programs.entry(key_id).or_default();
            program.runs += 1;
            program.total += duration;
            program.longest = program.longest.max(duration);
        });
        context.host.account.count(|statistics| {
            statistics.rows += rows;
            statistics.bootstraps += bootstraps;
            statistics.programs += 1;
        });
    }

    pub(crate) fn program_ran(
        &self,
        context: &Context,
        trigger: VrNumber,
        outcome: &RunOutcome,
        under_way: &Run,
    ) {
        let bootstraps = outcome
            .instructions
            .iter()
            .filter(|timing| matches!(timing.instruction, Instruction::Bootstrap { .. }))
            .count() as u64;
        let rows = under_way.ended(bootstraps);
        self.count_run(
            context,
            trigger.key_id(),
            (rows, bootstraps),
            outcome.duration,
        );
        tracing::info!(
            host = context.host.identity.name,
            %trigger,
            duration = ?outcome.duration,
            bootstraps,
            page_ins = outcome.page_ins,
            page_outs = outcome.page_outs,
            "program ran"
        );
        self.log.program_ran(ProgramRun {
            cid: context.cid(),
            trigger,
            returned: outcome.returned,
            duration: outcome.duration,
            instructions: outcome.instructions.clone(),
            variance: outcome.noise.variance(),
            log2_failure: outcome.noise.log2_failure(),
            page_ins: outcome.page_ins,
            page_outs: outcome.page_outs,
        });
    }
}
