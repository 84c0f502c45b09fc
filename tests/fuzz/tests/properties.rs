//! Tests every target as a property: with its corpus, with mutations of the corpus, and with random bytes.
//!
//! An input that fails here or in `cargo fuzz` is kept as a file of `tests/fuzz/corpus`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod mutation;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz_targets::{TARGETS, Target};
use mutation::{mutated, noise, words};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// Upper limit of files in a corpus. It needs one file of each kind.
const MOST_FILES: usize = 20;
const MOST_BYTES: usize = 4096;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder().join("corpus").join(target.name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Returns the panic message of the target for these bytes, if it panics.
fn broken(target: &Target, bytes: &[u8]) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(text.unwrap_or_else(|| "a panic without words".to_owned()))
}

/// Returns the bytes as text, and in hex so that they can be made a file again: `echo HEX | xxd -r -p`.
fn shown(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    format!("{}\nhex: {hex}", bytes.escape_ascii())
}

/// Makes a runner with the same inputs at every run; `cargo fuzz` tries random ones.
fn runner(target: &Target) -> TestRunner {
    let config =
        Config { cases: target.cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut seed = [7; 32];
    for (slot, byte) in seed.iter_mut().zip(target.name.bytes()) {
        *slot = byte;
    }
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

fn hold(target: &Target, kind: &str, inputs: impl Strategy<Value = Vec<u8>>) {
    let result = runner(target).run(&inputs, |bytes| match broken(target, &bytes) {
        None => Ok(()),
        Some(why) => Err(TestCaseError::fail(why)),
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, bytes)) => panic!("target {}, {kind}: {why}\n{}", target.name, shown(&bytes)),
        Err(TestError::Abort(why)) => panic!("target {}, {kind}: {why}", target.name),
    }
}

fn check(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let corpus = corpus(target);
    for (path, bytes) in &corpus {
        if let Some(why) = broken(target, bytes) {
            panic!("target {name}, {}: {why}\n{}", path.display(), shown(bytes));
        }
    }
    let seeds: Vec<Vec<u8>> = corpus.into_iter().map(|(_, bytes)| bytes).collect();
    let words = words(&seeds);
    hold(target, "a broken file of the corpus", mutated(seeds, words.clone()));
    hold(target, "any bytes", noise(words));
}

/// Defines one test for each target, and a test that no target is missing.
macro_rules! properties {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_a_property() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

properties! {
    vim_updates,
    vim_properties,
    vim_content,
    vim_session,
    vim_search,
    sts,
    vapi,
    vapi_login,
    session_manager,
    vsphere_conf,
    nsx_config,
    nsx_list,
    nsx_object,
    nsx_error,
    nsx_session,
    guest_metadata,
    large_document,
    large_answer,
    secret,
    flags,
    leader_migration,
    proxy,
    node,
    node_watch,
    service,
    service_watch,
    value,
    login_record,
    election,
    request_headers,
    client_certificate,
    token_review,
    client_authorities,
    pem,
    socket_frame,
    socket_request,
}

#[test]
fn every_target_has_a_small_corpus_a_fuzz_target_and_a_row_in_the_page() {
    let page = std::fs::read_to_string(folder().join("../../docs/fuzzing.md")).unwrap();
    let manifest = std::fs::read_to_string(folder().join("cargo-fuzz/Cargo.toml")).unwrap();
    for target in TARGETS {
        let name = target.name;
        let files = corpus(target);
        assert!((1..=MOST_FILES).contains(&files.len()), "{name}: {} files", files.len());
        for (path, bytes) in files {
            assert!(bytes.len() <= MOST_BYTES, "{}: {} bytes", path.display(), bytes.len());
        }
        assert!(page.contains(&format!("| `{name}` |")), "docs/fuzzing.md has no row of {name}");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"")), "{name}");
        let program = folder().join(format!("cargo-fuzz/fuzz_targets/{name}.rs"));
        let program =
            std::fs::read_to_string(&program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        assert!(program.contains(&format!("fuzz_targets::{name}(bytes)")), "{name}: {program}");
    }
    let programs = std::fs::read_dir(folder().join("cargo-fuzz/fuzz_targets")).unwrap().count();
    let corpora = std::fs::read_dir(folder().join("corpus")).unwrap().count();
    assert_eq!((programs, corpora), (TARGETS.len(), TARGETS.len()), "something is left of a target that is gone");
}

#[test]
fn a_broken_law_is_noticed_with_the_bytes() {
    let target = Target { name: "made_up", run: |bytes| assert!(!bytes.contains(&b'<'), "a law"), cases: 100 };
    let seeds = vec![b"<a>".to_vec()];
    let told = catch_unwind(|| hold(&target, "made up", mutated(seeds.clone(), words(&seeds)))).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("a law") && told.contains("hex: 3c"), "{told}");
}
