//! Fuzzes the target `node_watch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::node_watch(bytes));
