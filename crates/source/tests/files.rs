//! Files that break, heal, move and go, one load after the other.

#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use source::files::{Files, Loaded};
use tempfile::TempDir;
use translate::snapshot::Key;

struct Place {
    dir: TempDir,
    files: Files,
}

impl Place {
    /// An empty directory that is loaded as a whole.
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let files = Files::new(vec![dir.path().to_owned()]);
        Self { dir, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn load(&mut self) -> Loaded {
        self.files.load()
    }

    /// Problems as they are shown, without the directory.
    fn problems(&self, loaded: &Loaded) -> Vec<String> {
        let dir = format!("{}/", self.dir.path().display());
        loaded.problems.iter().map(|problem| problem.to_string().replace(&dir, "")).collect()
    }
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{v: '{value}'}}\n")
}

fn values(loaded: &Loaded) -> Vec<(&str, &str)> {
    let maps = loaded.snapshot.config_maps.iter();
    maps.map(|(key, map)| (key.name.as_str(), map.data.as_ref().unwrap()["v"].as_str())).collect()
}

#[test]
fn a_directory_means_its_manifests_and_nothing_else() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.write("b.yml", &config_map("b", "1"));
    place.write(
        "c.json",
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"v": "1"}}"#,
    );
    place.write("README.md", "nothing");
    place.write(".hidden.yaml", "broken: [");
    place.write("d.yaml~", "broken: [");
    std::fs::create_dir(place.path("e.yaml")).unwrap();
    std::fs::create_dir(place.path("sub")).unwrap();
    place.write("sub/f.yaml", &config_map("f", "1"));
    let loaded = place.load();
    assert_eq!(place.problems(&loaded), Vec::<String>::new());
    assert_eq!(values(&loaded), [("a", "1"), ("b", "1"), ("c", "1")]);
}

#[test]
fn nothing_changed_means_the_same_objects() {
    let mut place = Place::new();
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    let first = place.load();
    assert!(first.changed);
    assert!(!place.load().changed);
    place.write("a.yaml", &format!("# a comment\n{}---\n{}", config_map("a", "1"), config_map("b", "2")));
    let second = place.load();
    assert!(second.changed);
    let get = |loaded: &Loaded, name: &str| loaded.snapshot.config_maps[&Key::new("default", name)].clone();
    assert!(Arc::ptr_eq(&get(&first, "a"), &get(&second, "a")));
    assert_eq!(get(&second, "b").metadata.generation, Some(2));
    assert_eq!(get(&first, "b").metadata.creation_timestamp, get(&second, "b").metadata.creation_timestamp);
    place.write("a.yaml", &config_map("a", "1"));
    assert!(place.load().changed);
}

#[test]
fn a_file_that_breaks_keeps_its_objects_until_it_heals() {
    let mut place = Place::new();
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    place.write("z.yaml", &config_map("z", "1"));
    place.load();
    place.write("a.yaml", &format!("{}---\nmetadata: [\n", config_map("a", "2")));
    place.write("z.yaml", &config_map("z", "2"));
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1"), ("b", "1"), ("z", "2")]);
    let problems = place.problems(&loaded);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("a.yaml: line "), "{problems:?}");
    assert!(problems[0].ends_with("; its last 2 good objects stay in use"), "{problems:?}");
    let again = place.load();
    assert_eq!(place.problems(&again), problems, "told at every load");
    place.write("a.yaml", &config_map("a", "3"));
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "3"), ("z", "2")]);
    assert!(loaded.problems.is_empty());
}

#[test]
fn a_syntax_error_names_line_and_column_of_the_file() {
    let mut place = Place::new();
    place.write("a.yaml", &format!("{}---\n# second\na: b\n c: d\n", config_map("a", "1")));
    place.write("b.json", "{\"a\": 1,\n}");
    place.write("c.yaml", "a: 1\nb: 2\na: 3\n");
    let loaded = place.load();
    assert_eq!(
        place.problems(&loaded),
        [
            "a.yaml: line 8, column 3: mapping values are not allowed in this context; nothing of this file is used",
            "b.json: line 2, column 1: trailing comma; nothing of this file is used",
            "c.yaml: line 3, column 1: duplicate mapping key: a not allowed here; nothing of this file is used",
        ]
    );
}

