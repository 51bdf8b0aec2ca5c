//! A gRPC server and client: tonic's framing, statuses and metadata, on connections of the h2 crate. Messages are text, without protobuf.

use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::{Stream, StreamExt, stream};
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http_body::Frame;
use http_body_util::BodyExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{self, ClientStreamingService, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use super::{Leaf, PATIENCE, tls};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let all = from.copy_to_bytes(from.remaining());
        String::from_utf8(all.to_vec()).map(Some).map_err(|_| Status::data_loss("no text"))
    }
}

/// What comes on a stream of HTTP/2.
pub(crate) struct Received(RecvStream);

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(data) = ready!(self.0.poll_data(cx)) {
            return Poll::Ready(Some(data.map(|data| {
                let _ = self.0.flow_control().release_capacity(data.len());
                Frame::data(data)
            })));
        }
        let trailers = ready!(self.0.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }
}

async fn send(mut body: Body, mut to: SendStream<Bytes>) {
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return to.send_reset(h2::Reason::CANCEL) };
        let sent = match frame.into_data() {
            Ok(data) => to.send_data(data, false),
            Err(frame) => {
                let _ = to.send_trailers(frame.into_trailers().unwrap_or_default());
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = to.send_data(Bytes::new(), true);
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;
type Messages = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

/// A backend with `test.Echo`: `Say` answers once, `Sum` when the client has ended, `Count` several times, `Chat` each message, `Wait` late.
pub(crate) struct Calls {
    pub(crate) address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Calls {
    pub(crate) fn new(name: &'static str) -> Self {
        Self::listen(name, None)
    }

    pub(crate) fn over_tls(name: &'static str, leaf: &Leaf) -> Self {
        let chain = CertificateDer::pem_slice_iter(leaf.chain.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::listen(name, Some(TlsAcceptor::from(Arc::new(config))))
    }

    fn listen(name: &'static str, tls: Option<TlsAcceptor>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        None => connection(name, stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                connection(name, stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, _runtime: runtime }
    }
}

async fn connection(name: &'static str, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(name, request, respond));
    }
}

async fn answer(name: &'static str, request: http::Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let request = request.map(Received);
    let mut grpc = server::Grpc::new(Text);
    let echo = Echo(name);
    let response = match request.uri().path() {
        "/test.Echo/Say" => grpc.unary(echo, request).await,
        "/test.Echo/Wait" => grpc.unary(Wait, request).await,
        "/test.Echo/Sum" => grpc.client_streaming(echo, request).await,
        "/test.Echo/Count" => grpc.server_streaming(echo, request).await,
        "/test.Echo/Chat" => grpc.streaming(Chat, request).await,
        _ => Status::unimplemented("not a method of the backend").into_http(),
    };
    let (parts, body) = response.into_parts();
    if let Ok(stream) = respond.send_response(http::Response::from_parts(parts, ()), false) {
        send(body, stream).await;
    }
}

struct Echo(&'static str);

impl UnaryService<String> for Echo {
    type Response = String;
    type Future = Answer<Response<String>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let name = self.0;
        Box::pin(async move {
            if let Some(why) = request.get_ref().strip_prefix("fail: ") {
                return Err(Status::failed_precondition(why));
            }
            let set = request.metadata().get("x-set").cloned();
            let mut response = Response::new(format!("{name}: {}", request.into_inner()));
            if let Some(set) = set {
                response.metadata_mut().insert("x-seen", set);
            }
            Ok(response)
        })
    }
}

impl ClientStreamingService<String> for Echo {
    type Response = String;
    type Future = Answer<Response<String>>;

    fn call(&mut self, request: Request<Streaming<String>>) -> Self::Future {
        Box::pin(async move {
            let mut messages = request.into_inner();
            let mut all = Vec::new();
            while let Some(message) = messages.message().await? {
                all.push(message);
            }
            Ok(Response::new(all.join("+")))
        })
    }
}

impl ServerStreamingService<String> for Echo {
    type Response = String;
    type ResponseStream = Messages;
    type Future = Answer<Response<Messages>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let count = request.get_ref().parse::<u32>().unwrap_or_default();
        // Its last word is an error, after messages that count.
        let all = (1..=count).map(|number| Ok(number.to_string()));
        let last = (count > 3).then(|| Err(Status::out_of_range("too many")));
        let all = stream::iter(all.chain(last).collect::<Vec<_>>());
        Box::pin(async move { Ok(Response::new(Box::pin(all) as Messages)) })
    }
}

struct Chat;

impl StreamingService<String> for Chat {
    type Response = String;
    type ResponseStream = Messages;
    type Future = Answer<Response<Messages>>;

    fn call(&mut self, request: Request<Streaming<String>>) -> Self::Future {
        let replies = request.into_inner().map(|message| message.map(|text| format!("re: {text}")));
        Box::pin(async move { Ok(Response::new(Box::pin(replies) as Messages)) })
    }
}

struct Wait;

impl UnaryService<String> for Wait {
    type Response = String;
    type Future = Answer<Response<String>>;

    fn call(&mut self, _: Request<String>) -> Self::Future {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Response::new(String::new()))
        })
    }
}

