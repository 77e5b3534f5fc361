//! Commands that the block layer does not have, handed to Linux's NVMe driver as they are: admin commands through the block device itself,
//! commands for namespaces of other command sets through the character devices that the driver has for these (`/dev/ng0n2` beside `/dev/nvme0n1`).
//!
//! The two system calls are those of `linux/nvme_ioctl.h`. This is the one place here with unsafe code.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use aligned_vec::AVec;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use toroid_nvme::admin::{cns, csi, opcode as admin_opcode};
use toroid_nvme::fabrics::{Sgl, is_to_controller};
use toroid_nvme::{Cqe, IdentifyNamespace, OtherNamespace, Request, Response, Sqe, Status};

use super::{ALIGNMENT, Aligned, zeroes};

/// How long the kernel waits for a command. A program may run for hours; whoever gives up ends the connection.
const TIMEOUT_MS: u32 = 24 * 3_600_000;
/// Bytes of a list of namespace identification descriptors.
const DESCRIPTORS: u32 = 4096;

/// `struct nvme_passthru_cmd64`.
#[derive(Default)]
#[repr(C)]
struct Passed {
    opcode: u8,
    flags: u8,
    reserved1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    reserved2: u32,
    result: u64,
}

const _: () = assert!(size_of::<Passed>() == 80);

/// Where a command goes.
#[derive(Clone, Copy)]
enum Queue {
    Admin,
    Io,
}

/// A command with the buffer that it moves.
struct Pass<'a> {
    queue: Queue,
    passed: Passed,
    buffer: &'a mut Aligned,
}

// SAFETY: the opcodes are those of `linux/nvme_ioctl.h` for a pointer to `struct nvme_passthru_cmd64`, which `as_ptr` gives. The
// kernel moves `data_len` bytes at `address`, which `pass` sets to the length and the place of a buffer that is borrowed for as long. The
// output is the number that the call returns.
unsafe impl Ioctl for Pass<'_> {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        match self.queue {
            Queue::Admin => opcode::read_write::<Passed>(b'N', 0x47),
            Queue::Io => opcode::read_write::<Passed>(b'N', 0x48),
        }
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.passed.address = self.buffer.as_mut_ptr() as u64;
        self.passed.data_len = self.buffer.len() as u32;
        (&raw mut self.passed).cast()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(output)
    }
}

/// Asks for the identifier of the namespace behind a device.
struct Nsid;

// SAFETY: `NVME_IOCTL_ID` takes nothing and returns the number.
unsafe impl Ioctl for Nsid {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::none(b'N', 0x40)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(output.cast_unsigned())
    }
}

fn call<I: Ioctl>(device: impl AsFd, call: I) -> io::Result<I::Output> {
    // SAFETY: what the implementations above promise.
    Ok(unsafe { rustix::ioctl::ioctl(device, call) }?)
}

/// The identifier of the namespace behind a device; none of a device of another driver.
pub(super) fn nsid(device: &File) -> Option<u32> {
    call(device, Nsid).ok().filter(|nsid| *nsid > 0)
}

/// Hands a command over, and waits for its end. Fails where the kernel did not send it.
fn pass(device: &File, queue: Queue, request: &Request) -> io::Result<Response> {
    let sqe = &request.sqe;
    let to_controller = is_to_controller(sqe);
    let mut buffer = if to_controller {
        AVec::from_slice(ALIGNMENT, &request.data)
    } else {
        zeroes(Sgl::parse(&sqe.dptr).map_or(0, |sgl| sgl.length().into()))
    };
    let passed = Passed {
        opcode: sqe.opcode,
        nsid: sqe.nsid.get(),
        cdw2: sqe.cdw2.get(),
        cdw3: sqe.cdw3.get(),
        cdw10: sqe.cdw10.get(),
        cdw11: sqe.cdw11.get(),
        cdw12: sqe.cdw12.get(),
        cdw13: sqe.cdw13.get(),
        cdw14: sqe.cdw14.get(),
        cdw15: sqe.cdw15.get(),
        timeout_ms: TIMEOUT_MS,
        ..Passed::default()
    };
    let command = Pass {
        queue,
        passed,
        buffer: &mut buffer,
    };
    let ended = call(device, command)?;
    let cid = sqe.cid.get();
    let status = Status::new((ended >> 8 & 7) as u8, (ended & 0xFF) as u8);
    let status = status.unwrap_or(Status::INTERNAL_ERROR);
    let data = match status.is_success() && !to_controller {
        true => buffer.to_vec(),
        false => Vec::new(),
    };
    Ok(Response {
        cqe: Cqe::new(cid, status, ended >> 14 & 1 == 1),
        data,
        metadata: Vec::new(),
    })
}