#[test]
fn a_refused_object_keeps_its_last_good_version() {
    let mut place = Place::new();
    let bad = config_map("a", "2").replace("\ndata", "\ndota");
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    place.load();
    place.write("a.yaml", &format!("{bad}---\n{}", config_map("b", "2")));
    for _ in 0..2 {
        let loaded = place.load();
        assert_eq!(values(&loaded), [("a", "1"), ("b", "2")]);
        assert_eq!(
            place.problems(&loaded),
            [
                "ConfigMap default/a in a.yaml, document 1: dota is an unknown field (did you mean `data`?); the last good \
              version stays in use"
            ]
        );
        // Something else in the file changes: the object is still kept.
        place.write("a.yaml", &format!("{bad}---\n{}# more\n", config_map("b", "2")));
    }
    place.write("a.yaml", &config_map("b", "2"));
    assert_eq!(values(&place.load()), [("b", "2")]);
    place.write("a.yaml", &bad);
    let loaded = place.load();
    assert_eq!(values(&loaded), []);
    assert_eq!(
        place.problems(&loaded),
        ["ConfigMap default/a in a.yaml: dota is an unknown field (did you mean `data`?)"]
    );
}

#[test]
fn an_object_whose_identity_breaks_stays_in_use() {
    let good = config_map("a", "1");
    let other = format!("---\n{}", config_map("b", "1"));
    for bad in [
        good.replace("apiVersion: v1", "apiVersion: v1alpha2"),
        good.replace("apiVersion: v1", "apiVersion: apps/v1"),
        good.replace("apiVersion: v1\n", ""),
        good.replace("kind: ConfigMap\n", ""),
        good.replace("kind: ConfigMap", "kind: ConfigMpa"),
        good.replace("kind: ConfigMap", "kind: configmap"),
        good.replace("metadata: {name: a}\n", ""),
        good.replace("metadata: {name: a}", "metadata:"),
        good.replace("{name: a}", "{name: }"),
        good.replace("{name: a}", "{name: 7}"),
        good.replace("{name: a}", "{name: [a]}"),
        good.replace("{name: a}", "{name: Not_A_Name}"),
        good.replace("{name: a}", "{name: a, namespace: Not_One}"),
        good.replace("{name: a}", "{name: a, namespace: 7}"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n".to_owned(),
        "apiVersion: v1\nkind: Conf\n".to_owned(),
        "apiVersion: v1\n".to_owned(),
        "apiVer\n".to_owned(),
    ] {
        let mut place = Place::new();
        place.write("a.yaml", &format!("{good}{other}"));
        place.load();
        place.write("a.yaml", &format!("{bad}{other}"));
        for round in 0..2 {
            let loaded = place.load();
            assert_eq!(values(&loaded), [("a", "1"), ("b", "1")], "{bad}");
            let problems = place.problems(&loaded);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(loaded.problems[0].is_error(), "{problems:?}");
            assert!(problems[0].contains("good version stays in use"), "{problems:?}");
            // Something else in the file changes.
            place.write("a.yaml", &format!("{bad}{other}# {round}\n"));
        }
        // Another one goes while this one is broken.
        place.write("a.yaml", &bad);
        assert_eq!(values(&place.load()), [("a", "1")], "{bad}");
        place.write("a.yaml", &format!("{}{other}", config_map("a", "2")));
        let loaded = place.load();
        assert_eq!(values(&loaded), [("a", "2"), ("b", "1")]);
        assert!(loaded.problems.is_empty(), "{:?}", place.problems(&loaded));
        place.write("a.yaml", &config_map("b", "1"));
        assert_eq!(values(&place.load()), [("b", "1")], "taken away, it goes");
    }
}

#[test]
fn what_goes_while_another_is_broken_is_not_kept_for_it() {
    let mut place = Place::new();
    let nameless = config_map("c", "1").replace("{name: c}", "{}");
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    place.load();
    // A new one without a name: nothing is missing, so it was nothing before.
    place.write("a.yaml", &format!("{}---\n{}---\n{nameless}", config_map("a", "1"), config_map("b", "1")));
    let loaded = place.load();
    assert_eq!(
        place.problems(&loaded),
        ["ConfigMap in a.yaml, document 3: metadata.name is missing; give it one"]
    );
    place.write("a.yaml", &format!("{}---\n{nameless}", config_map("a", "1")));
    assert_eq!(values(&place.load()), [("a", "1")]);
}

#[test]
fn two_that_lose_their_names_at_once_heal_one_by_one() {
    let mut place = Place::new();
    let nameless = |value: &str| config_map("c", value).replace("{name: c}", "{name: 7}");
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    place.load();
    place.write("a.yaml", &format!("{}---\n{}", nameless("2"), nameless("3")));
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1"), ("b", "1")]);
    assert_eq!(
        place.problems(&loaded),
        [
            "ConfigMap in a.yaml, document 1: metadata.name must be a string; put quotes round it; ConfigMap default/a \
             and 1 more were here before, and their last good versions stay in use",
            "ConfigMap in a.yaml, document 2: metadata.name must be a string; put quotes round it",
        ]
    );
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "2"), nameless("3")));
    assert_eq!(values(&place.load()), [("a", "2"), ("b", "1")]);
    place.write("a.yaml", &format!("{}---\n{}", config_map("a", "2"), config_map("b", "3")));
    assert_eq!(values(&place.load()), [("a", "2"), ("b", "3")]);
}

