//! Fuzzes the target `client_authorities`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::client_authorities(bytes));
