//! A gRPC server: each call is answered with its own message. HTTP/2 without TLS.

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{SendResponse, handshake};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

pub(crate) fn serve(address: &str) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            // A connection that fails is the load's to report.
            tokio::spawn(async { connection(stream).await.ok() });
        }
    })
}

async fn connection(stream: TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut calls = handshake(stream).await?;
    while let Some(call) = calls.accept().await {
        let (request, answer) = call?;
        tokio::spawn(async { unary(request, answer).await.ok() });
    }
    Ok(())
}

async fn unary(request: Request<RecvStream>, mut answer: SendResponse<Bytes>) -> Result<(), Failure> {
    let mut message = Vec::new();
    let mut body = request.into_body();
    while let Some(data) = body.data().await.transpose()? {
        message.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    let head = Response::builder().header("content-type", "application/grpc").body(())?;
    let mut sending = answer.send_response(head, false)?;
    sending.send_data(message.into(), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    Ok(sending.send_trailers(trailers)?)
}
