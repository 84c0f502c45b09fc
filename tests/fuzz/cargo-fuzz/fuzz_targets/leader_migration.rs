//! Fuzzes the target `leader_migration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::leader_migration(bytes));
