//! The program and a folder to run it in.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run the program in.
pub struct Place(TempDir);

/// What the program said.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// With keys of `tiny` in `keys`, a drive `d.img` that holds the public ones, and samples of 3 and -2.
    pub fn prepared(metadata: &str) -> Place {
        let place = Place::new();
        place.ok("keys generate --params tiny --unencrypted");
        place.ok(&format!(
            "drive format d.img --size 64MiB --swap 16MiB --metadata {metadata}"
        ));
        place.ok("put d.img keys/bootstrapping.key keys/key-switching.key");
        place.ok("encrypt 3 --out three.ct");
        place.ok("encrypt -2 --out minus_two.ct");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toroid"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("XDG_CONFIG_HOME", self.0.path().join("config"));
        command
    }

    pub fn run(&self, line: &str) -> Said {
        self.command(line).output().unwrap().into()
    }

    /// Runs a line that must succeed; its standard output.
    pub fn ok(&self, line: &str) -> String {
        let said = self.run(line);
        assert_eq!(said.code, Some(0), "toroid {line}: {}", said.err);
        said.out
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("--json {line}"))).unwrap()
    }

    /// Runs a line that must fail with this exit code and with these words.
    pub fn fails(&self, code: i32, line: &str, words: &[&str]) {
        let said = self.run(line);
        assert_eq!(said.code, Some(code), "toroid {line}: {}", said.err);
        for word in words {
            assert!(
                said.err.contains(word),
                "toroid {line}: {:?} is not in {:?}",
                word,
                said.err
            );
        }
        assert!(
            !said.err.contains("panicked"),
            "toroid {line}: {}",
            said.err
        );
    }

    pub fn copy_example(&self, path: &str) -> String {
        let from = example(path);
        let name = from.file_name().unwrap().to_str().unwrap().to_owned();
        fs::copy(&from, self.path(&name)).unwrap();
        name
    }

    pub fn decrypted(&self, file: &str) -> i64 {
        self.json(&format!("decrypt {file}"))["message"]
            .as_i64()
            .unwrap()
    }

    /// Registers that hold something on the drive.
    pub fn registers(&self, image: &str) -> Vec<String> {
        let info = self.json(&format!("drive info {image}"));
        info["blobs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|blob| Some(blob["register"].as_str()?.to_owned()))
            .collect()
    }
}