/// An admin command by way of the block device.
pub(super) fn admin(device: &File, request: &Request) -> io::Result<Response> {
    pass(device, Queue::Admin, request)
}

/// A namespace of another command set, with its device.
pub(super) struct Other {
    pub(super) namespace: OtherNamespace,
    device: File,
}

impl Other {
    /// A command for the namespace.
    pub(super) fn execute(&self, request: &Request) -> io::Result<Response> {
        pass(&self.device, Queue::Io, request)
    }

    /// The namespace of a character device, if it is of another command set than NVM.
    fn open(block: &File, path: &Path) -> io::Result<Option<Other>> {
        let device = OpenOptions::new().read(true).write(true).open(path)?;
        let nsid = nsid(&device).ok_or(io::ErrorKind::Unsupported)?;
        let identify = Request::new(Sqe {
            opcode: admin_opcode::IDENTIFY,
            nsid: nsid.into(),
            dptr: Sgl::Transport {
                length: DESCRIPTORS,
            }
            .to_bytes(),
            cdw10: u32::from(cns::DESCRIPTORS).into(),
            ..Sqe::default()
        });
        let (csi, nguid) = IdentifyNamespace::descriptors(&admin(block, &identify)?.data);
        let namespace = OtherNamespace { nsid, csi, nguid };
        Ok((csi != csi::NVM).then_some(Other { namespace, device }))
    }
}

/// The namespaces of other command sets beside a block device, those of them that this process may use. None for a device of another driver.
pub(super) fn others(block: &File, device: u64) -> Vec<Arc<Other>> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let name = name
        .ok()
        .and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let Some(prefix) = name.as_deref().and_then(generic_prefix) else {
        return Vec::new();
    };
    let devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let paths = devices.filter_map(|entry| {
        let is_beside = entry.file_name().to_str()?.starts_with(&prefix);
        is_beside.then(|| entry.path())
    });
    let open = |path: std::path::PathBuf| match Other::open(block, &path) {
        Ok(other) => other.map(Arc::new),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "a namespace that cannot be used");
            None
        }
    };
    paths.filter_map(open).collect()
}

/// What the names of the character devices of a block device's controller begin with: `ng0n` for `nvme0n1`. None for a partition.
fn generic_prefix(block: &str) -> Option<String> {
    let (controller, namespace) = block.strip_prefix("nvme")?.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(controller) && is_number(namespace)).then(|| format!("ng{controller}n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_devices_are_those_of_the_same_controller() {
        assert_eq!(generic_prefix("nvme0n1").as_deref(), Some("ng0n"));
        assert_eq!(generic_prefix("nvme12n65536").as_deref(), Some("ng12n"));
        for other in ["nvme0n1p2", "nvme0c0n1", "sda", "nvmen1", "nvme0", "loop0"] {
            assert_eq!(generic_prefix(other), None, "{other}");
        }
    }

    #[test]
    fn a_device_of_another_driver_takes_no_commands() {
        let file = tempfile::tempfile().unwrap();
        let identify = Request::new(Sqe {
            opcode: admin_opcode::IDENTIFY,
            dptr: Sgl::Transport {
                length: DESCRIPTORS,
            }
            .to_bytes(),
            ..Sqe::default()
        });
        assert!(admin(&file, &identify).is_err());
        assert_eq!(nsid(&file), None);
        assert!(others(&file, 0).is_empty());
    }
}
