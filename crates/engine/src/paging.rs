//! The paged area: page table, frames, replacement and the traffic with the swap area (platform paper, section 4.3).
//!
//! A page holds one LWE sample, rounded up to units of 4096 bytes. Parameter sets differ in page size, so frames and swap
//! slots are runs of consecutive units, placed first fit. When no run is free, replacement chooses a *window* of
//! consecutive units and pages out everything that overlaps it: a large page may push several small neighbours out, and
//! nothing is ever moved within main memory.
//!
//! No lock is held during page I/O. A page that moves is `busy`: a thread that wants it waits, and one that needs room skips
//! its frame. A thread that owns a frame for I/O waits for nothing else, so waiting always ends. The processor copies
//! operands to its own cache memory while it holds the lock, so no page stays pinned during an instruction.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::address::{
    PAGE_BYTES, PAGE_NUMBERS, PageTableEntry, SwapSlot, VirtualAddress, units_of,
};
use crate::config::ReplacementPolicy;
use crate::error::EngineError;
use crate::extents::Extents;
use crate::swap::{PagingContext, Swap};

/// Counters of the paged area since the engine was made, and its present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagingStatistics {
    /// Accesses to a page that was not in main memory.
    pub faults: u64,
    /// Pages read from the swap area.
    pub page_ins: u64,
    /// Pages written to the swap area.
    pub page_outs: u64,
    /// Pages that left main memory without a write, because the swap area already had them as they were.
    pub clean_evictions: u64,
    /// Pages in main memory now.
    pub resident_pages: u64,
    /// Bytes of main memory that they take.
    pub resident_bytes: u64,
    /// Pages that are only in the swap area now.
    pub swapped_pages: u64,
    /// Bytes of the swap area that they take.
    pub swapped_bytes: u64,
}

/// The page I/O done on behalf of one command.
#[derive(Debug)]
pub(crate) struct PageIo {
    pub(crate) context: PagingContext,
    pub(crate) page_ins: u64,
    pub(crate) page_outs: u64,
}

impl PageIo {
    pub(crate) fn new(context: PagingContext) -> PageIo {
        PageIo {
            context,
            page_ins: 0,
            page_outs: 0,
        }
    }
}

/// First page number of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageId(u64);

impl PageId {
    pub(crate) fn address(self) -> VirtualAddress {
        VirtualAddress::of_page(self.0)
    }
}

/// Samples have the lower half of the page numbers, everything persistent the upper half.
pub(crate) const PAGED_PAGE_NUMBERS: u64 = PAGE_NUMBERS / 2;

/// Places that stay free once main memory is full, of those that main memory and the swap area have together: concurrent
/// page-ins need as many for the pages that they push out.
const SPARE_PAGES: u64 = 32;

#[derive(Debug)]
struct Page {
    entry: PageTableEntry,
    units: u64,
    /// The content while in main memory (but for the time of a page-out).
    data: Option<Box<[u8]>>,
    /// A slot that holds the content as it is; always there for a page that is not in main memory.
    slot: Option<SwapSlot>,
    /// Virtual registers and transactions that hold the page. At 0 the page goes, once it is not busy.
    holders: u32,
    /// Page I/O moves it now.
    busy: bool,
    /// Used since the hand's last visit.
    referenced: bool,
    last_use: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    units: u64,
    /// `None` while a thread fills the frame.
    page: Option<PageId>,
}

#[derive(Debug)]
struct State {
    pages: HashMap<PageId, Page>,
    numbers: Extents,
    units: Extents,
    slots: Extents,
    /// Every taken run of the paged area, by its first unit.
    frames: BTreeMap<u64, Frame>,
    hand: u64,
    time: u64,
    statistics: PagingStatistics,
}

/// A window and what must leave it.
struct Window {
    start: u64,
    units: u64,
    /// First unit and page of every frame that overlaps the window.
    victims: Vec<(u64, PageId)>,
    /// Free runs inside the window, kept from others meanwhile.
    gaps: Vec<(u64, u64)>,
}

/// The paged area of main memory with its page table.
pub(crate) struct PagedMemory {
    state: Mutex<State>,
    /// Some page is no longer busy, or some frame is free.
    changed: Condvar,
    swap: Arc<dyn Swap>,
    policy: ReplacementPolicy,
}

