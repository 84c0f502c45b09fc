//! Fuzzes the target `socket_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::socket_frame(bytes));
