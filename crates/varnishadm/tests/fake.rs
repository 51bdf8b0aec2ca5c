//! How the connection behaves when varnishd does not, by the scripted varnishd.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use varnishadm::fake::{BANNER, Fake, Reply};
use varnishadm::{Admin, ChildState, Error, LoadState, ReverseListener, Secret};

const SOON: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(50);
/// Well after AT_ONCE, on a busy machine too.
const LATER: Duration = Duration::from_secs(1);

async fn listener() -> ReverseListener {
    ReverseListener::bind("127.0.0.1:0").await.unwrap()
}

async fn connect(fake: &Fake) -> Admin {
    let listener = listener().await;
    fake.connect(listener.local_addr());
    listener.accept(&Secret::new("hush"), SOON).await.unwrap()
}

async fn accept_error(fake: &Fake, timeout: Duration) -> Error {
    let listener = listener().await;
    fake.connect(listener.local_addr());
    listener.accept(&Secret::new("hush"), timeout).await.unwrap_err()
}

/// The connection is closed, and says so to later callers.
async fn assert_closed(admin: &Admin) {
    assert!(admin.is_closed());
    let error = admin.ping().await.unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }), "{error}");
    assert!(error.to_string().contains("await varnishd's next connection"), "{error}");
    assert!(error.is_disconnected());
}

#[tokio::test]
async fn with_and_without_authentication() {
    for fake in [Fake::new(), Fake::new().secret(&Secret::new("hush"))] {
        let admin = connect(&fake).await;
        assert_eq!(admin.greeting().version.as_deref(), Some("7.1.1"));
        admin.ping().await.unwrap();
        assert_eq!(fake.commands(), ["ping"]);
    }
}

