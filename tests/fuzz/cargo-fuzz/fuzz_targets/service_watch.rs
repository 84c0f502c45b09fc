//! Fuzzes the target `service_watch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::service_watch(bytes));
