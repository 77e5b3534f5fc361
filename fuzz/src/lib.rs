//! What the targets share: a reader that cuts an input into values, and NVMe/TCP PDUs.

pub mod pdu;

/// Cuts an input into values, from its front; beyond its end there are zeroes.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Input<'a> {
        Input { rest: data }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// At most `count` bytes: fewer only at the end.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (now, later) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = later;
        now
    }

    pub fn array<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut array = [0; COUNT];
        let bytes = self.bytes(COUNT);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(self.rest.len())
    }
}

/// `len` bytes that repeat `pattern`; zeroes if that is empty.
pub fn repeat(pattern: &[u8], len: usize) -> Vec<u8> {
    if pattern.is_empty() {
        return vec![0; len];
    }
    // By doubling: a byte at a time, each would be a comparison that libFuzzer follows.
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&pattern[..pattern.len().min(len)]);
    while bytes.len() < len {
        bytes.extend_from_within(..bytes.len().min(len - bytes.len()));
    }
    bytes
}

/// Has parallel work done by the calling thread: to wake others takes longer than the work of an input. Call from the thread that runs inputs.
pub fn alone() {
    static DONE: std::sync::Once = std::sync::Once::new();
    DONE.call_once(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
        // Fails if something parallel has run already, which makes inputs slow, not wrong.
        let _ = pool.use_current_thread().build_global();
    });
}
