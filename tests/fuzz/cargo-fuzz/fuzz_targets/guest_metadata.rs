//! Fuzzes the target `guest_metadata`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::guest_metadata(bytes));
