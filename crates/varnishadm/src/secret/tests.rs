use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn the_response_is_the_one_of_the_manual() {
    // The example in the documentation of varnishd's CLI.
    let secret = Secret::new("foo\n");
    assert_eq!(
        secret.respond(b"ixslvvxrgkjptxmcgnnsdxsvdmvfympg"),
        "455ce847f0073c7ab3b1465f74507b75d3dc064c1e7de3b71e00de9092fdc89a"
    );
}

#[test]
fn a_written_secret_reads_back_and_is_its_owners_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "old and public").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();

    let secret = Secret::generate().unwrap();
    secret.write(&path).unwrap();

    assert_eq!(Secret::read(&path).unwrap(), secret);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    assert_ne!(Secret::generate().unwrap(), secret);
}

#[test]
fn an_empty_or_missing_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    let missing = Secret::read(&path).unwrap_err().to_string();
    assert!(missing.contains(path.to_str().unwrap()), "{missing}");
    fs::write(&path, "").unwrap();
    assert!(matches!(Secret::read(&path), Err(Error::EmptySecret { .. })));
}

#[test]
fn debug_shows_nothing() {
    assert_eq!(format!("{:?}", Secret::new("hush")), "Secret(…)");
}