impl State {
    fn touch(&mut self, id: PageId) {
        self.time += 1;
        if let Some(page) = self.pages.get_mut(&id) {
            page.referenced = true;
            page.last_use = self.time;
        }
    }

    /// Removes a page that nobody holds and that is not busy.
    fn reap(&mut self, id: PageId) {
        let Some(page) = self.pages.get(&id) else {
            return;
        };
        if page.holders > 0 || page.busy {
            return;
        }
        if !page.entry.is_swapped() {
            let start = page.entry.physical_address() / PAGE_BYTES as u64;
            self.frames.remove(&start);
            self.units.release(start, page.units);
        }
        if let Some(slot) = page.slot {
            self.slots.release(slot.0, page.units);
        }
        self.numbers.release(id.0, page.units);
        self.pages.remove(&id);
    }

    /// Checks that with one more page there would be room to exchange pages between the full areas.
    fn admit(&self, units: u64) -> Result<(), EngineError> {
        let (memory, swap) = (self.units.capacity(), self.slots.capacity());
        let pages = self.numbers.taken() + units;
        if pages > memory && pages + SPARE_PAGES * units > memory + swap {
            return Err(swap_full(units, swap));
        }
        Ok(())
    }

    fn settle(&mut self, id: PageId) {
        if let Some(page) = self.pages.get_mut(&id) {
            page.busy = false;
        }
        self.reap(id);
    }

    fn free_frame(&mut self, start: u64) {
        if let Some(frame) = self.frames.remove(&start) {
            self.units.release(start, frame.units);
        }
    }

    /// Puts content into a frame that the caller owns.
    fn fill(&mut self, start: u64, id: PageId, data: Box<[u8]>) {
        if let Some(frame) = self.frames.get_mut(&start) {
            frame.page = Some(id);
        }
        if let Some(page) = self.pages.get_mut(&id) {
            page.entry = PageTableEntry::in_main_memory(start * PAGE_BYTES as u64);
            page.data = Some(data);
        }
        self.touch(id);
    }

    /// The frames that overlap `start..start + units`, in rising order.
    fn overlapping(&self, start: u64, units: u64) -> impl Iterator<Item = (u64, Frame)> {
        self.frames
            .range(..start)
            .next_back()
            .filter(|(first, frame)| *first + frame.units > start)
            .into_iter()
            .chain(self.frames.range(start..start + units))
            .map(|(first, frame)| (*first, *frame))
    }

    /// The page in a frame, unless it is busy.
    fn evictable(&self, frame: Frame) -> Option<&Page> {
        frame
            .page
            .and_then(|id| self.pages.get(&id))
            .filter(|page| !page.busy)
    }

    /// First unit of a window without busy pages, or `None` if there is no such window now.
    fn choose_window(&mut self, policy: ReplacementPolicy, units: u64) -> Option<u64> {
        match policy {
            ReplacementPolicy::Clock => self.clock_window(units),
            ReplacementPolicy::LeastRecentlyUsed => self.oldest_window(units),
        }
    }

    fn clock_window(&mut self, units: u64) -> Option<u64> {
        let capacity = self.units.capacity();
        let mut start = self.hand;
        // Two rounds clear every reference bit that is in the way; the third finds a window if there is one.
        let mut way = 0;
        while way <= 4 * capacity {
            if start + units > capacity {
                self.unreference(start, capacity);
                way += capacity.saturating_sub(start).max(1);
                start = 0;
                continue;
            }
            let obstacle = self
                .overlapping(start, units)
                .find(|(_, frame)| self.evictable(*frame).is_none_or(|page| page.referenced));
            let Some((first, frame)) = obstacle else {
                self.hand = start + units;
                return Some(start);
            };
            let next = first + frame.units;
            self.unreference(start, next);
            way += next - start;
            start = next;
        }
        None
    }

    /// Clears the reference bits of the frames that overlap `start..end`: the hand passes them.
    fn unreference(&mut self, start: u64, end: u64) {
        let ids: Vec<PageId> = self
            .overlapping(start, end.saturating_sub(start))
            .filter_map(|(_, frame)| frame.page)
            .collect();
        for id in ids {
            if let Some(page) = self.pages.get_mut(&id) {
                page.referenced = false;
            }
        }
    }

