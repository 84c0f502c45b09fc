//! A counting allocator: measures the peak heap use of a piece of work.
//!
//! Each thread counts its own memory, so that parallel tests do not disturb the numbers. An allocator needs unsafe
//! code. This one forwards every call to the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Without a destructor, so that they can be used until the thread ends.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

/// `realloc` is the default of the trait: it allocates the new block before it frees the old one, which is the worst
/// case.
#[allow(unsafe_code, reason = "the trait is unsafe; pointers and layouts are handed on as they come")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller fulfils the contract of the trait, which is also the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above; the pointer comes from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs the work. Returns its result and its peak heap use in bytes, without the memory that was allocated before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::peak;

    #[test]
    fn the_peak_counts_what_was_given_back_and_what_was_copied() {
        let (kept, most) = peak(|| {
            drop(vec![0_u8; 1000]);
            let mut grown = vec![0_u8; 400];
            grown.reserve_exact(500);
            grown
        });
        assert_eq!((kept.len(), most), (400, 400 + 900));
        assert_eq!(peak(|| vec![0_u8; 10]).1, 10, "what was held before does not count");
    }
}
