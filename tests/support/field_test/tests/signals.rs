//! Tests of real signals to the binary while it writes to the fake NSX.

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::FakeNsx;
use support::fake_nsx::{Behaviour, Hold, Model, Side, Trouble};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

const PREFIX: &str = "secret-prefix";

/// Far longer than a run takes, even while this computer also compiles.
const LIMIT: Duration = Duration::from_secs(120);

struct Run {
    nsx: FakeNsx,
    binary: Child,
    _folder: tempfile::TempDir,
}

impl Run {
    async fn start(change: impl FnOnce(&FakeNsx) -> Hold) -> (Self, Hold) {
        let nsx = FakeNsx::start(Model::small().behaviour(Behaviour::USUAL)).await;
        let hold = change(&nsx);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vsphere.conf");
        let text = format!(
            "[VirtualCenter \"127.0.0.1\"]\nport = \"9\"\nuser = \"u\"\npassword = \"p\"\ndatacenters = \"dc\"\n\
             insecure-flag = true\n{}",
            nsx.ini_section(folder.path())
        );
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_field-test"));
        command.args(["--yes", "--write", PREFIX]).arg(&path).kill_on_drop(true);
        let binary = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (Self { nsx, binary, _folder: folder }, hold)
    }

    async fn send(&self, signal: &str) {
        let id = self.binary.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().await.unwrap().success());
    }

    /// Reads its standard error until this text comes.
    async fn prints(&mut self, wanted: &str) {
        let mut text = Vec::new();
        let read = async {
            let errors = self.binary.stderr.as_mut().unwrap();
            while !String::from_utf8_lossy(&text).contains(wanted) {
                text.push(errors.read_u8().await.unwrap());
            }
        };
        let is_printed = tokio::time::timeout(LIMIT, read).await.is_ok();
        assert!(is_printed, "{wanted} is missing in {}", String::from_utf8_lossy(&text));
    }

    /// Returns the exit code, the output, and the rest of its standard error.
    async fn end(self) -> (FakeNsx, Option<i32>, String, String) {
        let output = tokio::time::timeout(LIMIT, self.binary.wait_with_output()).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (self.nsx, output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

fn left(nsx: &FakeNsx) -> Vec<String> {
    let paths = nsx.objects().into_iter().filter(|object| object["marked_for_delete"] != true);
    let paths = paths.map(|object| object["path"].as_str().unwrap().to_owned());
    paths.filter(|path| path.contains(PREFIX)).collect()
}

#[tokio::test]
async fn after_a_signal_during_a_write_nothing_is_left() {
    for signal in ["INT", "TERM", "HUP"] {
        let hold = |nsx: &FakeNsx| nsx.hold_operation("PUT lb-pools", 1, Side::Request);
        let (mut run, hold) = Run::start(hold).await;
        hold.wait().await;
        run.send(signal).await;
        run.prints("A second Ctrl-C ends it at once.").await;
        hold.release();
        let (nsx, code, output, messages) = run.end().await;
        assert_eq!(code, Some(2), "{signal}: {output}\n{messages}");
        assert!(output.contains("The test of this server ended early: it was interrupted"), "{signal}: {output}");
        assert_eq!(left(&nsx), Vec::<String>::new(), "{signal}: {messages}");
        assert_eq!(nsx.counts().of("PUT lb-pools"), 1, "{signal}: the pool was written");
        assert_eq!(nsx.counts().of("PUT groups"), 0, "{signal}: nothing more was made");
        assert_eq!(nsx.counts().sessions, 0, "{signal}: the session is ended");
        assert!(!messages.contains("curl"), "{signal}: {messages}");
    }
}

#[tokio::test]
async fn a_second_signal_during_the_removal_ends_it_at_once_with_a_list() {
    let (mut run, hold) = Run::start(|nsx| nsx.hold_operation("PUT groups", 1, Side::Answer)).await;
    let removal = run.nsx.hold_operation("DELETE groups", 1, Side::Request);
    hold.wait().await;
    run.send("INT").await;
    run.prints("A second Ctrl-C ends it at once.").await;
    hold.release();
    removal.wait().await;
    let began = Instant::now();
    run.send("INT").await;
    let (nsx, code, output, messages) = run.end().await;
    // The timeout of the delayed call is 30 s.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(code, Some(2), "{output}\n{messages}");
    assert!(output.contains("may still be there: 3"), "{output}");
    for path in left(&nsx) {
        assert!(messages.contains(&format!("/policy/api/v1{path}'")), "{path} is missing in {messages}");
    }
    assert!(!messages.contains(&nsx.password()), "{messages}");
}

/// The logout gets no answer.
#[tokio::test]
async fn a_signal_during_the_logout_is_not_lost() {
    let (mut run, hold) = Run::start(|nsx| nsx.hold_operation("PUT lb-monitor-profiles", 1, Side::Answer)).await;
    run.nsx.every("session destroy", Trouble::Hang);
    hold.wait().await;
    run.send("INT").await;
    run.prints("A second Ctrl-C ends it at once.").await;
    hold.release();
    let is_logging_out = async {
        while run.nsx.counts().of("session destroy") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, is_logging_out).await.unwrap();
    run.send("INT").await;
    let (nsx, code, output, messages) = run.end().await;
    assert!(messages.contains("NSX: not logged out."), "{messages}");
    assert_eq!((code, left(&nsx)), (Some(2), vec![]), "{output}\n{messages}");
}
