//! HTTP/1 of clients, on hyper.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::body::{AnswerBody, ClientBody};
use super::exchange::exchange;
use super::request::Client;
use super::response::{Closes, finish};
use crate::Shutdown;

/// For the head of a request, and between two requests.
const HEAD: Duration = Duration::from_secs(60);
/// The most bytes of a head, and its headers. Beyond: 431.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 128;

pub(crate) async fn serve<S>(stream: S, client: Arc<Client>, mut shutdown: watch::Receiver<Shutdown>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(answer(&client, request).await) }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(HEADERS)
        .max_header_size(HEAD_BYTES)
        .max_buf_size(HEAD_BYTES * 2)
        // A client that has said all it has to say still gets its answer.
        .half_close(true);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ends = async {
        if shutdown.wait_for(|asked| *asked > Shutdown::Run).await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        // How a connection ends is between its ends.
        _ = connection.as_mut() => return,
        () = ends => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

async fn answer(client: &Arc<Client>, mut request: Request<Incoming>) -> Response<AnswerBody> {
    let upgrade =
        request.headers().contains_key(http::header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let response = exchange(client, request.map(ClientBody::h1), upgrade).await;
    let closes = client.http.is_draining() || response.extensions().get::<Closes>().is_some();
    finish(response, closes)
}
