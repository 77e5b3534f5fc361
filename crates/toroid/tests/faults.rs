//! A full disk and an SSD that fails, as hosts on the network see them.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod serving;

use std::io::Write;
use std::process::{Command, Stdio};

use serving::{Server, options, runtime, toroid};
use toroid_nvme::tcp;
use toroid_nvme::{Status, flush, read_blocks, write_blocks, write_zeroes};

const BLOCK: usize = 4096;

#[test]
fn faults_of_the_ssd_become_their_statuses() {
    let folder = tempfile::tempdir().unwrap();
    for metadata in ["second-half", "nvme"] {
        let image = folder.path().join(metadata);
        let formatted = toroid()
            .args(["drive", "format", "--size", "4MiB", "--swap", "1MiB"])
            .args(["--metadata", metadata])
            .arg(&image)
            .output()
            .unwrap();
        assert!(formatted.status.success(), "{formatted:?}");
        let faults = ["read:10..12", "write:20..22", "full:30..32"];
        let faults: Vec<&str> = faults
            .iter()
            .flat_map(|fault| ["--inject", fault])
            .collect();
        let server = Server::start(&image, &faults);
        runtime().block_on(async {
            let controller = tcp::connect(&server.address, &options(1)).await.unwrap();
            let data = [7; 4 * BLOCK];
            for (slba, written, read) in [
                (0, Ok(()), Ok(())),
                // To write is how such blocks are given up.
                (9, Ok(()), Err(Status::UNRECOVERED_READ_ERROR)),
                (19, Err(Status::WRITE_FAULT), Ok(())),
                (29, Err(Status::CAPACITY_EXCEEDED), Ok(())),
                (40, Ok(()), Ok(())),
            ] {
                let result = write_blocks(&controller, 1, slba, &data, &[], false).await;
                let result = result.map_err(|error| error.status().unwrap());
                assert_eq!(result, written, "write of 4 blocks at {slba}");
                let found = read_blocks(&controller, 1, slba, 4).await;
                let result = found.as_ref().map(|_| ());
                let result = result.map_err(|error| error.status().unwrap());
                assert_eq!(result, read, "read of 4 blocks at {slba}");
                if let Ok(found) = found {
                    // A write that failed has no effect.
                    let expected = if written.is_ok() { 7 } else { 0 };
                    assert!(found.data.iter().all(|byte| *byte == expected));
                }
                // Blocks beside the faults are as good as any.
                let beside = read_blocks(&controller, 1, slba, 1).await;
                assert!(beside.is_ok());
            }
            flush(&controller, 1).await.unwrap();
            let reasons = controller.reasons().await.unwrap();
            let statuses: Vec<Status> = reasons.iter().map(|(_, status, _)| *status).collect();
            let expected = [
                Status::CAPACITY_EXCEEDED,
                Status::WRITE_FAULT,
                Status::UNRECOVERED_READ_ERROR,
            ];
            assert_eq!(statuses, expected, "{reasons:?}");
        });
    }
}

/// In a mount namespace of its own: a file system of 8 MiB that another file fills to the half, and the server on it. It goes on with what it
/// reads from its standard input.
const FULL: &str = r#"
set -e
mount -t tmpfs -o size=8m none "$FOLDER"
head -c 4194304 /dev/zero > "$FOLDER/other"
"$TOROID" drive format --size 64MiB --swap 1MiB "$FOLDER/d.img" >&2
"$TOROID" --json drive serve --listen 127.0.0.1:0 --log-level off "$FOLDER/d.img" &
read -r line
rm "$FOLDER/other"
echo removed >&2
read -r line || true
kill $!
"#;

/// The command that runs [`FULL`], if this machine lets us have a file system of our own.
fn own_file_system() -> Option<Command> {
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(arguments);
        command
    };
    // Processes of our own too, which end when the first of them does.
    let all = ["--mount", "--pid", "--fork", "--kill-child"];
    [
        all.to_vec(),
        [&["--user", "--map-root-user"][..], &all].concat(),
    ]
    .into_iter()
    .find(|arguments| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = unshare(arguments);
        command
            .args(["mount", "-t", "tmpfs", "none"])
            .arg(folder.path());
        command.stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
    .map(|arguments| unshare(&arguments))
}

#[test]
fn a_full_disk_loses_nothing_and_is_usable_when_there_is_room_again() {
    let Some(mut command) = own_file_system() else {
        eprintln!("no file system of our own can be mounted: not tested");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    command.args(["sh", "-c", FULL]);
    command.env("FOLDER", folder.path());
    command.env("TOROID", env!("CARGO_BIN_EXE_toroid"));
    command.stdin(Stdio::piped());
    let mut server = Server::of(command);
    let runtime = runtime();
    runtime.block_on(async {
        let controller = tcp::connect(&server.address, &options(1)).await.unwrap();
        let data = |i: u64| vec![i as u8 | 1; 16 * BLOCK];
        let mut written = 0;
        let status = loop {
            match write_blocks(&controller, 1, written * 16, &data(written), &[], false).await {
                Ok(()) => written += 1,
                Err(error) => break error.status().unwrap(),
            }
            assert!(written < 128, "8 MiB were written to 4 MiB");
        };
        assert_eq!(status, Status::CAPACITY_EXCEEDED);
        assert!(written >= 40, "{written} of 64 KiB");
        // All that was written is there, the rest is as before, and both can be overwritten or zeroed.
        for i in 0..written {
            let read = read_blocks(&controller, 1, i * 16, 16).await.unwrap();
            assert!(read.data == data(i));
        }
        let read = read_blocks(&controller, 1, written * 16, 16).await.unwrap();
        assert!(read.data.iter().all(|byte| *byte == 0));
        write_blocks(&controller, 1, 0, &data(77), &[], true)
            .await
            .unwrap();
        flush(&controller, 1).await.unwrap();
        let again = write_blocks(&controller, 1, written * 16, &data(written), &[], false).await;
        assert_eq!(again.unwrap_err().status(), Some(Status::CAPACITY_EXCEEDED));
        assert!(controller.is_connected());
        // Room again.
        server.input().write_all(b"remove\n").unwrap();
        let mut tries = 0;
        while write_blocks(&controller, 1, written * 16, &data(written), &[], false)
            .await
            .is_err()
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            tries += 1;
            assert!(tries < 3000, "the disk stays full");
        }
        let read = read_blocks(&controller, 1, written * 16, 16).await.unwrap();
        assert!(read.data == data(written));
        write_zeroes(&controller, 1, 0, 16).await.unwrap();
        flush(&controller, 1).await.unwrap();
    });
    // The end of its input ends the server.
    server.input().write_all(b"end\n").unwrap();
}
