//! The command line of Toroid: keys, samples, programs and drives; `toroid demo` shows all of it at work.
//!
//! With `--json` every command prints one JSON object.
//! Open `commands/demo.rs` to see the whole platform in use.

mod backend;
mod commands;
mod drive_args;
mod exit;
mod interrupt;
mod ledger_args;
mod machine;
mod opened;
mod output;
mod passphrase;
mod progress;
mod recorder;
mod secret;
mod serve;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::commands::{
    column, compile, core, demo, drive, gpu, keys, map, objects, params, program, raw, run, sample,
};
use crate::output::Output;

/// Compute on encrypted data where it is stored.
#[derive(Parser)]
#[command(name = "toroid", version, about, propagate_version = true, after_help = exit::help())]
struct Cli {
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// No progress bars.
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Multiply two encrypted integers on a drive: the whole platform in one command.
    Demo(demo::Args),
    /// Show the parameter sets: dimensions, noise, security, failure probability.
    Params(params::Args),
    /// Generate keys, or show what a key file holds.
    #[command(subcommand)]
    Keys(keys::Command),
    /// Encrypt an integer.
    Encrypt(sample::EncryptArgs),
    /// Decrypt a sample.
    Decrypt(sample::DecryptArgs),
    /// Compile a graph of integer operations to a program for columns.
    Compile(compile::Args),
    /// Assemble and check a program.
    Asm(program::AsmArgs),
    /// Show the text of a binary program.
    Disasm(program::DisasmArgs),
    /// Format, serve, find drives, and show what they hold.
    #[command(subcommand)]
    Drive(drive::Command),
    /// Write keys, programs, test vectors or samples to a drive.
    Put(objects::PutArgs),
    /// Fetch a sample from a drive.
    Get(objects::GetArgs),
    /// Make room for a sample on a drive, for others to write it there.
    Reserve(map::ReserveArgs),
    /// Samples as the blocks that dd and nvme-cli write and read.
    #[command(subcommand)]
    Raw(raw::Command),
    /// Delete what a drive stores for a register.
    Delete(objects::DeleteArgs),
    /// Put columns of numbers on a drive, decrypt them, and list them.
    #[command(subcommand)]
    Column(column::Command),
    /// Run a program over columns of a drive, with the result as a column.
    Map(column::MapArgs),
    /// Run the program on a drive by compute-on-write or compute-on-read.
    Run(run::Args),
    /// List, write, test and synthesize the SystemVerilog cores.
    #[command(subcommand)]
    Core(core::Command),
    /// Show the GPUs of this machine, and measure and check them.
    #[command(subcommand)]
    Gpu(gpu::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.json, cli.quiet);
    let checked = toroid_ring::simd::SimdLevel::requested()
        .context("TOROID_SIMD")
        .and_then(|_| interrupt::install());
    let result = checked.and_then(|()| match cli.command {
        Command::Demo(args) => demo::run(&args, &output),
        Command::Params(args) => params::run(&args, &output),
        Command::Keys(command) => keys::run(&command, &output),
        Command::Encrypt(args) => sample::encrypt(&args, &output),
        Command::Decrypt(args) => sample::decrypt(&args, &output),
        Command::Compile(args) => compile::run(&args, &output),
        Command::Asm(args) => program::assemble(&args, &output),
        Command::Disasm(args) => program::disassemble(&args, &output),
        Command::Drive(command) => drive::run(&command, &output),
        Command::Put(args) => objects::put(&args, &output),
        Command::Get(args) => objects::get(&args, &output),
        Command::Reserve(args) => map::reserve(&args, &output),
        Command::Raw(command) => raw::run(&command, &output),
        Command::Delete(args) => objects::delete(&args, &output),
        Command::Column(command) => column::run(&command, &output),
        Command::Map(args) => column::map(&args, &output),
        Command::Run(args) => run::run(&args, &output),
        Command::Core(command) => core::run(&command, &output),
        Command::Gpu(command) => gpu::run(&command, &output),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.failure(&error);
            exit::code(&error, interrupt::is_interrupted())
        }
    }
}
