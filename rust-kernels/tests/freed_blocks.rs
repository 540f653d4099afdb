//! Tests that freed memory returns to the system once a model was made, even if a block in use lies behind it in
//! glibc's heap. The test needs its own process, because allocator settings and resident bytes are global.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use compy::ffi::{compy_model_free, compy_model_new};
use std::hint::black_box;

const MB: usize = 1 << 20;

#[test]
fn freed_blocks_leave_the_process() {
    let model = new_model();
    drop(touched(24 * MB)); // by default, glibc takes smaller blocks from its heap from now on
    let tables: Vec<_> = (0..10).map(|_| (touched(2 * MB), touched(64 << 10))).collect();
    // SAFETY: the handle belongs to an open model, and there is nothing to read or write.
    let freed = unsafe { compy_model_free(model, std::ptr::null(), 0, std::ptr::null_mut(), 0) };
    assert_eq!(freed, 0);
    let full = resident();
    let small: Vec<_> = tables.into_iter().map(|(_, small)| small).collect();
    let left = full - resident();
    assert!(left > 19 * MB, "{left} of {} bytes left", 20 * MB);
    drop(small);
}

fn new_model() -> u64 {
    let (threads, processors) = (1u64, 0u64); // a word each
    let (input, mut handle) = ((processors << 32 | threads).to_le_bytes(), [0; 256]);
    // SAFETY: input and handle have the given lengths.
    let written = unsafe { compy_model_new(0, input.as_ptr(), input.len(), handle.as_mut_ptr(), handle.len()) };
    assert_eq!(written, 8);
    u64::from_le_bytes(handle[..8].try_into().unwrap())
}

fn touched(bytes: usize) -> Vec<u8> {
    black_box(vec![1; bytes])
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    // SAFETY: the call only reads a system constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * page
}
