//! Fuzzes the target `flags`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::flags(bytes));
