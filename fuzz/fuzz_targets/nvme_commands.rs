//! Commands, their buffers and Identify data from arbitrary bytes: parsed to something within its limits, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::{Input, repeat};
use toroid_nvme::{
    Command, ControllerInfo, Cqe, DsmRange, IdentifyController, IdentifyNamespace, Io, Namespace,
    Request, Sqe,
};
use zerocopy::{FromBytes, IntoBytes};

const IDENTIFY_BYTES: usize = 4096;
const MDTS: u32 = 16384;

fn controller() -> ControllerInfo {
    let namespace = |nsid, block_size, blocks, metadata| {
        Namespace::new(nsid, block_size, blocks, metadata).expect("a possible geometry")
    };
    ControllerInfo {
        mdts_bytes: MDTS,
        volatile_write_cache: true,
        serial: "S".into(),
        model: "M".into(),
        firmware: "F".into(),
        namespaces: vec![
            namespace(1, 512, 1000, 64),
            namespace(2, 4096, 1 << 40, 0),
            namespace(9, 65536, 1, 64),
        ],
        other_namespaces: Vec::new(),
        vendor_statuses: &[],
    }
}

/// What [`ControllerInfo::check`] promises of a request that it lets pass.
fn check_request(info: &ControllerInfo, request: &Request) {
    let sqe = request.sqe;
    assert!(!sqe.to_string().is_empty());
    let parsed = Command::parse(&sqe);
    let checked = info.check(request);
    let command = match (parsed, checked) {
        (Ok(parsed), Ok(checked)) => {
            assert_eq!(parsed, checked);
            parsed
        }
        (Err(status), Err(same)) => {
            assert_eq!(status, same);
            return;
        }
        (parsed, checked) => {
            assert!(parsed.is_ok() && checked.is_err());
            return;
        }
    };
    let Some(namespace) = info.namespace(command.nsid()) else {
        assert!(matches!(command, Command::Flush { .. }));
        return;
    };
    let within = |io: &Io| {
        assert!((1..=65536).contains(&io.blocks));
        assert!(u128::from(io.slba) + u128::from(io.blocks) <= u128::from(namespace.blocks()));
    };
    let (data, metadata) = (request.data.len() as u64, request.metadata.len() as u64);
    match command {
        Command::Read(io) => {
            within(&io);
            assert!(namespace.data_len(io.blocks) <= MDTS.into());
            assert_eq!((data, metadata), (0, 0));
        }
        Command::Write(io) | Command::Compare(io) => {
            within(&io);
            assert!(data <= MDTS.into());
            assert_eq!(data, namespace.data_len(io.blocks));
            assert_eq!(metadata, namespace.metadata_len(io.blocks));
        }
        Command::WriteZeroes { io, .. } => within(&io),
        Command::DatasetManagement { ranges, .. } => {
            let list = DsmRange::list(&request.data);
            assert_eq!(list.len(), usize::from(ranges));
            for range in list {
                let end = u128::from(range.slba.get()) + u128::from(range.blocks.get());
                assert!(end <= u128::from(namespace.blocks()));
            }
        }
        Command::Flush { .. } => assert_eq!((data, metadata), (0, 0)),
    }
}

fn command(input: &mut Input) {
    let info = controller();
    let choice = input.u8();
    let bytes: [u8; 64] = input.array();
    let mut sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
    assert_eq!(sqe.as_bytes(), bytes);
    if choice & 1 != 0 {
        // Lets it come further: a command and a namespace that exist, few blocks.
        sqe.opcode = [0, 1, 2, 5, 8, 9][usize::from(sqe.opcode % 6)];
        sqe.flags &= 0x7C;
        sqe.nsid = [1, 2, 9][usize::from(bytes[4] % 3)].into();
        sqe.cdw12 = (sqe.cdw12.get() & 0xF000_001F).into();
        if choice & 2 != 0 {
            sqe.cdw11 = 0.into();
            sqe.cdw10 = (sqe.cdw10.get() & 0x3FF).into();
        }
    }
    let (mut data, mut metadata) = (input.u16().into(), input.u8().into());
    if choice & 4 != 0 {
        (data, metadata) = match Command::parse(&sqe) {
            Ok(Command::Write(io) | Command::Compare(io)) => match info.namespace(io.nsid) {
                Some(namespace) if namespace.data_len(io.blocks) <= 2 * u64::from(MDTS) => (
                    namespace.data_len(io.blocks) as usize,
                    namespace.metadata_len(io.blocks) as usize,
                ),
                _ => (data, metadata),
            },
            Ok(Command::DatasetManagement { ranges, .. }) => (usize::from(ranges) * 16, 0),
            _ => (0, 0),
        };
    }
    let pattern = input.rest();
    // From any address: the structures are unaligned.
    assert_eq!(DsmRange::list(pattern).len(), pattern.len() / 16);
    let request = Request {
        sqe,
        data: repeat(pattern, data),
        metadata: repeat(pattern, metadata),
    };
    check_request(&info, &request);
}

fn identify(input: &mut Input) {
    let whole = input.u8() & 1 != 0;
    let nsid = input.u32();
    let bytes = input.rest();
    let bytes = if whole {
        // Beyond the named fields there are zeroes, as from a controller.
        let mut padded = bytes[..bytes.len().min(IDENTIFY_BYTES)].to_vec();
        padded.resize(IDENTIFY_BYTES, 0);
        padded
    } else {
        bytes.to_vec()
    };
    let controller = IdentifyController::parse(&bytes);
    assert_eq!(controller.is_ok(), bytes.len() == IDENTIFY_BYTES);
    if let Ok(controller) = controller {
        assert_eq!(controller.as_bytes(), bytes);
        assert!(controller.mdts_bytes() >= 8192);
        let _ = (
            controller.serial(),
            controller.model(),
            controller.firmware(),
            controller.has_volatile_write_cache(),
        );
    }
    let Ok(identify) = IdentifyNamespace::parse(&bytes) else {
        assert_ne!(bytes.len(), IDENTIFY_BYTES);
        return;
    };
    match identify.namespace(nsid) {
        Ok(namespace) => {
            assert_eq!(namespace.nsid(), nsid);
            assert_eq!(namespace.blocks(), identify.nsze.get());
            assert!(matches!(namespace.metadata_size(), 0 | 64));
            assert_eq!(
                namespace.capacity() / u64::from(namespace.block_size()),
                namespace.blocks()
            );
            let again = IdentifyNamespace::new(&namespace).namespace(nsid);
            assert_eq!(again, Ok(namespace));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn completion(input: &mut Input) {
    let bytes: [u8; 16] = input.array();
    let mut cqe = Cqe::read_from_bytes(&bytes).expect("16 bytes");
    let (status, phase) = (cqe.status(), cqe.phase());
    assert!(!status.to_string().is_empty());
    cqe.set_phase(!phase);
    assert_eq!((cqe.status(), cqe.phase()), (status, !phase));
    cqe.set_phase(phase);
    assert_eq!(cqe.as_bytes(), bytes);
    let again = Cqe::new(cqe.cid.get(), status, cqe.do_not_retry());
    assert_eq!(again.status(), status);
    assert!(!format!("{cqe:?}").is_empty());
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    match input.u8() % 4 {
        0 | 1 => command(&mut input),
        2 => identify(&mut input),
        _ => completion(&mut input),
    }
});