/// A connection to the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Channel(SendRequest<Bytes>);

impl GrpcService<Body> for Channel {
    type ResponseBody = Received;
    type Error = h2::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Received>, h2::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut connection = self.0.clone();
        Box::pin(async move {
            poll_fn(|cx| connection.poll_ready(cx)).await?;
            let (parts, body) = request.into_parts();
            let (response, stream) = connection.send_request(http::Request::from_parts(parts, ()), false)?;
            tokio::spawn(send(body, stream));
            Ok(response.await?.map(Received))
        })
    }
}

/// A client of `host` on a listener of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Caller(tonic::client::Grpc<Channel>);

impl Caller {
    pub(crate) async fn connect(port: u16, host: &str, over_tls: bool) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let (channel, scheme) = if over_tls {
            let connector = TlsConnector::from(tls::believing_client(&["h2"]));
            let name = ServerName::try_from(host.to_owned()).unwrap();
            (channel(connector.connect(name, stream).await.unwrap()).await, "https")
        } else {
            (channel(stream).await, "http")
        };
        let origin = format!("{scheme}://{host}").parse().unwrap();
        Self(tonic::client::Grpc::with_origin(channel, origin))
    }

    pub(crate) async fn unary(
        &self,
        method: &str,
        request: Request<String>,
    ) -> Result<Response<String>, Status> {
        let mut grpc = self.0.clone();
        within(async { grpc.unary(request, path(method), Text).await }).await
    }

    pub(crate) async fn sum(&self, messages: &[&str]) -> Result<String, Status> {
        let messages = stream::iter(messages.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        let mut grpc = self.0.clone();
        let call = async { grpc.client_streaming(Request::new(messages), path("Sum"), Text).await };
        within(call).await.map(Response::into_inner)
    }

    /// All messages, and how it ended.
    pub(crate) async fn count(&self, to: u32) -> (Vec<String>, Result<(), Status>) {
        let mut grpc = self.0.clone();
        let call = async { grpc.server_streaming(Request::new(to.to_string()), path("Count"), Text).await };
        let mut messages = match within(call).await {
            Ok(response) => response.into_inner(),
            Err(status) => return (Vec::new(), Err(status)),
        };
        let mut all = Vec::new();
        loop {
            match within(messages.message()).await {
                Ok(Some(message)) => all.push(message),
                Ok(None) => return (all, Ok(())),
                Err(status) => return (all, Err(status)),
            }
        }
    }

    /// A stream of each side, both open: messages to send, and those that come.
    pub(crate) async fn chat(&self) -> (futures::channel::mpsc::UnboundedSender<String>, Streaming<String>) {
        let (sender, messages) = futures::channel::mpsc::unbounded();
        let mut grpc = self.0.clone();
        let call = async { grpc.streaming(Request::new(messages), path("Chat"), Text).await };
        (sender, within(call).await.unwrap().into_inner())
    }
}

async fn channel(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Channel {
    let (channel, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    Channel(channel)
}

/// Of `test.Echo`, unless it names its service.
fn path(method: &str) -> http::uri::PathAndQuery {
    let whole = if method.starts_with('/') { method.to_owned() } else { format!("/test.Echo/{method}") };
    whole.parse().unwrap()
}

pub(crate) async fn within<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, call).await.expect("the call takes too long")
}
