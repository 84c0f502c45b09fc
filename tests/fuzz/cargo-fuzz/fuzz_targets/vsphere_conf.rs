//! Fuzzes the target `vsphere_conf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::vsphere_conf(bytes));
