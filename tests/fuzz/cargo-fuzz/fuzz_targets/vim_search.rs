//! Fuzzes the target `vim_search`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::vim_search(bytes));
