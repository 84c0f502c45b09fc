//! Fuzzes the target `session_manager`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::session_manager(bytes));
