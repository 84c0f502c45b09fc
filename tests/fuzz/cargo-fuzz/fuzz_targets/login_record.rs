//! Fuzzes the target `login_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::login_record(bytes));
