//! Fuzzes the target `secret`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::secret(bytes));