    fn oldest_window(&self, units: u64) -> Option<u64> {
        let last = self.units.capacity().checked_sub(units)?;
        // An optimal window begins at a frame, or ends at one; the latter are reached from the end of a frame before.
        let starts = self
            .frames
            .iter()
            .flat_map(|(first, frame)| [*first, first + frame.units]);
        std::iter::once(0)
            .chain(starts)
            .filter(|start| *start <= last)
            .filter_map(|start| {
                self.overlapping(start, units)
                    .map(|(_, frame)| self.evictable(frame).map(|page| page.last_use))
                    .try_fold(0, |latest, used| used.map(|used| latest.max(used)))
                    .map(|latest| (latest, start))
            })
            .min()
            .map(|(_, start)| start)
    }

    /// A slot for a page; takes the clean copies of resident pages back if there is no other way.
    fn allocate_slot(&mut self, units: u64) -> Option<SwapSlot> {
        if let Some(slot) = self.slots.allocate(units) {
            return Some(SwapSlot(slot));
        }
        for page in self.pages.values_mut() {
            if !page.entry.is_swapped()
                && !page.busy
                && let Some(slot) = page.slot.take()
            {
                self.slots.release(slot.0, page.units);
            }
        }
        self.slots.allocate(units).map(SwapSlot)
    }
}