#[test]
fn a_kind_of_somebody_else_takes_nothings_place() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.load();
    place.write("a.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n");
    let loaded = place.load();
    assert_eq!(values(&loaded), []);
    assert!(!loaded.problems[0].is_error());
}

#[test]
fn a_deleted_file_takes_its_objects_along_even_if_it_was_broken() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.write("b.yaml", &config_map("b", "1"));
    place.load();
    place.write("a.yaml", "broken: [");
    assert_eq!(values(&place.load()), [("a", "1"), ("b", "1")]);
    std::fs::remove_file(place.path("a.yaml")).unwrap();
    let loaded = place.load();
    assert_eq!(values(&loaded), [("b", "1")]);
    assert!(loaded.changed && loaded.problems.is_empty());
    place.write("a.yaml", "broken: [");
    assert_eq!(values(&place.load()), [("b", "1")], "what is gone does not come back");
}

#[test]
fn an_object_keeps_its_age_when_its_file_is_renamed() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.load();
    std::fs::rename(place.path("a.yaml"), place.path("b.yaml")).unwrap();
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1")]);
    assert!(!loaded.changed);
}

#[test]
fn all_objects_of_a_load_have_one_age_and_written_ages_win() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.write("b.yaml", &config_map("b", "1"));
    place.write(
        "c.yaml",
        &config_map("c", "1").replace("name: c", "name: c, creationTimestamp: 2020-01-02T03:04:05Z"),
    );
    let loaded = place.load();
    let age = |name: &str| {
        let map = &loaded.snapshot.config_maps[&Key::new("default", name)];
        map.metadata.creation_timestamp.as_ref().unwrap().0
    };
    assert_eq!(age("a"), age("b"));
    assert_eq!(age("a").subsec_nanosecond(), 0);
    assert_eq!(age("c").to_string(), "2020-01-02T03:04:05Z");
}

#[test]
fn of_the_same_object_in_two_files_the_first_wins() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.write("b.yaml", &config_map("a", "2"));
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1")]);
    assert_eq!(loaded.problems.len(), 1);
    let dir = place.dir.path().display();
    assert_eq!(
        loaded.problems[0].to_string(),
        format!(
            "ConfigMap default/a in {dir}/b.yaml: the same object is in {dir}/a.yaml, which comes first and is used; \
             remove one"
        )
    );
    std::fs::remove_file(place.path("a.yaml")).unwrap();
    assert_eq!(values(&place.load()), [("a", "2")]);
}

#[test]
fn of_the_same_object_twice_in_a_file_the_first_wins() {
    let mut place = Place::new();
    let (one, two) = (config_map("a", "1"), config_map("a", "2"));
    place.write("a.yaml", &format!("{one}---\n{two}"));
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1")]);
    assert_eq!(
        place.problems(&loaded),
        [
            "ConfigMap default/a in a.yaml, document 2: the same object is in document 1, which comes first and is used; \
          remove one"
        ]
    );
    place.write("a.yaml", &format!("{two}---\n{one}---\n{one}"));
    assert_eq!(values(&place.load()), [("a", "2")]);
    place.write("a.yaml", &one);
    assert_eq!(values(&place.load()), [("a", "1")]);
}

#[test]
fn a_mounted_config_map_is_read_through_its_links() {
    let mut place = Place::new();
    for (version, value) in [("..v1", "1"), ("..v2", "2")] {
        std::fs::create_dir(place.path(version)).unwrap();
        place.write(&format!("{version}/a.yaml"), &config_map("a", value));
    }
    symlink("..v1", place.path("..data")).unwrap();
    symlink("..data/a.yaml", place.path("a.yaml")).unwrap();
    assert_eq!(values(&place.load()), [("a", "1")]);
    symlink("..v2", place.path("..data_tmp")).unwrap();
    std::fs::rename(place.path("..data_tmp"), place.path("..data")).unwrap();
    assert_eq!(values(&place.load()), [("a", "2")]);
}

#[test]
fn a_link_to_nowhere_is_named() {
    let mut place = Place::new();
    symlink("missing", place.path("a.yaml")).unwrap();
    let loaded = place.load();
    assert_eq!(
        place.problems(&loaded),
        [
            "a.yaml: the symbolic link is broken; remove it, or restore its target; nothing of this file is used"
        ]
    );
}

