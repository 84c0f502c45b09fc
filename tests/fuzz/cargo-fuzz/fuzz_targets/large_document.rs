//! Fuzzes the target `large_document`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::large_document(bytes));
