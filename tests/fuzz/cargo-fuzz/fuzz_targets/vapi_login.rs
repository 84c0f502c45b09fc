//! Fuzzes the target `vapi_login`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::vapi_login(bytes));
