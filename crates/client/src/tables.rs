//! Files of values that a program's text names for its test vectors.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toroid_isa::{Assembly, FileError};

/// The longest file of values, in bytes: far more than 2^16 integers take.
pub const MAX_FILE_BYTES: u64 = 1 << 24;

/// Reads the files that a program's test vectors name, relative to the folder of its text, and puts their values in.
///
/// The assembler lets through only paths inside the folder; links that lead out of it are refused here.
///
/// # Errors
/// The first file that cannot be read or holds no table for its test vector.
pub fn read_files(assembly: &mut Assembly, folder: &Path) -> Result<(), FileError> {
    assembly.resolve_files(|path| read(folder, path))
}

fn read(folder: &Path, path: &str) -> io::Result<String> {
    // An empty folder is the current one, as in the parent of a bare file name.
    let folder = Path::new(".").join(folder).canonicalize()?;
    let path = folder.join(path).canonicalize()?;
    if !path.starts_with(&folder) || !path.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a file inside the folder of the program",
        ));
    }
    let mut text = String::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {MAX_FILE_BYTES} bytes, the most that a file of values has"),
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_found_beside_the_program() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("f.txt"), "# f\n1, 2\n3 4\n").unwrap();
        fs::write(folder.path().join("sub/g.txt"), "-1 -2").unwrap();
        let mut assembly =
            toroid_isa::assemble(".tv f = file \"f.txt\"\n.tv g = file \"sub/g.txt\"").unwrap();
        read_files(&mut assembly, folder.path()).unwrap();
        assert_eq!(assembly.test_vectors[0].table(2).unwrap(), [1, 2, 3, 4]);
        assert_eq!(assembly.test_vectors[1].table(1).unwrap(), [-1, -2]);
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let long = vec![b' '; MAX_FILE_BYTES as usize + 1];
        fs::write(folder.path().join("long.txt"), long).unwrap();
        fs::write(folder.path().join("binary.txt"), [0xff; 8]).unwrap();
        fs::create_dir(folder.path().join("directory.txt")).unwrap();
        for (file, words) in [
            ("none.txt", "No such file"),
            ("long.txt", "longer than 16777216 bytes"),
            ("binary.txt", "valid UTF-8"),
            ("directory.txt", "not a file inside"),
        ] {
            let mut assembly = toroid_isa::assemble(&format!(".tv f = file \"{file}\"")).unwrap();
            let error = read_files(&mut assembly, folder.path())
                .unwrap_err()
                .to_string();
            assert!(error.contains(words) && error.contains(file), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_folder_are_refused() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("f.txt"), "1 2").unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("f.txt"), folder.path().join("f.txt"))
            .unwrap();
        let mut assembly = toroid_isa::assemble(".tv f = file \"f.txt\"").unwrap();
        let error = read_files(&mut assembly, folder.path()).unwrap_err();
        assert!(error.to_string().contains("not a file inside"), "{error}");
    }
}
