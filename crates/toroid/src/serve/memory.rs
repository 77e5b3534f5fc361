//! Gives free memory back to the operating system after a load.
//!
//! The allocator of glibc keeps what it has once used for large transfers. Other allocators give memory back by themselves.

/// Bytes in flight from which on a load counts.
const LOAD: u64 = 16 << 20;

/// Watches how much memory connections hold.
#[derive(Debug, Default)]
pub struct MemoryWatch {
    most: u64,
}

impl MemoryWatch {
    /// Connections hold so many bytes now. Says whether a load is over, so that memory should be returned.
    pub fn is_over(&mut self, held: u64) -> bool {
        self.most = self.most.max(held);
        let over = self.most >= LOAD && held < self.most / 4;
        if over {
            self.most = held;
        }
        over
    }
}

/// Returns free memory. Takes some milliseconds for each 100 MiB.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` may be called at any time and from any thread, and has no effect on memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_over_once() {
        let mut watch = MemoryWatch::default();
        let over = [
            0,
            1 << 20,
            0,
            200 << 20,
            300 << 20,
            80 << 20,
            70 << 20,
            0,
            0,
        ]
        .map(|held| watch.is_over(held));
        let expected = [false, false, false, false, false, false, true, true, false];
        assert_eq!(over, expected);
    }
}
