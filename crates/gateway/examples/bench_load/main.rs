//! Origin and load generator of `scripts/bench`, for what wrk and h2load do not do.
//!
//! ```text
//! bench_load origin    ADDRESS:PORT
//! bench_load grpc      ADDRESS:PORT
//! bench_load websocket ADDRESS:PORT HOST PATH CONNECTIONS SECONDS
//! bench_load rate      ADDRESS:PORT HOST PATH CONNECTIONS REQUESTS_PER_SECOND SECONDS
//! bench_load download  ADDRESS:PORT HOST PATH BYTES
//! bench_load upload    ADDRESS:PORT HOST PATH BYTES
//! bench_load udp       ADDRESS:PORT HOST PATH SOCKETS SECONDS
//! ```
//!
//! A load prints one line of JSON. `poll` with its timeouts of nanoseconds is used instead of tokio, whose timers have milliseconds.
#![allow(clippy::print_stdout, reason = "The result goes to standard output.")]

mod bulk;
mod grpc;
mod origin;
mod rate;
mod udp;
mod websocket;
mod wire;

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use serde_json::Value;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result: Value = match words[..] {
        ["origin", address] => return origin::serve(address),
        ["grpc", address] => return grpc::serve(address),
        ["websocket", address, host, path, connections, seconds] => {
            websocket::load(&wire::Target { address, host, path }, number(connections)?, number(seconds)?)?
        }
        ["rate", address, host, path, connections, rate, seconds] => rate::load(
            &wire::Target { address, host, path },
            number(connections)?,
            number(rate)?,
            number(seconds)?,
        )?,
        ["download", address, host, path, bytes] => {
            bulk::download(&wire::Target { address, host, path }, number(bytes)?)?
        }
        ["upload", address, host, path, bytes] => {
            bulk::upload(&wire::Target { address, host, path }, number(bytes)?)?
        }
        ["udp", address, _, _, sockets, seconds] => udp::load(address, number(sockets)?, number(seconds)?)?,
        _ => {
            return Err(
                "usage: bench_load origin|grpc|websocket|rate|download|upload|udp ADDRESS:PORT …".into()
            );
        }
    };
    println!("{result}");
    Ok(())
}

fn number<T: FromStr<Err: Display>>(word: &str) -> Result<T, Failure> {
    word.parse().map_err(|e| format!("{word} is not a number: {e}").into())
}
