//! WebSockets: a tunnel to the origin opens with its 101, and not before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use router::counters::Way;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Http;
use super::body::{AnswerBody, OriginBody, head_bytes};
use super::exchange::{Prepared, deliver, tell_session};
use super::h2_io::H2Io;
use super::origin::Failure;
use super::record::Record;
use super::request::{Client, has_token, refused};
use super::response;
use super::upstream::{self, Call};
use crate::relay::relay_until_idle;

/// Tunnels of one Gateway, at once.
const MOST: u64 = 16_384;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("Upgrade");

/// The client's connection, or its stream, once it is a tunnel.
#[derive(Debug)]
pub(crate) enum ClientSide {
    Http1(OnUpgrade),
    Http2(oneshot::Receiver<H2Io>),
}

/// The origin's connection, or its stream.
enum OriginSide {
    Http1(OnUpgrade),
    Http2(H2Io),
}

/// A place for one tunnel.
struct Place(Arc<Http>);

impl Place {
    fn of(http: &Arc<Http>) -> Option<Self> {
        let place = Self(Arc::clone(http));
        if http.tunnels.fetch_add(1, Ordering::Relaxed) < MOST {
            return Some(place);
        }
        http.tunnels_refused.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks the origin for a tunnel. Any answer but 101 is an answer like others.
pub(crate) async fn open(
    client: &Arc<Client>,
    call: Call<'_>,
    mut request: Prepared,
    of_client: ClientSide,
    mut record: Record,
) -> Response<AnswerBody> {
    let Call { table, rule, group, .. } = call;
    let Some(place) = Place::of(&client.http) else {
        let why = refused(StatusCode::SERVICE_UNAVAILABLE, "the gateway has as many WebSockets as it can");
        return response::own(why, Some(table), Some(rule), record);
    };
    record.goes(Way::Direct);
    request.parts.headers.insert(header::UPGRADE, WEBSOCKET);
    request.parts.headers.insert(header::CONNECTION, UPGRADE);
    let sent = upstream::send(call, request, &mut record).await;
    let mut sent = match sent {
        Ok(sent) => sent,
        Err(failure) => return deliver(Err(failure), client, call, record),
    };
    if sent.answered.0.status() != StatusCode::SWITCHING_PROTOCOLS {
        return deliver(Ok(sent), client, call, record);
    }
    let answer = &mut sent.answered.0;
    if !has_token(answer.headers(), &header::UPGRADE, b"websocket") {
        return deliver(Err(Failure::Broken), client, call, record);
    }
    let upgrade = hyper::upgrade::on(answer);
    // The connection is the tunnel's until both are done.
    let ((mut parts, body), lease) = (sent.answered.0.into_parts(), sent.answered.1);
    let of_origin = match body {
        OriginBody::Http2(stream) => stream.into_tunnel().map(OriginSide::Http2),
        OriginBody::Http1(_) | OriginBody::Plain(_) | OriginBody::Ahead(_) | OriginBody::Nothing => {
            Some(OriginSide::Http1(upgrade))
        }
    };
    let Some(of_origin) = of_origin else {
        return deliver(Err(Failure::Broken), client, call, record);
    };
    if response::unframe(&mut parts.headers).is_err() {
        return deliver(Err(Failure::Broken), client, call, record);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    response::edit_of_backend(&mut parts.headers, table, (rule, group));
    response::edit(&mut parts.headers, table, Some(rule));
    tell_session(&mut parts.headers, client, call, sent.endpoint);
    parts.headers.insert(header::UPGRADE, WEBSOCKET);
    parts.headers.insert(header::CONNECTION, UPGRADE);
    record.is_tunnel(table, Some(rule));
    let http = Arc::clone(&client.http);
    record.head(StatusCode::SWITCHING_PROTOCOLS.as_u16(), head_bytes(&parts.headers));
    let began = Record::second(client);
    let open = client.tunnels.begin();
    drop(tokio::spawn(async move {
        let (_place, _open, _lease) = (place, open, lease);
        carry(of_client, of_origin, &http, record).await;
    }));
    Response::from_parts(parts, AnswerBody::own("", began))
}

async fn carry(of_client: ClientSide, of_origin: OriginSide, http: &Http, record: Record) {
    match of_origin {
        OriginSide::Http1(origin) => {
            let Ok(origin) = origin.await else { return };
            carry_to(of_client, TokioIo::new(origin), http, record).await;
        }
        OriginSide::Http2(origin) => carry_to(of_client, origin, http, record).await,
    }
}

async fn carry_to<S>(of_client: ClientSide, mut origin: S, http: &Http, mut record: Record)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let (idle, total) = (http.tunnel_idle, http.tunnel_total);
    match of_client {
        ClientSide::Http1(client) => {
            let Ok(client) = client.await else { return };
            let mut client = TokioIo::new(client);
            let _ = timeout(total, relay_until_idle(&mut client, &mut origin, &up, &down, idle)).await;
        }
        ClientSide::Http2(client) => {
            let Ok(mut client) = client.await else { return };
            let _ = timeout(total, relay_until_idle(&mut client, &mut origin, &up, &down, idle)).await;
        }
    }
    record.carried(up.load(Ordering::Relaxed), down.load(Ordering::Relaxed));
}
