//! A tiny origin for the demo and the tests: says its name, and what it was asked.
//!
//! `origin NAME ADDRESS:PORT`; it ends with its parent's standard input, so that a script cannot leave it behind.

use std::convert::Infallible;
use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: origin NAME ADDRESS:PORT".into());
    };
    let (name, served) = (Arc::<str>::from(name), Arc::new(AtomicU64::new(0)));
    let listener = TcpListener::bind(&address).await.map_err(|e| format!("{address}: {e}"))?;
    let parent = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (name, served) = (Arc::clone(&name), Arc::clone(&served));
            tokio::spawn(async move {
                let answer = service_fn(|request: Request<Incoming>| {
                    let (asked, body) = request.into_parts();
                    let response = answer(&name, served.fetch_add(1, Ordering::Relaxed) + 1, &asked);
                    async move {
                        // To the end: a client that is answered while still sending sees a broken connection.
                        let _ = body.collect().await;
                        Ok::<_, Infallible>(response)
                    }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = parent => {}
    }
    Ok(())
}

fn answer(name: &str, count: u64, asked: &Parts) -> Response<Full<Bytes>> {
    let mut body = format!("Hello from {name}, request {count}\n{} {}\n", asked.method, asked.uri);
    for (header, value) in &asked.headers {
        body.push_str(&format!("{header}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let headers = response.headers_mut();
    headers.insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/plain"));
    if let Ok(name) = hyper::header::HeaderValue::from_str(name) {
        headers.insert("x-origin", name);
    }
    response
}
