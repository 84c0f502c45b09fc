//! Fuzzes the target `nsx_list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::nsx_list(bytes));