#[tokio::test]
async fn a_wrong_secret_is_refused_with_a_hint_at_the_file() {
    let error = accept_error(&Fake::new().secret(&Secret::new("other")), SOON).await;
    assert!(matches!(error, Error::AuthenticationRefused { status: 500, .. }), "{error:?}");
    assert!(error.to_string().contains("-S"), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[tokio::test]
async fn a_greeting_that_is_none() {
    let error = accept_error(&Fake::new().greet_with(b"SSH-2.0-OpenSSH_9.2p1\r\n"), SOON).await;
    assert!(matches!(error, Error::Garbage { .. }), "{error:?}");
    assert!(error.to_string().contains("SSH-2.0"), "{error}");

    let error = accept_error(&Fake::new().greet_with(b"107 4       \nabc\n\n"), SOON).await;
    assert!(matches!(error, Error::Garbage { .. }), "{error:?}");

    let error = accept_error(&Fake::new().greet_with(b"300 0       \n\n"), SOON).await;
    assert!(matches!(error, Error::Garbage { .. }), "{error:?}");

    let error = accept_error(&Fake::new().greet_not_at_all(), LATER).await;
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn nobody_connects() {
    let listener = listener().await;
    let error = listener.accept(&Secret::new("hush"), AT_ONCE).await.unwrap_err();
    assert!(matches!(error, Error::NoConnection { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("-M {}", listener.local_addr())), "{error}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = ReverseListener::bind(&address).await.unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn after_a_stranger_the_next_connection_is_served() {
    let listener = listener().await;
    let stranger = TcpStream::connect(listener.local_addr()).await.unwrap();
    drop(stranger);
    let secret = Secret::new("hush");
    assert!(matches!(listener.accept(&secret, SOON).await, Err(Error::Closed { .. })));
    Fake::new().connect(listener.local_addr());
    listener.accept(&secret, SOON).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn death_in_mid_command_is_an_error_and_the_next_connection_works() {
    let deaths = [b"".as_slice(), b"200 ", b"200 5       \n", b"200 5       \nabc"];
    for bytes in deaths {
        let listener = listener().await;
        let secret = Secret::new("hush");
        let fake = Fake::new()
            .secret(&secret)
            .once("vcl.use", Reply::Die(bytes.to_vec()))
            .on("vcl.use", Reply::ok(""));
        fake.connect(listener.local_addr());
        let admin = listener.accept(&secret, SOON).await.unwrap();

        let error = admin.vcl_use("main_1").await.unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error:?}");
        assert!(error.to_string().contains("`vcl.use main_1`"), "{error}");
        assert_closed(&admin).await;
        assert!(admin.closed().await.contains("vcl.use main_1"));

        fake.connect(listener.local_addr());
        let admin = listener.accept(&secret, SOON).await.unwrap();
        admin.vcl_use("main_1").await.unwrap();
    }
}

#[tokio::test]
async fn death_between_two_commands_is_noticed_at_once() {
    let listener = listener().await;
    let session = Fake::new().connect(listener.local_addr());
    let admin = listener.accept(&Secret::new("hush"), SOON).await.unwrap();
    assert!(!admin.is_closed());
    session.abort();
    assert_eq!(admin.closed().await, "varnishd closed it between two commands");
    assert_closed(&admin).await;
}

#[tokio::test]
async fn a_timeout_closes_the_connection_so_that_answers_stay_in_step() {
    let late = Reply::Late { status: 200, body: "late".into(), after: LATER };
    let admin = connect(&Fake::new().on("vcl.list", late)).await;
    let error = admin.with_timeout(AT_ONCE).vcl_list().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { after: AT_ONCE, .. }), "{error:?}");
    assert_closed(&admin).await;
    tokio::time::sleep(LATER + AT_ONCE).await;
    assert_closed(&admin).await;

    let admin = connect(&Fake::new().on("status", Reply::Silence)).await.with_timeout(AT_ONCE);
    assert!(matches!(admin.status().await, Err(Error::Timeout { .. })));
    assert_closed(&admin).await;
}

#[tokio::test]
async fn garbage_and_too_much_close_the_connection() {
    for (bytes, expected) in [
        (b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), "HTTP/1.1 200"),
        (b"200 3       \nabcd\n".as_slice(), "end in \\n, not d"),
        (b"200 99999999\n".as_slice(), "announced 99999999 bytes"),
    ] {
        let admin = connect(&Fake::new().on("banner", Reply::Raw(bytes.to_vec()))).await;
        let error = admin.banner().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_closed(&admin).await;
    }
}

#[tokio::test]
async fn an_answer_too_many_closes_the_connection() {
    let twice = b"200 4       \nPONG\n200 4       \nPONG\n".to_vec();
    let admin = connect(&Fake::new().on("ping", Reply::Raw(twice))).await;
    admin.ping().await.unwrap();
    assert!(admin.closed().await.contains("unexpected message"));
    assert_closed(&admin).await;
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let body: String = (0..600_000).map(|line| format!("line {line}\n")).collect();
    assert!(body.len() > 6 << 20);
    let admin = connect(&Fake::new().on("vcl.show", Reply::ok(&body))).await;
    assert_eq!(admin.command(&["vcl.show", "main_1"]).await.unwrap().body, body);

    let details = r#"{"type": "backend", "admin_health": "probe", "probe_message": [3, 8, "healthy"], "last_change": 1.5}"#;
    let backends: Vec<_> = (0..20_000).map(|number| format!("\"main.b{number}\": {details}")).collect();
    let body = format!("[ 3, [\"backend.list\", \"-j\"], 1.0,\n  {{\n{}\n  }}\n]\n", backends.join(",\n"));
    let admin = connect(&Fake::new().on("backend.list", Reply::ok(body))).await;
    let list = admin.backend_list().await.unwrap();
    assert_eq!(list.len(), 20_000);
    assert_eq!(list[19_999].name, "main.b19999");
}

#[tokio::test]
async fn answers_in_small_packets_are_put_together() {
    let body = "Child in state running\nü";
    let pieces =
        |size| Reply::Pieces { status: 200, body: body.into(), size, pause: Duration::from_millis(1) };
    let fake = (1..20).fold(Fake::new(), |fake, size| fake.once("status", pieces(size)));
    let admin = connect(&fake).await;
    for _ in 1..20 {
        assert_eq!(admin.command(&["status"]).await.unwrap().body, body);
    }
}

#[tokio::test]
async fn large_texts_go_out_whole() {
    let text: String = (0..200_000).map(|line| format!("# \"{line}\" \\ EOF\n")).collect();
    let fake = Fake::new().on("vcl.inline", Reply::ok("VCL compiled.\n"));
    let admin = connect(&fake).await;
    assert_eq!(admin.vcl_inline("main_1", &text).await.unwrap(), "VCL compiled.\n");
    assert_eq!(fake.words(), [["vcl.inline", "main_1", &text]]);
}

#[tokio::test]
async fn a_refusal_keeps_the_connection_and_the_whole_text() {
    let message = "Message from VCC-compiler:\nSymbol not found: 'foo'\n('/main.vcl' Line 4 Pos 16)\n";
    let fake = Fake::new().on("vcl.load", Reply::answer(106, message));
    let admin = connect(&fake).await;
    let error = admin.vcl_load("a", "/main.vcl".as_ref(), LoadState::Warm).await.unwrap_err();
    assert_eq!(error.status(), Some(106));
    assert!(!error.is_disconnected());
    let Error::Status { command, text, .. } = error else { unreachable!() };
    assert_eq!((command.as_str(), text.as_str()), ("vcl.load a /main.vcl warm", message));
    admin.ping().await.unwrap();
}

#[tokio::test]
async fn a_list_that_varnishd_cut_short_is_not_taken_for_whole() {
    let fake = Fake::new().on("vcl.list", Reply::answer(201, "[ 2, [\"vcl.list\", \"-j\"], 1.0"));
    let error = connect(&fake).await.vcl_list().await.unwrap_err();
    assert!(matches!(error, Error::Truncated { .. }), "{error:?}");
    assert!(error.to_string().contains("cli_limit"), "{error}");
}

#[tokio::test]
async fn many_tasks_share_a_connection_and_each_gets_its_own_answer() {
    let fake = Fake::new().respond(|words| Some(Reply::ok(words.join("-"))));
    let admin = connect(&fake).await;
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let admin = admin.clone();
            tokio::spawn(async move {
                let number = number.to_string();
                let answer = admin.command(&["echo", &number]).await.unwrap();
                assert_eq!(answer.body, format!("echo-{number}"));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_caller_that_leaves_disturbs_nobody() {
    let late = Reply::Late { status: 200, body: "late".into(), after: LATER };
    let fake = Fake::new().on("vcl.show", late);
    let admin = connect(&fake).await;
    // The first is sent and runs on; the second waits behind it and is never sent.
    let (first, second) = tokio::join!(
        tokio::time::timeout(AT_ONCE, admin.command(&["vcl.show", "first"])),
        tokio::time::timeout(AT_ONCE, admin.command(&["vcl.show", "second"])),
    );
    assert!(first.is_err() && second.is_err());
    admin.ping().await.unwrap();
    assert_eq!(fake.commands(), ["vcl.show first", "ping"]);
}

#[tokio::test]
async fn those_that_wait_when_the_connection_fails_hear_of_it() {
    let admin = connect(&Fake::new().on("vcl.use", Reply::Silence)).await;
    let brief = admin.with_timeout(AT_ONCE);
    let start = Instant::now();
    let (first, second, third) = tokio::join!(brief.vcl_use("a"), admin.vcl_use("b"), admin.ping());
    assert!(matches!(first, Err(Error::Timeout { .. })), "{first:?}");
    for (result, command) in [(second, "vcl.use b"), (third, "ping")] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Disconnected { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("`{command}`")), "{error}");
        assert!(error.to_string().contains("did not answer `vcl.use a`"), "the cause: {error}");
    }
    assert!(start.elapsed() < SOON);
}

#[tokio::test]
async fn the_connection_closes_with_its_last_handle() {
    let listener = listener().await;
    let session = Fake::new().connect(listener.local_addr());
    let admin = listener.accept(&Secret::new("hush"), SOON).await.unwrap();
    let other = admin.with_timeout(SOON);
    drop(admin);
    other.ping().await.unwrap();
    assert!(!session.is_finished());
    drop(other);
    tokio::time::timeout(SOON, session).await.unwrap().unwrap();
}

#[tokio::test]
async fn answers_are_typed() {
    let fake = Fake::new()
        .banner(&format!("{BANNER}Type 'start' to launch worker process.\n"))
        .once("panic.show", Reply::answer(300, "Child has not panicked or panic has been cleared"))
        .on("panic.show", Reply::ok("Panic at: …"))
        .once("panic.clear", Reply::ok(""))
        .on("panic.clear", Reply::answer(300, "No panic to clear"))
        .once("status -j", Reply::ok("[ 2, [\"status\", \"-j\"], 1.0, \"died, (restarting)\"\n]\n"))
        .once("status -j", Reply::ok("[ 2, [\"status\", \"-j\"], 1.0, \"dreaming\"\n]\n"))
        .on("status -j", Reply::ok("[ 2, [\"status\", \"-j\"], 1.0\n]\n"))
        .on("ban", Reply::ok(""));
    let admin = connect(&fake).await;
    assert!(!admin.greeting().child_running);
    assert_eq!(admin.panic_show().await.unwrap(), None);
    assert_eq!(admin.panic_show().await.unwrap().as_deref(), Some("Panic at: …"));
    assert!(admin.panic_clear().await.unwrap());
    assert!(!admin.panic_clear().await.unwrap());
    assert_eq!(admin.status().await.unwrap(), ChildState::Died);
    assert!(admin.status().await.unwrap_err().to_string().contains("dreaming"));
    assert!(matches!(admin.status().await, Err(Error::Answer { .. })));

    admin.ban(r"obj.http.x-url ~ ^/a\.b  &&  obj.http.x-host == ü").await.unwrap();
    let ban = fake.words().pop().unwrap();
    assert_eq!(ban, ["ban", "obj.http.x-url", "~", r"^/a\.b", "&&", "obj.http.x-host", "==", "ü"]);
}

#[tokio::test]
async fn what_must_not_be_sent_is_not() {
    let fake = Fake::new();
    let admin = connect(&fake).await;
    for result in [
        admin.vcl_discard("*").await,
        admin.vcl_discard("main_[12]").await,
        admin.ban("obj.http.x == a b").await,
        admin.ban("obj.status == 1 && obj.http.x << y").await,
        admin.vcl_use("a\0b").await,
        admin.command(&["vcl.inline", "x", "<<", "EOF"]).await.map(drop),
    ] {
        assert!(matches!(result, Err(Error::Argument { .. })), "{result:?}");
    }
    assert!(fake.commands().is_empty());
    admin.ping().await.unwrap();
}
