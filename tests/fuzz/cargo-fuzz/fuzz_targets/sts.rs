//! Fuzzes the target `sts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::sts(bytes));
