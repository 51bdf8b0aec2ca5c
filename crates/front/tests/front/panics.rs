//! A listener whose task panics is open again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use front::{Config, Event, Host, Listener, Shutdown};
use tokio::net::TcpStream;
use tokio::sync::watch;

#[tokio::test]
async fn a_listener_that_panics_is_opened_again() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let listener = Listener {
        socket: "https-443".to_owned(),
        address: Some([127, 0, 0, 1].into()),
        port,
        hosts: vec![Host::refuse(None)],
    };
    let (_config, known) =
        watch::channel(Arc::new(Config { listeners: vec![listener], ..Config::default() }));
    let (stop, shutdown) = watch::channel(Shutdown::Run);
    let opened = Arc::new(AtomicUsize::new(0));
    let (open, again) = watch::channel(false);
    let counted = Arc::clone(&opened);
    let tell = move |event: Event| {
        if matches!(event, Event::Listening { .. }) {
            // In the listener's own task.
            assert!(counted.fetch_add(1, Ordering::SeqCst) > 0, "a bug");
            open.send_replace(true);
        }
    };
    let running = tokio::spawn(front::run(known, "/nowhere.sock".into(), tell, shutdown));
    let mut again = again;
    tokio::time::timeout(Duration::from_secs(30), again.wait_for(|open| *open)).await.unwrap().unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 2);
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stop.send_replace(Shutdown::Now);
    running.await.unwrap();
}
