//! A generator does not give the same in two processes that were one.
#![cfg(unix)]

use std::io::Read;
use std::os::fd::AsRawFd;

use toroid_tfhe::TfheError;
use toroid_tfhe::column::GroupSeed;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::TINY;
use toroid_tfhe::random::Csprng;

/// What a generator gives in a child of this process.
fn drawn_in_a_child(rng: &mut Csprng) -> [u8; 32] {
    in_a_child(|bytes| rng.fill_bytes(bytes))
}

/// What is made in a child of this process: 32 bytes.
fn in_a_child(make: impl FnOnce(&mut [u8; 32])) -> [u8; 32] {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls what makes the bytes, which allocates nothing and takes no lock, write and _exit.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => {
            let mut bytes = [0u8; 32];
            make(&mut bytes);
            // SAFETY: the pointer and the length are those of the array; _exit runs nothing of the parent's.
            unsafe {
                let written = libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
                libc::_exit(i32::from(written != 32));
            }
        }
        child => {
            drop(writer);
            let mut bytes = [0; 32];
            reader
                .read_exact(&mut bytes)
                .expect("the bytes of the other process");
            let mut status = 1;
            // SAFETY: the child is this process', and the status a variable of it.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            bytes
        }
    }
}

#[test]
fn parent_and_children_draw_apart_after_a_fork() {
    let mut rng = Csprng::from_seed([7; 32]);
    let first = drawn_in_a_child(&mut rng);
    let second = drawn_in_a_child(&mut rng);
    let mut own = [0; 32];
    rng.fill_bytes(&mut own);
    assert_ne!(own, first);
    assert_ne!(own, second);
    assert_ne!(first, second);
    // The parent's stream is what it would have been.
    let mut untouched = [0; 32];
    Csprng::from_seed([7; 32]).fill_bytes(&mut untouched);
    assert_eq!(own, untouched);
}

/// Parent and child would encrypt two messages under the same masks.
#[test]
fn a_child_does_not_encrypt_under_its_parents_seed() {
    let mut rng = Csprng::from_seed([8; 32]);
    let client = ClientKey::generate(&TINY, &mut rng);
    let encoding = Encoding::new(4, false).expect("four bits");
    let mut group = GroupSeed::generate(&mut rng);
    let seed = group.next_chunk();
    let refused = in_a_child(|bytes| {
        let refused = client.encrypt_chunk_of(&[1], encoding, seed, &mut rng);
        bytes[0] = u8::from(matches!(refused, Err(TfheError::Forked)));
    });
    assert_eq!(refused[0], 1);
    let own = client.encrypt_chunk_of(&[1], encoding, group.next_chunk(), &mut rng);
    assert!(own.is_ok());
}
