//! Counts allocations, and can stop freeing.
//!
//! What the C library's `free` costs depends on how the heap happens to lie, by hundreds of instructions for each
//! message. A figure that contains it compares nothing. So nothing is freed while a measurement runs.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static KEEP: AtomicBool = AtomicBool::new(false);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call is handed to the system's allocator as it came; a block that is never freed is only leaked.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !KEEP.load(Ordering::Relaxed) {
            // SAFETY: the caller's promises are passed on.
            unsafe { System.dealloc(block, layout) }
        }
    }
}

/// Runs `measured` without freeing anything, and counts its allocations.
pub(crate) fn counted<T>(measured: impl FnOnce() -> T) -> (T, usize) {
    KEEP.store(true, Ordering::Relaxed);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let result = measured();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    KEEP.store(false, Ordering::Relaxed);
    (result, allocations)
}
