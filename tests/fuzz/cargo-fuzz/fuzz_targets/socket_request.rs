//! Fuzzes the target `socket_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::socket_request(bytes));