#[test]
fn a_path_that_does_not_exist_is_picked_up_once_it_appears() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("later.yaml");
    let mut files = Files::new(vec![path.clone(), dir.path().join("never")]);
    let loaded = files.load();
    assert!(loaded.changed);
    assert_eq!(loaded.problems.len(), 2);
    assert!(loaded.problems[0].is_error());
    assert_eq!(
        loaded.problems[0].message,
        "there is no such file or directory; it is read as soon as it appears"
    );
    std::fs::write(&path, config_map("a", "1")).unwrap();
    let loaded = files.load();
    assert_eq!(values(&loaded), [("a", "1")]);
    assert_eq!(loaded.problems.len(), 1);
}

#[test]
fn a_file_given_twice_is_read_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.conf");
    std::fs::write(&path, config_map("a", "1")).unwrap();
    std::fs::write(dir.path().join("b.yaml"), config_map("b", "1")).unwrap();
    let dotted = dir.path().join(".");
    let mut files =
        Files::new(vec![path.clone(), path, dotted, dir.path().join("b.yaml"), dir.path().to_owned()]);
    let loaded = files.load();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    assert_eq!(values(&loaded), [("a", "1"), ("b", "1")]);
}

#[test]
fn an_unreadable_file_keeps_its_objects() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.load();
    place.write("a.yaml", &config_map("a", "2"));
    // Root reads everything, so what cannot be read is something else: a file that is not UTF-8, and one too large.
    std::fs::write(place.path("a.yaml"), b"a: \xff").unwrap();
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1")]);
    assert_eq!(
        place.problems(&loaded),
        ["a.yaml: the file is not UTF-8 (at byte 3); save it as UTF-8; its last good object stays in use"]
    );
    let file = std::fs::File::create(place.path("a.yaml")).unwrap();
    file.set_len(65 * 1024 * 1024).unwrap();
    let loaded = place.load();
    assert_eq!(values(&loaded), [("a", "1")]);
    assert_eq!(
        place.problems(&loaded),
        [
            "a.yaml: the file has 68157440 bytes, more than the 67108864 that are read; split it into several; its last \
          good object stays in use"
        ]
    );
    place.write("a.yaml", &config_map("a", "3"));
    std::fs::set_permissions(place.path("a.yaml"), Permissions::from_mode(0o000)).unwrap();
    let loaded = place.load();
    if std::fs::read(place.path("a.yaml")).is_err() {
        assert_eq!(values(&loaded), [("a", "1")]);
        assert!(loaded.problems[0].message.contains("cannot be read"));
    }
    std::fs::set_permissions(place.path("a.yaml"), Permissions::from_mode(0o644)).unwrap();
    assert_eq!(values(&place.load()), [("a", "3")]);
}

#[test]
fn files_that_vanish_while_they_are_read_count_as_deleted() {
    let place = Place::new();
    let dir = place.dir.path().to_owned();
    let writer = std::thread::spawn(move || {
        for round in 0..200 {
            let path = dir.join(format!("{}.yaml", round % 7));
            std::fs::write(&path, config_map("a", "1")).unwrap();
            std::fs::remove_file(&path).unwrap();
        }
    });
    let mut files = Files::new(vec![place.dir.path().to_owned()]);
    while !writer.is_finished() {
        let loaded = files.load();
        assert!(
            loaded.problems.iter().all(|problem| problem.message.contains("the same object")),
            "{loaded:?}"
        );
    }
    writer.join().unwrap();
    assert!(files.load().snapshot.config_maps.is_empty());
}

#[test]
fn an_alias_bomb_is_refused_and_shared_parts_are_not() {
    let mut place = Place::new();
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g"].iter().zip(["a", "b", "c", "d", "e", "f"]) {
        bomb += &format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(", "));
    }
    place.write("a.yaml", &bomb);
    let mut list = "apiVersion: v1\nkind: List\nitems:\n".to_owned();
    for number in 0..2_000 {
        let data = if number == 0 { "&shared {v: '1'}" } else { "*shared" };
        list +=
            &format!("- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: m{number}}}, data: {data}}}\n");
    }
    place.write("b.yaml", &list);
    let loaded = place.load();
    assert_eq!(loaded.snapshot.config_maps.len(), 2_000);
    let problems = place.problems(&loaded);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("a.yaml: line ") && problems[0].contains("too large or too complex"),
        "{problems:?}"
    );
}

#[test]
fn a_file_that_is_being_written_keeps_what_it_held() {
    let mut place = Place::new();
    place.write("a.yaml", &config_map("a", "1"));
    place.load();
    place.write("a.yaml", "");
    let loaded = place.load();
    assert!(!loaded.changed && loaded.problems.is_empty());
    assert_eq!(values(&loaded), [("a", "1")]);
    place.write("a.yaml", &config_map("a", "2"));
    assert_eq!(values(&place.load()), [("a", "2")]);
    // Empty for good.
    place.write("a.yaml", "");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(place.path("a.yaml")).unwrap().set_modified(long_ago).unwrap();
    assert!(values(&place.load()).is_empty());
}
