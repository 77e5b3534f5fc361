//! Client keys at rest: passphrases, files that are open to others, and sets of keys that are replaced.
#![cfg(unix)]
// A failed set-up is a failed test.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Place, Said};

const GENERATE: &str = "keys generate --params tiny";

/// A place with a file `secret` that holds a passphrase, and keys of `tiny` under it.
fn place() -> Place {
    let place = Place::new();
    write_secret(&place, "secret", "open sesame\n");
    place.ok(&format!("{GENERATE} --passphrase-file secret"));
    place
}

fn write_secret(place: &Place, name: &str, text: &str) {
    fs::write(place.path(name), text).unwrap();
    set_mode(&place.path(name), 0o600);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Runs a line with this text on its standard input.
fn with_input(mut command: Command, input: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_passphrase_comes_from_a_file_a_descriptor_or_the_environment() {
    let place = place();
    let info = place.json("keys info keys/client.key");
    assert_eq!(info["kind"], "encrypted client key");
    let mode = fs::metadata(place.path("keys/client.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let said = place
        .command("encrypt 3 --out three.ct")
        .env("TOROID_PASSPHRASE", "open sesame")
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", Said::from(said).err);
    place.ok("encrypt -2 --out minus_two.ct --passphrase-file secret");
    for input in ["open sesame", "open sesame\n", "open sesame\r\nmore"] {
        let command = place.command("decrypt three.ct --passphrase-fd 0");
        let said = with_input(command, input);
        assert!(said.out.starts_with("3 "), "{}{}", said.out, said.err);
    }
    // An option goes before the variable.
    let said = place
        .command("decrypt minus_two.ct --passphrase-file secret")
        .env("TOROID_PASSPHRASE", "wrong")
        .output()
        .unwrap();
    assert!(Said::from(said).out.starts_with("-2 "));
}

#[test]
fn a_wrong_or_missing_passphrase_is_named() {
    let place = place();
    place.ok("encrypt 3 --out three.ct --passphrase-file secret");
    write_secret(&place, "wrong", "open sesamf\n");
    write_secret(&place, "empty", "\n");
    write_secret(&place, "long", &"x".repeat(2000));
    write_secret(&place, "open", "open sesame\n");
    set_mode(&place.path("open"), 0o644);
    for (code, line, words) in [
        (
            1,
            "decrypt three.ct",
            &[
                "keys/client.key is encrypted",
                "--passphrase-file",
                "TOROID_PASSPHRASE",
            ][..],
        ),
        (
            1,
            "decrypt three.ct --passphrase-file wrong",
            &["keys/client.key", "passphrase is wrong"],
        ),
        (
            1,
            "decrypt three.ct --passphrase-file empty",
            &["passphrase from empty is empty"],
        ),
        (
            1,
            "decrypt three.ct --passphrase-file long",
            &["long", "1024"],
        ),
        (
            1,
            "decrypt three.ct --passphrase-file none",
            &["cannot open none"],
        ),
        (
            1,
            "decrypt three.ct --passphrase-file open",
            &["open is open to others (mode 644)", "chmod 600 open"],
        ),
        (
            1,
            "decrypt three.ct --passphrase-fd 99",
            &["file descriptor 99"],
        ),
        (
            2,
            "decrypt three.ct --passphrase-fd 0 --passphrase-file secret",
            &["cannot be used with"],
        ),
        (1, "encrypt 3 --out four.ct", &["is encrypted"]),
        (
            1,
            "keys generate --params tiny --out new",
            &["new/client.key", "--passphrase-fd", "--unencrypted"],
        ),
    ] {
        place.fails(code, line, words);
    }
    assert!(!place.path("new").exists());
    assert!(!place.path("four.ct").exists());
}

#[test]
fn an_encrypted_client_key_does_not_go_to_a_drive() {
    let place = place();
    place.ok("drive format d.img --size 64MiB --swap 16MiB");
    place.fails(
        1,
        "put d.img keys/client.key",
        &["client key does not go to a drive"],
    );
}

#[test]
fn a_key_gets_another_passphrase_or_none() {
    let place = place();
    place.ok("encrypt 3 --out three.ct --passphrase-file secret");
    write_secret(&place, "new", "swordfish\n");
    let before = fs::read(place.path("keys/client.key")).unwrap();
    place.fails(
        1,
        "keys passphrase --passphrase-file secret",
        &["--new-passphrase-file", "--unencrypted"],
    );
    place.fails(
        1,
        "keys passphrase --passphrase-file new --unencrypted",
        &["passphrase is wrong"],
    );
    assert_eq!(fs::read(place.path("keys/client.key")).unwrap(), before);

    place.ok("keys passphrase --passphrase-file secret --new-passphrase-file new");
    place.fails(
        1,
        "decrypt three.ct --passphrase-file secret",
        &["passphrase is wrong"],
    );
    place.ok("decrypt three.ct --passphrase-file new");
    place.ok("keys passphrase --passphrase-file new --unencrypted");
    assert_eq!(
        place.json("keys info keys/client.key")["kind"],
        "client key"
    );
    assert_eq!(place.decrypted("three.ct"), 3);
    // A key from before there were passphrases.
    place.ok("keys passphrase keys/client.key --new-passphrase-file secret");
    place.fails(1, "decrypt three.ct", &["is encrypted"]);
    place.ok("decrypt three.ct --passphrase-file secret");
    let mode = fs::metadata(place.path("keys/client.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let place = Place::new();
    place.ok(&format!("{GENERATE} --unencrypted"));
    place.ok("encrypt 3 --out three.ct");
    let key = place.path("keys/client.key");
    for mode in [0o604, 0o640, 0o620, 0o666] {
        set_mode(&key, mode);
        let words = [
            &format!("keys/client.key is open to others (mode {mode:03o})"),
            "chmod 600 keys/client.key",
        ];
        place.fails(1, "decrypt three.ct", &words);
        place.fails(1, "encrypt 4 --out four.ct", &words);
        place.fails(1, "keys passphrase --unencrypted", &words);
    }
    set_mode(&key, 0o400);
    assert_eq!(place.decrypted("three.ct"), 3);
}

/// Only root can give files away.
#[test]
fn a_key_that_belongs_to_somebody_else_is_refused() {
    let place = Place::new();
    place.ok(&format!("{GENERATE} --unencrypted"));
    place.ok("encrypt 3 --out three.ct");
    let key = place.path("keys/client.key");
    match std::os::unix::fs::chown(&key, Some(12345), None) {
        Ok(()) => place.fails(1, "decrypt three.ct", &["belongs to user 12345", "chown"]),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

/// What a folder holds, by name.
fn held(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    entries.collect()
}

#[test]
fn an_interrupted_generation_leaves_the_keys_that_were_there() {
    let place = Place::new();
    place.ok(&format!("{GENERATE} --unencrypted"));
    let keys = place.path("keys");
    let before = held(&keys);
    // A key of half a gigabyte: far more work than the time to the signal.
    let child = place
        .command("keys generate --unencrypted --params message7 --force")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The client key and the beginning of the bootstrapping key stand beside the old files.
    while fs::read_dir(&keys).unwrap().count() < before.len() + 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let signalled = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", child.id())])
        .status()
        .unwrap();
    assert!(signalled.success());
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{}", said.err);
    assert!(held(&keys) == before);
}

#[test]
fn a_generation_without_room_leaves_the_keys_that_were_there() {
    let place = Place::new();
    place.ok(&format!("{GENERATE} --unencrypted"));
    place.ok("encrypt 3 --out three.ct");
    let keys = place.path("keys");
    let before = held(&keys);
    // No file of more than 64 or 128 KiB, by the shell; the bootstrapping key takes 256 KiB. Without the trap a signal would end the program.
    let script = format!(
        "trap '' XFSZ; ulimit -f 128; exec {} {GENERATE} --unencrypted --force",
        env!("CARGO_BIN_EXE_toroid")
    );
    let said = Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let said = Said::from(said);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    assert!(held(&keys) == before);
    assert_eq!(place.decrypted("three.ct"), 3);
    // With room it replaces all of them, and leaves nothing else.
    place.ok(&format!("{GENERATE} --unencrypted --force"));
    let after = held(&keys);
    assert!(after.keys().eq(before.keys()));
    assert!(after.iter().all(|(name, bytes)| before[name] != *bytes));
    place.fails(1, "decrypt three.ct", &["tag"]);
}

#[test]
fn what_a_killed_generation_left_aside_is_not_overwritten() {
    let place = Place::new();
    place.ok(&format!("{GENERATE} --unencrypted"));
    let (key, former) = (
        place.path("keys/client.key"),
        place.path("keys/client.key.old"),
    );
    fs::rename(&key, &former).unwrap();
    let before = held(&place.path("keys"));
    for line in ["", " --force"] {
        place.fails(
            1,
            &format!("{GENERATE} --unencrypted --client-only{line}"),
            &["client.key.old"],
        );
    }
    assert!(held(&place.path("keys")) == before);
}

/// A program at a terminal of its own, by the `script` of util-linux.
#[cfg(target_os = "linux")]
struct Terminal {
    child: std::process::Child,
    shown: String,
}

#[cfg(target_os = "linux")]
impl Terminal {
    fn new(place: &Place, line: &str) -> Terminal {
        let command = format!("{} {line}", env!("CARGO_BIN_EXE_toroid"));
        let child = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(place.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let shown = String::new();
        Terminal { child, shown }
    }

    /// Waits for a prompt and types an answer.
    fn answer(&mut self, prompt: &str, text: &str) {
        let mut byte = [0];
        let output = self.child.stdout.as_mut().unwrap();
        let from = self.shown.len();
        while !self.shown[from..].contains(prompt) {
            output.read_exact(&mut byte).expect(&self.shown);
            self.shown.push(byte[0].into());
        }
        // The prompt stands a moment before the echo is off.
        std::thread::sleep(Duration::from_millis(300));
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
    }

    /// The exit code, and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        self.child
            .stdout
            .as_mut()
            .unwrap()
            .read_to_end(&mut rest)
            .unwrap();
        self.shown += &String::from_utf8_lossy(&rest);
        (self.child.wait().unwrap().code(), self.shown)
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_is_asked_without_echo() {
    let place = Place::new();
    let mut terminal = Terminal::new(&place, GENERATE);
    terminal.answer("New passphrase for keys/client.key: ", "swordfish\n");
    terminal.answer("again: ", "swordfisk\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("differ"), "{shown}");
    assert!(!place.path("keys").exists());

    let mut terminal = Terminal::new(&place, GENERATE);
    terminal.answer("New passphrase for keys/client.key: ", "swordfish\n");
    terminal.answer("again: ", "swordfish\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("swordfish"), "{shown}");

    let mut terminal = Terminal::new(&place, "encrypt 3 --out three.ct");
    terminal.answer("Passphrase of keys/client.key: ", "swordfish\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");

    let mut terminal = Terminal::new(&place, "decrypt three.ct");
    terminal.answer("Passphrase of keys/client.key: ", "\x03");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
}

#[test]
fn key_bits_go_out_and_come_back() {
    let place = place();
    place.ok("encrypt 3 --out three.ct --passphrase-file secret");
    let export = "keys export --out key.bits --passphrase-file secret";
    place.ok(export);
    let bits = place.path("key.bits");
    let mode = fs::metadata(&bits).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    place.fails(1, export, &["key.bits exists", "--force"]);
    place.ok(&format!("{export} --force"));
    place.fails(1, "keys export --out other.bits", &["passphrase"]);
    assert!(!place.path("other.bits").exists());

    // The same key again, under a passphrase or none, with public keys that belong to it.
    let again = place.json("keys import key.bits --out again --passphrase-file secret");
    let tag = &place.json("keys info keys/client.key")["tag"];
    assert_eq!((&again["tag"], &again["encrypted"]), (tag, &true.into()));
    let said = place.ok("decrypt three.ct --key again/client.key --passphrase-file secret");
    assert!(said.starts_with("3 "), "{said}");
    place.ok("drive format d.img --size 64MiB --swap 16MiB");
    place.ok("put d.img again/bootstrapping.key keys/key-switching.key");
    let import = "keys import key.bits --out plain --unencrypted --client-only";
    place.ok(import);
    assert_eq!(
        place.json("keys info plain/client.key")["kind"],
        "client key"
    );
    place.fails(1, import, &["exists", "--force"]);
    place.fails(1, "keys import key.bits --out more", &["passphrase"]);

    // What is open to others, or no key.
    set_mode(&bits, 0o644);
    place.fails(
        1,
        "keys import key.bits --out more --unencrypted",
        &["mode 644"],
    );
    let text = fs::read_to_string(&bits).unwrap();
    for (wrong, words) in [
        (
            text.replacen("lwe 1", "lwe x", 1)
                .replacen("lwe 0", "lwe x", 1),
            "0 and 1",
        ),
        (text.replacen("params tiny", "params tiny32", 1), "tiny32"),
        (text[..text.len() - 1].to_owned(), "line feed"),
        ("TOROIDOB".to_owned(), "toroid key bits 1"),
        (text.repeat(40), "go on"),
    ] {
        write_secret(&place, "wrong.bits", &wrong);
        let line = "keys import wrong.bits --out more --unencrypted";
        place.fails(1, line, &["wrong.bits", words]);
    }
    assert!(!place.path("more").exists());
}
