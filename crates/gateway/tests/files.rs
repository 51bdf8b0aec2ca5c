//! What counts as a manifest, and what becomes of files that break or vanish.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Ask, Origin, Program, Scene, class, free_port, gateway, get, route_to, service, until};

/// Gateway `web` and Service `shop`; routes are the test's own.
fn base(port: u16, origin: &Origin) -> String {
    [class(), gateway("web", &[port]), service("shop", &[origin.address()])].concat()
}

fn serves(port: u16, path: &str) -> bool {
    Ask::get("x", path).try_send(port).is_ok_and(|response| response.status == 200)
}

#[test]
fn documents_lists_and_json_are_read() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    scene.write("two.yml", &(route_to("one", "/one", "shop") + &route_to("two", "/two", "shop")));
    let rule = |path: &str| {
        format!(
            r#"{{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {{"name": "json-{path}"}},
            "spec": {{"parentRefs": [{{"name": "web"}}], "rules": [{{"matches": [{{"path": {{"value": "/{path}"}}}}],
            "backendRefs": [{{"name": "shop", "port": 80}}]}}]}}}}"#
        )
    };
    scene.write("one.json", &rule("alone"));
    let list = format!(
        r#"{{"apiVersion": "v1", "kind": "List", "items": [{}, {}]}}"#,
        rule("first"),
        rule("second")
    );
    scene.write("list.json", &list);
    let listed = route_to("in-yaml", "/in-yaml", "shop").replace("---\n", "");
    let indented: String = listed.lines().map(|line| format!("  {line}\n")).collect();
    scene.write("list.yaml", &format!("apiVersion: v1\nkind: List\nitems:\n- {}", indented.trim_start()));
    let program = scene.serve();
    for path in ["/one", "/two", "/alone", "/first", "/second", "/in-yaml"] {
        assert_eq!(get(port, "x", path).status, 200, "{path}\n{}", program.text());
    }
}

#[test]
fn a_directory_means_its_manifests_and_nothing_else() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    scene.write("notes.txt", "this: [is no manifest");
    scene.write("route.yaml.bak", &route_to("old", "/old", "shop"));
    scene.write(".hidden.yaml", "editors: [leave these");
    fs::create_dir(scene.manifest("deeper.yaml")).unwrap();
    fs::write(scene.manifest("deeper.yaml").join("more.yaml"), route_to("deep", "/deep", "shop")).unwrap();
    let program = scene.serve();
    assert_eq!(["/old", "/deep"].map(|path| get(port, "x", path).status), [404, 404]);
    assert_eq!(program.count_lines(&["error"]) + program.count_lines(&["warning"]), 0, "{}", program.text());
    fs::rename(scene.manifest("route.yaml.bak"), scene.manifest("route.yaml")).unwrap();
    until("a file becomes a manifest by its name", || serves(port, "/old"));
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_objects() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    scene.write("route.yaml", &route_to("one", "/one", "shop"));
    let program = scene.serve();
    scene.write("route.yaml", &format!("{}\n  broken: [yaml", route_to("one", "/two", "shop")));
    let line = program.wait_for_line(&["error: ", "route.yaml", "line", "stays in use"]);
    assert!(!line.contains("\n"), "{line}");
    assert_eq!(["/one", "/two"].map(|path| get(port, "x", path).status), [200, 404]);
    // Others go on changing.
    scene.write("other.yaml", &route_to("other", "/other", "shop"));
    until("another file is read", || serves(port, "/other"));
    assert_eq!(program.count_lines(&["route.yaml", "stays in use"]), 1, "said once: {}", program.text());
    scene.write("route.yaml", &route_to("one", "/two", "shop"));
    until("the file is well again", || serves(port, "/two"));
    assert_eq!(get(port, "x", "/one").status, 404);
}

