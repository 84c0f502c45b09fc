//! Fuzzes the target `pem`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::pem(bytes));
