//! Fuzzes the target `vapi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::vapi(bytes));
