//! One request over one connection, and its whole response.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Exchange(#[from] hyper::Error),
    /// The body of the response is too large, or broke off.
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends `request` over `stream`, and reads the response with up to `largest` bytes of body. The caller sets `Host`, limits the time, and
/// connects. The connection is closed afterwards.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request<Full<Bytes>>,
    largest: usize,
) -> Result<Response<Bytes>, Error> {
    request.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = Driver(tokio::spawn(async move { drop(connection.await) }));
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, largest).collect().await.map_err(Error::Body)?;
    drop(driver);
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// Closes the connection also where the caller stops waiting.
struct Driver(tokio::task::JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use tokio::net::UnixStream;

    use super::*;
    use crate::server;

    #[tokio::test]
    async fn a_response_is_read_whole_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let serving = tokio::spawn(server::serve(
            listener,
            server::Limits::PROBES,
            |request: server::Incoming| async move {
                let text = format!("{} {}", request.method(), request.uri().path());
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            },
        ));
        let ask = async |largest| {
            let stream = UnixStream::connect(&path).await.unwrap();
            let request = Request::post("/a").header("Host", "localhost").body(Full::default()).unwrap();
            exchange(stream, request, largest).await
        };
        let response = ask(100).await.unwrap();
        assert_eq!((response.status(), &response.body()[..]), (StatusCode::ACCEPTED, b"POST /a".as_slice()));
        assert!(matches!(ask(3).await, Err(Error::Body(_))));
        serving.abort();
    }
}
