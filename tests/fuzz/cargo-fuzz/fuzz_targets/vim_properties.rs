//! Fuzzes the target `vim_properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::vim_properties(bytes));