impl PagedMemory {
    pub(crate) fn new(
        paged_bytes: u64,
        swap_bytes: u64,
        swap: Arc<dyn Swap>,
        policy: ReplacementPolicy,
    ) -> PagedMemory {
        let page_bytes = PAGE_BYTES as u64;
        PagedMemory {
            state: Mutex::new(State {
                pages: HashMap::new(),
                numbers: Extents::new(0, PAGED_PAGE_NUMBERS),
                units: Extents::new(0, paged_bytes / page_bytes),
                slots: Extents::new(0, swap_bytes / page_bytes),
                frames: BTreeMap::new(),
                hand: 0,
                time: 0,
                statistics: PagingStatistics::default(),
            }),
            changed: Condvar::new(),
            swap,
            policy,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a page of this many bytes can ever be in main memory.
    pub(crate) fn check_fits(&self, bytes: u64) -> Result<(), EngineError> {
        let capacity = self.lock().units.capacity();
        if units_of(bytes) > capacity {
            return Err(EngineError::PagedAreaTooSmall {
                needed: units_of(bytes) * PAGE_BYTES as u64,
                total: capacity * PAGE_BYTES as u64,
            });
        }
        Ok(())
    }

    /// A new page with this content and one holder.
    pub(crate) fn create(&self, io: &mut PageIo, content: &[u8]) -> Result<PageId, EngineError> {
        let data = padded(content);
        let units = units_of(content.len() as u64);
        self.check_fits(content.len() as u64)?;
        let mut state = self.lock();
        state.admit(units)?;
        let id = PageId(
            state
                .numbers
                .allocate(units)
                .ok_or(EngineError::VirtualSpaceFull { needed: units })?,
        );
        let (mut state, frame) = self.acquire_frame(state, io, units);
        match frame {
            Ok(start) => {
                let page = Page {
                    entry: PageTableEntry::in_main_memory(0),
                    units,
                    data: None,
                    slot: None,
                    holders: 1,
                    busy: false,
                    referenced: true,
                    last_use: 0,
                };
                state.pages.insert(id, page);
                state.fill(start, id, data);
                self.changed.notify_all();
                Ok(id)
            }
            Err(error) => {
                state.numbers.release(id.0, units);
                Err(error)
            }
        }
    }

    /// Adds a holder.
    pub(crate) fn retain(&self, id: PageId) {
        if let Some(page) = self.lock().pages.get_mut(&id) {
            page.holders += 1;
        }
    }

    /// Takes a holder away; the page goes with the last one.
    pub(crate) fn release(&self, id: PageId) {
        let mut state = self.lock();
        if let Some(page) = state.pages.get_mut(&id) {
            page.holders = page.holders.saturating_sub(1);
        }
        state.reap(id);
        self.changed.notify_all();
    }

    /// The first `length` bytes of a page, paged in if need be.
    pub(crate) fn read(
        &self,
        io: &mut PageIo,
        id: PageId,
        length: usize,
    ) -> Result<Vec<u8>, EngineError> {
        let mut state = self.lock();
        let mut fault = false;
        loop {
            let State { pages, .. } = &mut *state;
            let Some(page) = pages.get_mut(&id) else {
                debug_assert!(false, "a page with a holder is there");
                return Ok(vec![0; length]);
            };
            if page.busy {
                fault |= page.entry.is_swapped();
                state = self.wait(state);
                continue;
            }
            if let Some(data) = &page.data {
                let content = data.get(..length).unwrap_or(data).to_vec();
                state.touch(id);
                state.statistics.faults += u64::from(fault);
                return Ok(content);
            }
            fault = true;
            page.busy = true;
            let (locked, paged_in) = self.page_in(state, io, id);
            state = locked;
            state.settle(id);
            self.changed.notify_all();
            paged_in?;
        }
    }

    /// Brings a page, which the caller has made busy, into main memory.
    fn page_in<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        io: &mut PageIo,
        id: PageId,
    ) -> (MutexGuard<'a, State>, Result<(), EngineError>) {
        let Some((units, slot)) = state
            .pages
            .get(&id)
            .and_then(|page| Some((page.units, page.slot?)))
        else {
            debug_assert!(false, "a page that is not in main memory has a slot");
            return (state, Ok(()));
        };
        let (state, frame) = self.acquire_frame(state, io, units);
        let start = match frame {
            Ok(start) => start,
            Err(error) => return (state, Err(error)),
        };
        drop(state);
        let mut data = vec![0; units as usize * PAGE_BYTES].into_boxed_slice();
        let result = self.swap.page_in(io.context, slot, &mut data);
        tracing::trace!(slot = slot.unit(), units, ok = result.is_ok(), "page-in");
        let mut state = self.lock();
        match result {
            Ok(()) => {
                io.page_ins += 1;
                state.statistics.page_ins += 1;
                state.fill(start, id, data);
                (state, Ok(()))
            }
            Err(error) => {
                state.free_frame(start);
                (state, Err(EngineError::PageIn(error)))
            }
        }
    }

    /// Gives a page that the caller holds new content: in place if nobody else holds it, else in a new page that takes its
    /// place. On an error the old content stays.
    pub(crate) fn replace(
        &self,
        io: &mut PageIo,
        id: PageId,
        content: &[u8],
    ) -> Result<PageId, EngineError> {
        let mut state = self.lock();
        loop {
            let Some(page) = state.pages.get_mut(&id) else {
                debug_assert!(false, "a page with a holder is there");
                return Ok(id);
            };
            if page.holders > 1 || page.units != units_of(content.len() as u64) {
                drop(state);
                let new = self.create(io, content)?;
                self.release(id);
                return Ok(new);
            }
            if page.busy {
                state = self.wait(state);
                continue;
            }
            let stale = if let Some(data) = &mut page.data {
                data[..content.len()].copy_from_slice(content);
                page.slot.take()
            } else {
                // The whole page is written, so the old content need not come back first.
                page.busy = true;
                let units = page.units;
                state.statistics.faults += 1;
                let (locked, frame) = self.acquire_frame(state, io, units);
                state = locked;
                let start = match frame {
                    Ok(start) => start,
                    Err(error) => {
                        state.settle(id);
                        self.changed.notify_all();
                        return Err(error);
                    }
                };
                state.fill(start, id, padded(content));
                let stale = state.pages.get_mut(&id).and_then(|page| page.slot.take());
                state.settle(id);
                self.changed.notify_all();
                stale
            };
            if let Some(slot) = stale {
                state.slots.release(slot.0, units_of(content.len() as u64));
            }
            state.touch(id);
            return Ok(id);
        }
    }

    /// A frame of this many units that only the caller knows, made free if need be. `units` fit the area.
    fn acquire_frame<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        io: &mut PageIo,
        units: u64,
    ) -> (MutexGuard<'a, State>, Result<u64, EngineError>) {
        loop {
            if let Some(start) = state.units.allocate(units) {
                state.frames.insert(start, Frame { units, page: None });
                return (state, Ok(start));
            }
            let Some(start) = state.choose_window(self.policy, units) else {
                // Every window has a busy page.
                state = self.wait(state);
                continue;
            };
            return self.evict(state, io, start, units);
        }
    }