#[test]
fn a_deleted_file_takes_its_objects_along() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    scene.write("route.yaml", &(route_to("one", "/one", "shop") + &route_to("two", "/two", "shop")));
    let program = scene.serve();
    assert!(serves(port, "/one") && serves(port, "/two"));
    scene.remove("route.yaml");
    until("its routes are gone", || !serves(port, "/one") && !serves(port, "/two"));
    program.wait_for_line(&["HTTPRoute default/two: removed"]);
}

#[test]
fn a_configmap_that_is_mounted_is_followed() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    // As the kubelet does it: files are links through ..data, which is swapped as a whole.
    let version = |number: u32, route: &str| {
        let dir = scene.path("mount").join(format!("..2026_{number}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("route.yaml"), route).unwrap();
        let aside = scene.path("mount").join("..data_tmp");
        symlink(format!("..2026_{number}"), &aside).unwrap();
        fs::rename(aside, scene.path("mount").join("..data")).unwrap();
    };
    version(1, &route_to("one", "/one", "shop"));
    symlink("..data/route.yaml", scene.path("mount").join("route.yaml")).unwrap();
    let mount = scene.path("mount");
    let program = scene.start_with(&["-f", mount.to_str().unwrap()]);
    program.wait_for_line(&["Gateway default/web: reloaded 1 routes"]);
    assert!(serves(port, "/one"));
    version(2, &route_to("one", "/two", "shop"));
    fs::remove_dir_all(mount.join("..2026_1")).unwrap();
    until("the new version is served", || serves(port, "/two"));
    assert!(!serves(port, "/one"));
    assert_eq!(program.count_lines(&["error"]), 0, "{}", program.text());
}

#[test]
fn files_may_be_given_singly_and_appear_later() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new("");
    let [base_file, late] = ["base.conf", "late.yaml"].map(|name| scene.path(name));
    // A file that is named need not have a manifest's name.
    fs::write(&base_file, base(port, &shop)).unwrap();
    let mut command = Program::command();
    command.args(["serve", "--bind", "127.0.0.1", "-f"]).arg(&base_file).arg("-f").arg(&late);
    command.arg("--state-dir").arg(scene.path("state"));
    let program = Program::spawn(command);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    program.wait_for_line(&["late.yaml", "no such file", "as soon as it appears"]);
    // An editor writes in place, step by step.
    let text = route_to("one", "/one", "shop");
    let (start, rest) = text.split_at(60);
    fs::write(&late, start).unwrap();
    fs::write(&late, start.to_owned() + rest).unwrap();
    until("the file is read when it appears", || serves(port, "/one"));
    fs::remove_file(&late).unwrap();
    until("and gone when it is deleted", || !serves(port, "/one"));
}

#[test]
fn files_that_come_and_go_while_they_are_read_harm_nobody() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    scene.write("steady.yaml", &route_to("steady", "/steady", "shop"));
    let mut program = scene.serve();
    let flicker = route_to("flicker", "/flicker", "shop");
    for _ in 0..200 {
        scene.write("flicker.yaml", &flicker);
        scene.remove("flicker.yaml");
        assert_eq!(get(port, "x", "/steady").status, 200);
    }
    scene.write("flicker.yaml", &flicker);
    until("what stays is served", || serves(port, "/flicker"));
    assert!(program.is_running());
    assert_eq!(program.count_lines(&["error"]), 0, "{}", program.text());
}

#[test]
fn a_directory_may_be_replaced_as_a_whole() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&base(port, &shop));
    let extra = scene.path("extra");
    fs::create_dir(&extra).unwrap();
    fs::write(extra.join("route.yaml"), route_to("one", "/one", "shop")).unwrap();
    let program = scene.start_with(&["-f", extra.to_str().unwrap()]);
    program.wait_for_line(&["Gateway default/web: reloaded 1 routes"]);
    fs::remove_dir_all(&extra).unwrap();
    until("its routes are gone", || get(port, "x", "/one").status == 404);
    fs::create_dir(&extra).unwrap();
    fs::write(extra.join("route.yaml"), route_to("two", "/two", "shop")).unwrap();
    until("the new directory is read", || serves(port, "/two"));
}
