//! Against the varnishd that is installed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    missing_debug_implementations,
    reason = "helpers of tests"
)]

use std::time::{Duration, Instant};

use varnishadm::{ChildState, Error, LoadState, Secret, Temperature, VclState, VclStatus};

#[path = "real/varnishd.rs"]
mod varnishd;

use varnishd::{SOON, Varnishd};

const GOOD: &str = "vcl 4.1;\nbackend default none;\n";

/// The error is in line 5.
const BAD: &str = "vcl 4.1;\n\nbackend default none;\nsub vcl_recv {\n  set req.http.x = nonsense;\n}\n";

#[tokio::test]
async fn it_authenticates_and_introduces_itself() {
    let (varnishd, admin) = Varnishd::start().await;
    let greeting = admin.greeting();
    let version = greeting.version.as_deref().unwrap();
    assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
    assert!(greeting.platform.as_deref().unwrap().starts_with("Linux,"));
    assert!(!greeting.child_running);
    assert_eq!(&admin.banner().await.unwrap(), greeting);
    assert_eq!(admin.pids().await.unwrap().manager, varnishd.pid());
    assert_eq!(admin.pids().await.unwrap().child, None);
    admin.ping().await.unwrap();
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_the_right_one_taken_at_the_next_try() {
    let varnishd = Varnishd::launch().await;
    let error = varnishd.listener.accept(&Secret::generate().unwrap(), SOON).await.unwrap_err();
    assert!(matches!(error, Error::AuthenticationRefused { .. }), "{error:?}");
    assert!(error.to_string().contains("-S"), "{error}");
    varnishd.accept().await.ping().await.unwrap();
}

#[tokio::test]
async fn a_secret_that_was_written_anew_counts_at_the_next_try() {
    let (varnishd, admin) = Varnishd::start().await;
    drop(admin);
    let secret = Secret::generate().unwrap();
    secret.write(&varnishd.secret_file()).unwrap();
    varnishd.listener.accept(&secret, SOON).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn the_life_of_a_vcl() {
    let (varnishd, admin) = Varnishd::start().await;
    assert_eq!(admin.vcl_list().await.unwrap(), []);
    assert_eq!(admin.start().await.unwrap_err().status(), Some(300), "no VCL, no child");

    admin.vcl_inline("inline", GOOD).await.unwrap();
    let path = varnishd.file("a file.vcl", GOOD);
    admin.vcl_load("file", &path, LoadState::Cold).await.unwrap();
    admin.vcl_use("inline").await.unwrap();
    let list = admin.vcl_list().await.unwrap();
    assert_eq!(list[0].busy, None, "unknown to the manager");

    admin.start().await.unwrap();
    let list = admin.vcl_list().await.unwrap();
    let names: Vec<_> = list.iter().map(|vcl| vcl.name.as_str()).collect();
    assert_eq!(names, ["inline", "file"]);
    assert_eq!((&list[0].status, &list[0].state), (&VclStatus::Active, &VclState::Auto));
    assert_eq!(list[0].temperature, Temperature::Warm);
    assert!(list[0].busy.is_some());
    assert_eq!((&list[1].status, &list[1].state), (&VclStatus::Available, &VclState::Cold));
    assert_eq!(list[1].temperature, Temperature::Cold);

    assert_eq!(admin.vcl_use("file").await.unwrap_err().status(), Some(300), "it is cold");
    admin.vcl_state("file", LoadState::Auto).await.unwrap();
    admin.vcl_use("file").await.unwrap();
    admin.vcl_label("label", "inline").await.unwrap();
    let list = admin.vcl_list().await.unwrap();
    assert_eq!(list[0].labels, 1);
    let label = list.iter().find(|vcl| vcl.name == "label").unwrap();
    assert_eq!(label.state, VclState::Label);
    assert_eq!(label.label.as_ref().unwrap().name, "inline");

    admin.vcl_discard("label").await.unwrap();
    admin.vcl_discard("inline").await.unwrap();
    assert!(admin.vcl_discard("file").await.is_err(), "it is in use");
    assert!(admin.vcl_discard("nothing").await.is_err());
    let list = admin.vcl_list().await.unwrap();
    assert!(list.iter().all(|vcl| vcl.name == "file" || vcl.status == VclStatus::Discarded), "{list:?}");
}

#[tokio::test]
async fn the_compilers_message_comes_whole() {
    let (varnishd, admin) = Varnishd::start().await;
    let path = varnishd.file("bad.vcl", BAD);
    let inline = admin.vcl_inline("inline", BAD).await.unwrap_err();
    let loaded = admin.vcl_load("loaded", &path, LoadState::Auto).await.unwrap_err();
    for (error, source) in [(inline, "<vcl.inline>"), (loaded, path.to_str().unwrap())] {
        let Error::Status { status, text, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*status, 106);
        assert!(text.contains(&format!("'{source}' Line 5 Pos 20")), "{text}");
        assert!(text.contains("set req.http.x = nonsense;"), "{text}");
        assert!(text.contains("VCL compilation failed"), "{text}");
        assert!(!error.is_disconnected());
    }
    assert_eq!(admin.vcl_list().await.unwrap(), [], "none is left behind");
    assert!(admin.vcl_load("gone", "/does/not/exist".as_ref(), LoadState::Auto).await.is_err());
    assert!(admin.vcl_inline("5 bad name", GOOD).await.is_err());
}

#[tokio::test]
async fn texts_arrive_as_they_are_and_large_answers_come_whole() {
    let (_varnishd, admin) = Varnishd::start().await;
    // 400 KB, eight times what varnishd answers by default.
    let lines: String =
        (0..10_000).map(|line| format!("# {line} \"ü\" \\ << END_OF_TEXT_0 EOF END\n")).collect();
    let text = format!("{GOOD}{lines}# END_OF_TEXT");
    admin.vcl_inline("large", &text).await.unwrap();
    admin.vcl_use("large").await.unwrap();
    admin.start().await.unwrap();
    let shown = admin.command(&["vcl.show", "large"]).await.unwrap();
    assert_eq!(shown.status, 200);
    assert!(shown.body.len() > 300_000);
    assert_eq!(shown.body.trim_end(), text);
}

#[tokio::test]
async fn parameters() {
    let (_varnishd, admin) = Varnishd::start().await;
    assert_eq!(admin.param_set("default_ttl", "42").await.unwrap(), "");
    assert_eq!(admin.param_show("default_ttl").await.unwrap().parse::<f64>().unwrap(), 42.0);
    assert_eq!(admin.param_show("cli_limit").await.unwrap(), varnishadm::ANSWER_LIMIT.to_string());
    assert_eq!(admin.param_show("pool_req").await.unwrap(), "10,100,10");
    assert_eq!(admin.param_show("auto_restart").await.unwrap(), "on");
    assert_ne!(admin.param_set("cc_command", "true").await.unwrap(), "", "not before the next VCL, it says");

    // The vertical tab arrives too, but varnishd shows it as \v, which is not JSON.
    let all: String = (1..=255_u8)
        .filter(|byte| *byte != 0x0b)
        .map(char::from)
        .chain("  \u{fffd}\"\\n<< ".chars())
        .collect();
    for value in [all.as_str(), "", "a b", "\"a\" \"b\"", "\\", "<<", "-j", "# no comment"] {
        admin.param_set("cc_command", value).await.unwrap();
        assert_eq!(admin.param_show("cc_command").await.unwrap(), value);
    }

    for (name, value) in [("default_ttl", "soon"), ("no_such_parameter", "1"), ("thread_pools", "-1")] {
        let error = admin.param_set(name, value).await.unwrap_err();
        assert_eq!(error.status(), Some(106), "{error}");
    }
    assert_eq!(admin.param_show("no_such_parameter").await.unwrap_err().status(), Some(106));
}

#[tokio::test]
async fn what_it_shows_of_parameters_it_also_takes() {
    let (_varnishd, admin) = Varnishd::start().await;
    let all = admin.command(&["param.show"]).await.unwrap().body;
    let names = all.lines().filter_map(|line| line.split_whitespace().next());
    let mut count = 0;
    for name in names {
        match admin.param_show(name).await {
            Ok(value) => {
                admin.param_set(name, &value).await.unwrap();
                assert_eq!(admin.param_show(name).await.unwrap(), value, "{name}");
                count += 1;
            }
            Err(error) => assert!(error.to_string().contains("this platform"), "{name}: {error}"),
        }
    }
    assert!(count > 50, "{count}");
}

#[tokio::test]
async fn the_child_starts_stops_and_panics() {
    let (_varnishd, admin) = Varnishd::start().await;
    assert_eq!(admin.status().await.unwrap(), ChildState::Stopped);
    admin.vcl_inline("good", GOOD).await.unwrap();
    admin.vcl_use("good").await.unwrap();
    admin.start().await.unwrap();
    assert_eq!(admin.status().await.unwrap(), ChildState::Running);
    assert!(admin.banner().await.unwrap().child_running);
    let first = admin.pids().await.unwrap().child.unwrap();
    assert!(admin.start().await.is_err(), "it runs");

    assert_eq!(admin.panic_show().await.unwrap(), None);
    assert!(!admin.panic_clear().await.unwrap());
    assert_eq!(admin.command(&["debug.panic.worker"]).await.unwrap().status, 400);
    let start = Instant::now();
    // The manager collects the panic when it has seen the child die, and starts another.
    let panic = loop {
        match admin.panic_show().await.unwrap() {
            Some(panic) => break panic,
            None => assert!(start.elapsed() < SOON),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(panic.contains("You asked for it"), "{panic}");
    while admin.status().await.unwrap() != ChildState::Running
        || admin.pids().await.unwrap().child == Some(first)
    {
        assert!(start.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(admin.panic_clear().await.unwrap());
    assert_eq!(admin.panic_show().await.unwrap(), None);

    admin.stop().await.unwrap();
    assert_eq!(admin.status().await.unwrap(), ChildState::Stopped);
    assert!(admin.stop().await.is_err(), "it does not run");
    assert_eq!(admin.backend_list().await.unwrap_err().status(), Some(101), "the child would know");
}

#[tokio::test]
async fn bans_and_backends() {
    let (_varnishd, admin) = Varnishd::start().await;
    let vcl = "vcl 4.1;\n\
        import directors;\n\
        backend probed { .host = \"127.0.0.1\"; .port = \"1\"; .probe = { .threshold = 3; .window = 6; } }\n\
        backend plain { .host = \"127.0.0.1\"; .port = \"1\"; }\n\
        sub vcl_init { new both = directors.round_robin(); both.add_backend(probed); both.add_backend(plain); }\n\
        sub vcl_recv { set req.backend_hint = both.backend(); }\n";
    admin.vcl_inline("main", vcl).await.unwrap();
    admin.vcl_inline("other", "vcl 4.1;\nbackend default { .host = \"127.0.0.1\"; }\n").await.unwrap();
    admin.vcl_use("main").await.unwrap();
    admin.start().await.unwrap();

    let list = admin.backend_list().await.unwrap();
    let find = |name: &str| list.iter().find(|backend| backend.name == name).unwrap();
    let probed = find("main.probed");
    assert_eq!((probed.kind.as_str(), probed.admin_health.as_str()), ("backend", "probe"));
    assert_eq!(probed.probe_window, 6);
    assert!(!probed.healthy);
    assert!(find("main.plain").healthy);
    assert!(find("main.plain").last_change > 1e9);
    assert_eq!(find("main.both").kind, "round-robin");
    assert!(!list.iter().any(|backend| backend.name.starts_with("other.")));
    let all = admin.backend_list_matching("*.*").await.unwrap();
    assert!(all.iter().any(|backend| backend.name == "other.default"), "{all:?}");
    assert!(all.len() > list.len());
    assert_eq!(admin.backend_list_matching("nothing.*").await.unwrap(), []);

    let bans = [r"obj.http.x-url ~ ^/a\.b\x20", "obj.status == 200 && obj.http.x == \"ü\""];
    for ban in bans {
        admin.ban(ban).await.unwrap();
        // One by one: an empty cache soon forgets all but the last.
        let listed = admin.command(&["ban.list"]).await.unwrap().body;
        assert!(listed.contains(ban), "{listed}");
    }
    assert_eq!(admin.ban("obj.http.x ~ [").await.unwrap_err().status(), Some(106));
    assert_eq!(admin.ban("no.such.field == 1").await.unwrap_err().status(), Some(106));
}

#[tokio::test]
async fn it_comes_back_after_a_timeout() {
    let (varnishd, admin) = Varnishd::start().await;
    let error = admin.with_timeout(Duration::from_millis(1)).vcl_inline("slow", GOOD).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(admin.is_closed());
    let again = varnishd.accept().await;
    again.ping().await.unwrap();
    // The command had been sent, and ran to its end.
    assert_eq!(again.vcl_list().await.unwrap()[0].name, "slow");
}

#[tokio::test]
async fn killed_in_mid_command() {
    let (mut varnishd, admin) = Varnishd::start().await;
    let backends: String = (0..400)
        .map(|number| format!("backend b{number} {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n", number + 1))
        .collect();
    let uses: String = (0..400).map(|number| format!("set req.backend_hint = b{number};\n")).collect();
    let slow = format!("vcl 4.1;\n{backends}sub vcl_recv {{\n{uses}}}\n");
    let other = admin.clone();
    let loading = tokio::spawn(async move { other.vcl_inline("slow", &slow).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!loading.is_finished());
    varnishd.kill_manager();

    let error = loading.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    assert!(error.to_string().contains("vcl.inline slow"), "{error}");
    let error = admin.ping().await.unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }), "{error:?}");
}

#[tokio::test]
async fn killed_between_two_commands() {
    let (mut varnishd, admin) = Varnishd::start().await;
    admin.ping().await.unwrap();
    varnishd.kill_manager();
    tokio::time::timeout(SOON, admin.closed()).await.unwrap();
    let error = admin.ping().await.unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }), "{error:?}");
    assert!(error.to_string().contains("next connection"), "{error}");
}
