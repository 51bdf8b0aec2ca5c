//! The front alone, for measurements: `terminate PORT CERTIFICATE KEY SOCKET` ends TLS and hands on to a unix socket.
#![allow(clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::sync::Arc;

use certificate::{Pair, Pem};
use front::{Config, Host, Listener, Shutdown, run};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: terminate PORT CERTIFICATE KEY SOCKET");
    let port = next()?.parse()?;
    let pem = Pem { chain: std::fs::read(next()?)?, key: std::fs::read(next()?)? };
    let upstream = PathBuf::from(next()?);
    let hosts = vec![Host::terminate(None, vec![Arc::new(Pair::new(&pem)?)])];
    let listener = Listener { socket: format!("https-{port}"), address: None, port, hosts };
    let (_config, configs) =
        watch::channel(Arc::new(Config { listeners: vec![listener], ..Config::default() }));
    let (shutdown, shutdowns) = watch::channel(Shutdown::Run);
    let serving = tokio::spawn(run(configs, upstream, |event| eprintln!("{event:?}"), shutdowns));
    tokio::signal::ctrl_c().await?;
    shutdown.send_replace(Shutdown::Now);
    serving.await?;
    Ok(())
}
