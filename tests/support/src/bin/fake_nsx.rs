//! Runs the fake NSX Manager as a program of its own. It prints its address, CA file, user and password, one
//! `key=value` a line, and exits when its standard input closes.

use std::io::{Read, Write};

use support::fake_nsx::{FakeNsx, Model};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let fake = FakeNsx::start(Model::small()).await;
    let folder = tempfile::tempdir()?;
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, fake.ca_pem())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "address={}", fake.address())?;
    writeln!(out, "ca-file={}", ca_file.display())?;
    writeln!(out, "user={}", fake.user())?;
    writeln!(out, "password={}", fake.password())?;
    out.flush()?;
    drop(out);
    let read_to_end = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(read_to_end).await.map_err(std::io::Error::other)?.map(drop)
}
