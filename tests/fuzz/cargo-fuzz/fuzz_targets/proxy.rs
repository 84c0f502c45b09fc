//! Fuzzes the target `proxy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::proxy(bytes));
