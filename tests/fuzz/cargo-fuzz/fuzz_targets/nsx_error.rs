//! Fuzzes the target `nsx_error`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::nsx_error(bytes));
