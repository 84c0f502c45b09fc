//! Fuzzes the target `token_review`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::token_review(bytes));
