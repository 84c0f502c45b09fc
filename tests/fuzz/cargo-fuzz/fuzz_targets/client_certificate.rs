//! Fuzzes the target `client_certificate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::client_certificate(bytes));
