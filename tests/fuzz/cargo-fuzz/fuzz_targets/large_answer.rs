//! Fuzzes the target `large_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::large_answer(bytes));
