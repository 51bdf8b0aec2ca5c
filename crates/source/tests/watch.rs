//! Changes are noticed soon, whatever becomes of the directories.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use source::Error;
use source::files::{Files, Watch};
use tempfile::TempDir;

/// Far more than inotify, the pause for writers and the slow look take.
const SOON: Duration = Duration::from_secs(15);

fn watch(path: &Path) -> Watch {
    Files::new(vec![path.to_owned()]).watch().unwrap()
}

async fn noticed(watch: &mut Watch, what: &str) {
    tokio::time::timeout(SOON, watch.changed()).await.unwrap_or_else(|_| panic!("not noticed: {what}"));
}

async fn quiet(watch: &mut Watch, what: &str) {
    assert!(
        tokio::time::timeout(Duration::from_millis(300), watch.changed()).await.is_err(),
        "noticed: {what}"
    );
}

#[tokio::test]
async fn what_happens_to_manifests_in_a_directory_is_noticed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    let mut watch = watch(dir.path());
    quiet(&mut watch, "nothing").await;
    std::fs::write(&path, "a").unwrap();
    noticed(&mut watch, "created").await;
    std::fs::write(&path, "b").unwrap();
    noticed(&mut watch, "written").await;
    std::fs::write(dir.path().join(".a.yaml.swp"), "c").unwrap();
    std::fs::rename(dir.path().join(".a.yaml.swp"), &path).unwrap();
    noticed(&mut watch, "replaced").await;
    std::fs::rename(&path, dir.path().join("b.yaml")).unwrap();
    noticed(&mut watch, "renamed").await;
    std::fs::remove_file(dir.path().join("b.yaml")).unwrap();
    noticed(&mut watch, "removed").await;
    quiet(&mut watch, "nothing more").await;
}

#[tokio::test]
async fn other_files_and_reading_are_not() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("a.yaml"), "a").unwrap();
    let mut watch = watch(dir.path());
    std::fs::write(dir.path().join("notes.txt"), "x").unwrap();
    std::fs::write(dir.path().join(".a.yaml.swp"), "x").unwrap();
    std::fs::read(dir.path().join("a.yaml")).unwrap();
    quiet(&mut watch, "notes, a swap file, a reader").await;
}

#[tokio::test]
async fn only_the_file_that_was_named_matters_in_its_directory() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.conf");
    let mut watch = watch(&path);
    std::fs::write(dir.path().join("b.yaml"), "x").unwrap();
    quiet(&mut watch, "a neighbour").await;
    std::fs::write(&path, "x").unwrap();
    noticed(&mut watch, "appeared").await;
    std::fs::remove_file(&path).unwrap();
    noticed(&mut watch, "removed").await;
}

#[tokio::test]
async fn a_directory_may_go_and_come_again() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().join("deep/manifests");
    let mut watch = watch(&place);
    for round in 0..3 {
        std::fs::create_dir_all(&place).unwrap();
        noticed(&mut watch, "directory made").await;
        std::fs::write(place.join("a.yaml"), "a").unwrap();
        noticed(&mut watch, &format!("file made in round {round}")).await;
        std::fs::write(place.join("a.yaml"), "b").unwrap();
        noticed(&mut watch, "file written").await;
        std::fs::remove_dir_all(dir.path().join("deep")).unwrap();
        noticed(&mut watch, "directory removed").await;
    }
}

#[tokio::test]
async fn the_swap_of_a_mounted_config_map_is_noticed() {
    let dir = TempDir::new().unwrap();
    for version in ["..v1", "..v2", "..v3"] {
        std::fs::create_dir(dir.path().join(version)).unwrap();
        std::fs::write(dir.path().join(version).join("a.yaml"), version).unwrap();
    }
    symlink("..v1", dir.path().join("..data")).unwrap();
    symlink("..data/a.yaml", dir.path().join("a.yaml")).unwrap();
    let mut whole = watch(dir.path());
    let mut single = watch(&dir.path().join("a.yaml"));
    for version in ["..v2", "..v3"] {
        symlink(version, dir.path().join("..data_tmp")).unwrap();
        std::fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        noticed(&mut whole, "swap").await;
        noticed(&mut single, "swap, for the one file").await;
    }
}

#[tokio::test]
async fn a_directory_behind_a_link_and_a_file_behind_a_link_are_followed() {
    let dir = TempDir::new().unwrap();
    for release in ["one", "two", "shared"] {
        std::fs::create_dir(dir.path().join(release)).unwrap();
    }
    std::fs::write(dir.path().join("shared/real"), "a").unwrap();
    symlink("../shared/real", dir.path().join("one/a.yaml")).unwrap();
    symlink("one", dir.path().join("current")).unwrap();
    let mut watch = watch(&dir.path().join("current"));
    std::fs::write(dir.path().join("shared/real"), "b").unwrap();
    noticed(&mut watch, "the target written").await;
    symlink("two", dir.path().join("next")).unwrap();
    std::fs::rename(dir.path().join("next"), dir.path().join("current")).unwrap();
    noticed(&mut watch, "the link swapped").await;
    std::fs::write(dir.path().join("two/b.yaml"), "b").unwrap();
    noticed(&mut watch, "written behind the new link").await;
}

#[tokio::test]
async fn many_writes_are_one_change_and_a_cancelled_wait_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let mut watch = watch(dir.path());
    for number in 0..100 {
        std::fs::write(dir.path().join(format!("{number}.yaml")), "a").unwrap();
    }
    // Cancelled in the middle of the pause.
    assert!(tokio::time::timeout(Duration::from_millis(10), watch.changed()).await.is_err());
    let mut changes = 0;
    while tokio::time::timeout(Duration::from_secs(1), watch.changed()).await.is_ok() {
        changes += 1;
    }
    // One; more where writing itself takes longer than the pause for writers.
    assert!((1..10).contains(&changes), "{changes}");
}

#[tokio::test]
async fn no_path_is_an_error() {
    assert!(matches!(Files::new(Vec::new()).watch(), Err(Error::NothingToWatch)));
}

#[tokio::test]
async fn a_file_that_stays_empty_is_noticed_again() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("a.yaml"), "a").unwrap();
    let mut watch = watch(dir.path());
    std::fs::write(dir.path().join("a.yaml"), "").unwrap();
    noticed(&mut watch, "emptied").await;
    noticed(&mut watch, "empty for good").await;
    quiet(&mut watch, "once more").await;
}