    /// Pages out what overlaps the window and gives the window to the caller. On an error, what was not paged out stays.
    fn evict<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        io: &mut PageIo,
        start: u64,
        units: u64,
    ) -> (MutexGuard<'a, State>, Result<u64, EngineError>) {
        let window = Window {
            start,
            units,
            victims: state
                .overlapping(start, units)
                .filter_map(|(first, frame)| Some((first, frame.page?)))
                .collect(),
            gaps: state.units.free_within(start, start + units),
        };
        for (gap, length) in &window.gaps {
            state.units.claim(*gap, *length);
            state.frames.insert(
                *gap,
                Frame {
                    units: *length,
                    page: None,
                },
            );
        }
        for (_, id) in &window.victims {
            if let Some(page) = state.pages.get_mut(id) {
                page.busy = true;
            }
        }
        let mut outcome = Ok(());
        for (_, id) in &window.victims {
            let (locked, result) = self.page_out(state, io, *id);
            state = locked;
            outcome = result;
            if outcome.is_err() {
                break;
            }
        }
        for (gap, _) in &window.gaps {
            state.free_frame(*gap);
        }
        for (first, id) in &window.victims {
            if state
                .pages
                .get(id)
                .is_some_and(|page| page.entry.is_swapped())
            {
                state.free_frame(*first);
            }
            state.settle(*id);
        }
        let outcome = outcome.map(|()| {
            state.units.claim(window.start, window.units);
            state.frames.insert(
                window.start,
                Frame {
                    units: window.units,
                    page: None,
                },
            );
            window.start
        });
        self.changed.notify_all();
        (state, outcome)
    }

    /// Makes the swap area hold a busy page, and main memory no longer. Its frame stays taken.
    fn page_out<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        io: &mut PageIo,
        id: PageId,
    ) -> (MutexGuard<'a, State>, Result<(), EngineError>) {
        let Some(page) = state.pages.get_mut(&id) else {
            debug_assert!(false, "a busy page is there");
            return (state, Ok(()));
        };
        let units = page.units;
        let data = page.data.take();
        if let Some(slot) = page.slot {
            page.entry = PageTableEntry::in_swap(slot);
            state.statistics.clean_evictions += 1;
            return (state, Ok(()));
        }
        let Some(slot) = state.allocate_slot(units) else {
            let total = state.slots.capacity();
            if let Some(page) = state.pages.get_mut(&id) {
                page.data = data;
            }
            return (state, Err(swap_full(units, total)));
        };
        drop(state);
        let result = self
            .swap
            .page_out(io.context, slot, data.as_deref().unwrap_or_default());
        tracing::trace!(slot = slot.unit(), units, ok = result.is_ok(), "page-out");
        let mut state = self.lock();
        let Some(page) = state.pages.get_mut(&id) else {
            debug_assert!(false, "a busy page is there");
            return (state, Ok(()));
        };
        match result {
            Ok(()) => {
                page.entry = PageTableEntry::in_swap(slot);
                page.slot = Some(slot);
                io.page_outs += 1;
                state.statistics.page_outs += 1;
                (state, Ok(()))
            }
            Err(error) => {
                page.data = data;
                state.slots.release(slot.0, units);
                (state, Err(EngineError::PageOut(error)))
            }
        }
    }

    /// The page's entry in the page table.
    pub(crate) fn entry(&self, id: PageId) -> Option<PageTableEntry> {
        self.lock().pages.get(&id).map(|page| page.entry)
    }

    pub(crate) fn statistics(&self) -> PagingStatistics {
        let state = self.lock();
        let mut statistics = state.statistics;
        for page in state.pages.values() {
            let bytes = page.units * PAGE_BYTES as u64;
            if page.entry.is_swapped() {
                statistics.swapped_pages += 1;
                statistics.swapped_bytes += bytes;
            } else {
                statistics.resident_pages += 1;
                statistics.resident_bytes += bytes;
            }
        }
        statistics
    }
}

fn swap_full(needed: u64, total: u64) -> EngineError {
    EngineError::SwapFull {
        needed: needed * PAGE_BYTES as u64,
        total: total * PAGE_BYTES as u64,
    }
}

