//! Fuzzes the target `request_headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::request_headers(bytes));
