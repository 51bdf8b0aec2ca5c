use super::*;
use crate::varnishd::tests::settings;

fn in_directory(dir: &Path) -> Settings {
    Settings { work_dir: dir.to_owned(), http_in_front: true, ..settings() }
}

#[test]
fn each_start_has_a_page_of_its_own_and_removes_those_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let settings = in_directory(dir.path());
    let (first, second) = (Hot::prepare(&settings), Hot::prepare(&settings));
    assert_ne!(first.path(), second.path());
    let other = Page::open(first.path().unwrap()).unwrap();
    other.set_digest(7);
    assert_eq!((first.page().unwrap().digest(), second.page().unwrap().digest()), (7, 0));
    let socket = settings.control_socket();
    fs::write(&socket, "").unwrap();
    second.remove_others(&settings);
    assert!(!first.path().unwrap().exists() && second.path().unwrap().exists() && socket.exists());
}

#[test]
fn what_was_hot_ends_with_varnishds_child() {
    let dir = tempfile::tempdir().unwrap();
    let hot = Hot::prepare(&in_directory(dir.path()));
    let page = hot.page().unwrap();
    page.set_digest(7);
    let stamp = page.stamp(&[]);
    assert!(page.serves(&stamp, 7));
    hot.end_all();
    assert!(!page.serves(&stamp, 7));
    page.set_digest(7);
    assert!(!page.serves(&stamp, 7), "the next child serves by the same table");
    let file = hot.path().unwrap().to_owned();
    drop(hot);
    assert!(!file.exists());
}

#[test]
fn without_hot_objects_there_is_no_page() {
    let dir = tempfile::tempdir().unwrap();
    let settings = in_directory(dir.path());
    let off = Settings { hot: front::HotLimits::OFF, ..settings.clone() };
    let in_varnish = Settings { http_in_front: false, ..settings };
    for settings in [off, in_varnish] {
        let hot = Hot::prepare(&settings);
        assert!(hot.page().is_none() && hot.path().is_none());
        hot.end_all();
    }
}