/// The content, zero-extended to whole units.
fn padded(content: &[u8]) -> Box<[u8]> {
    let mut data = Vec::with_capacity(content.len().next_multiple_of(PAGE_BYTES));
    data.extend_from_slice(content);
    data.resize(content.len().next_multiple_of(PAGE_BYTES), 0);
    data.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap::MemorySwap;
    use proptest::prelude::*;

    fn state(capacity: u64) -> State {
        let memory = PagedMemory::new(
            capacity * PAGE_BYTES as u64,
            0,
            Arc::new(MemorySwap::new()),
            ReplacementPolicy::Clock,
        );
        memory.state.into_inner().unwrap()
    }

    /// Units, and (busy, referenced, last use) of the page there or nothing for a gap.
    type Place = (u64, Option<(bool, bool, u64)>);

    /// Lays frames out in order, without gaps.
    fn lay_out(layout: &[Place]) -> State {
        let capacity = layout.iter().map(|(units, _)| units).sum();
        let mut state = state(capacity);
        let mut start = 0;
        for (units, page) in layout {
            if let Some((busy, referenced, last_use)) = *page {
                state.units.claim(start, *units);
                let id = PageId(start);
                state.frames.insert(
                    start,
                    Frame {
                        units: *units,
                        page: Some(id),
                    },
                );
                let entry = PageTableEntry::in_main_memory(start * PAGE_BYTES as u64);
                let page = Page {
                    entry,
                    units: *units,
                    data: None,
                    slot: None,
                    holders: 1,
                    busy,
                    referenced,
                    last_use,
                };
                state.pages.insert(id, page);
            }
            start += units;
        }
        state
    }

    fn usable(state: &State, start: u64, units: u64) -> bool {
        start + units <= state.units.capacity()
            && state
                .overlapping(start, units)
                .all(|(_, frame)| state.evictable(frame).is_some())
    }

    #[test]
    fn clock_gives_referenced_pages_another_round() {
        let mut state = lay_out(&[
            (1, Some((false, true, 1))),
            (1, Some((false, false, 2))),
            (1, Some((false, false, 3))),
        ]);
        assert_eq!(state.clock_window(1), Some(1));
        assert_eq!(state.clock_window(1), Some(2), "the hand has moved on");
        assert_eq!(
            state.clock_window(1),
            Some(0),
            "its reference bit was cleared"
        );
    }

    #[test]
    fn the_oldest_window_is_the_one_whose_latest_use_is_oldest() {
        let page = |last_use| Some((false, true, last_use));
        let state = lay_out(&[
            (1, page(1)),
            (1, page(9)),
            (2, page(5)),
            (1, page(3)),
            (1, page(4)),
        ]);
        assert_eq!(state.oldest_window(1), Some(0));
        assert_eq!(state.oldest_window(2), Some(4));
        assert_eq!(
            state.oldest_window(3),
            Some(2),
            "both units of the large page, or one with both of the last"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_policies_find_a_window_exactly_if_there_is_one(
            layout in prop::collection::vec(
                (1u64..4, prop::option::weighted(0.8, (prop::bool::weighted(0.3), any::<bool>(), 0u64..10))), 1..12),
            units in 1u64..6,
            hand in any::<prop::sample::Index>(),
        ) {
            let mut state = lay_out(&layout);
            let capacity = state.units.capacity();
            prop_assume!(units <= capacity);
            state.hand = hand.index(capacity as usize + 1) as u64;
            let exists = (0..capacity).any(|start| usable(&state, start, units));
            let latest = |state: &State, start: u64| {
                state.overlapping(start, units).map(|(_, frame)| state.evictable(frame).map_or(0, |page| page.last_use)).max()
            };
            let best = (0..capacity).filter(|start| usable(&state, *start, units)).map(|start| latest(&state, start)).min();
            let oldest = state.oldest_window(units);
            prop_assert_eq!(oldest.is_some(), exists);
            if let Some(start) = oldest {
                prop_assert!(usable(&state, start, units));
                prop_assert_eq!(Some(latest(&state, start).unwrap_or(0)), best.map(|best| best.unwrap_or(0)));
            }
            let clock = state.clock_window(units);
            prop_assert_eq!(clock.is_some(), exists);
            if let Some(start) = clock {
                prop_assert!(usable(&state, start, units));
            }
        }
    }
}
