//! Tests on a real file system: directories that appear, change, or have unusual entries.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        std::fs::write(folder.join(name), content).unwrap();
    }
}

/// Returns the files in one line, or the reason why there are none.
fn shown(observed: &DirectoryReading) -> String {
    match observed {
        DirectoryReading::Absent(reason) => format!("absent: {reason}"),
        DirectoryReading::Failing(why) => format!("failing: {why}"),
        DirectoryReading::Files(files) => {
            let text =
                |content: Option<&[u8]>| content.map_or("?".to_owned(), |bytes| String::from_utf8_lossy(bytes).into());
            files.entries().map(|(name, content)| format!("{name}={}", text(content))).collect::<Vec<_>>().join(" ")
        }
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Mounts a Secret as the kubelet does: the files are symbolic links into `..data`, which is a symbolic link too.
fn mount(folder: &Path, version: &str, files: &[(&str, &str)]) {
    let hidden = format!("..{version}");
    std::fs::create_dir(folder.join(&hidden)).unwrap();
    write(&folder.join(&hidden), files);
    symlink(&hidden, folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for (name, _) in files {
        let link = folder.join(name);
        if !link.exists() {
            symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn w23_a_directory_that_does_not_exist_yet_is_found_when_it_appears() {
    let folder = folder();
    let path = folder.path().join("secrets");
    let mut watched = DirectoryWatcher::new(path.clone());
    assert_eq!(shown(watched.next().await), "absent: it does not exist");
    std::fs::create_dir(&path).unwrap();
    write(&path, &[("vc.username", "u"), ("vc.password", "p")]);
    assert_eq!(shown(watched.next().await), "vc.password=p vc.username=u");
    write(&path, &[("vc.password", "new")]);
    assert_eq!(shown(watched.next().await), "vc.password=new vc.username=u");
    std::fs::remove_dir_all(&path).unwrap();
    assert_eq!(shown(watched.next().await), "absent: it does not exist");
    std::fs::write(&path, "").unwrap();
    assert_eq!(shown(watched.next().await), "absent: it is not a directory");
}

#[tokio::test(start_paused = true)]
async fn what_did_not_change_is_not_told_again() {
    let folder = folder();
    write(folder.path(), &[("vc.username", "u")]);
    let mut watched = DirectoryWatcher::new(folder.path().to_owned());
    watched.next().await;
    let nothing = timeout(PAUSE * 10, watched.next()).await;
    assert!(nothing.is_err(), "{}", shown(nothing.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn files_that_are_still_being_written_do_not_count_before_they_stay_the_same() {
    let folder = folder();
    write(folder.path(), &[("vc.username", "old"), ("vc.password", "old")]);
    let mut watched = DirectoryWatcher::new(folder.path().to_owned());
    assert_eq!(shown(watched.next().await), "vc.password=old vc.username=old");
    write(folder.path(), &[("vc.username", "new")]);
    // The watcher reads the first file after `PAUSE`. The second file is written within `SETTLE` after that read.
    let half = timeout(PAUSE + SETTLE / 2, watched.next()).await;
    assert!(half.is_err(), "{}", shown(half.unwrap()));
    write(folder.path(), &[("vc.password", "new")]);
    assert_eq!(shown(watched.next().await), "vc.password=new vc.username=new");
}

#[tokio::test(start_paused = true)]
async fn a_mounted_secret_is_swapped_as_a_whole() {
    let folder = folder();
    mount(folder.path(), "1", &[("vc.username", "old"), ("vc.password", "old")]);
    let mut watched = DirectoryWatcher::new(folder.path().to_owned());
    assert_eq!(shown(watched.next().await), "vc.password=old vc.username=old");
    mount(folder.path(), "2", &[("vc.username", "new"), ("vc.password", "new")]);
    let swapped = timeout(PAUSE + SETTLE / 2, watched.next()).await;
    assert_eq!(swapped.map(shown).unwrap(), "vc.password=new vc.username=new", "at the next look");
}

#[tokio::test]
async fn entries_that_are_no_keys_are_skipped_and_odd_ones_are_told_by_their_path() {
    let folder = folder();
    let path = folder.path();
    write(path, &[("vc.username", "u"), ("..hidden", "x"), (".odd", "y")]);
    std::fs::write(path.join("large"), vec![b'x'; 2 * 1024 * 1024]).unwrap();
    std::fs::create_dir(path.join("sub")).unwrap();
    symlink("nowhere", path.join("dangling")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
    std::fs::write(path.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    let DirectoryReading::Files(files) = read_directory(path).await else { panic!("it can be read") };
    let observed = DirectoryReading::Files(files);
    assert_eq!(shown(&observed), ".odd=y dangling=? large=? socket=? vc.username=u");
    let DirectoryReading::Files(files) = observed else { unreachable!() };
    let expected = ["the file", "the file", "the file", "the name of"];
    assert_eq!(files.problems.len(), expected.len(), "{:?}", files.problems);
    for (problem, (expected, name)) in
        files.problems.iter().zip(expected.into_iter().zip(["dangling", "large", "socket", "caf"]))
    {
        assert!(problem.starts_with(expected) && problem.contains(&path.join(name).display().to_string()), "{problem}");
    }
}

#[tokio::test]
async fn many_entries_are_cut_and_that_is_told() {
    let folder = folder();
    for number in 0..=MAX_ENTRIES {
        std::fs::write(folder.path().join(format!("file-{number}")), "").unwrap();
    }
    let DirectoryReading::Files(files) = read_directory(folder.path()).await else { panic!("it can be read") };
    assert_eq!(files.entries().count(), MAX_ENTRIES);
    assert!(matches!(files.problems.as_slice(), [problem] if problem.starts_with("only the first 1000")));
}
