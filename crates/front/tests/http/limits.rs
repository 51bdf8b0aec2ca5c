//! What clients may take, limit by limit.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use front::{HttpLimits, Limits, Refusal};
use h2::Reason;
use h2::client::{Builder, SendRequest};
use http::{Request, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Front, Origin, PATIENCE};

fn limits(change: impl FnOnce(&mut HttpLimits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits.http);
    limits
}

type Ended = JoinHandle<Result<(), h2::Error>>;

async fn h2(front: &Front) -> (SendRequest<Bytes>, Ended) {
    let (sender, connection) = Builder::new().handshake(front.connect().await).await.unwrap();
    let ended = tokio::spawn(connection);
    (sender.ready().await.unwrap(), ended)
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://shop.example{path}")).body(()).unwrap()
}

/// An origin that takes connections and never answers.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept: Vec<TcpStream> = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    address
}

/// Opens streams and resets each at once, until the connection is closed or `most` were reset.
async fn reset_streams(client: &mut SendRequest<Bytes>, most: u32) -> u32 {
    for count in 0..most {
        let Ok(mut ready) = client.clone().ready().await else { return count };
        let Ok((answer, _)) = ready.send_request(get("/"), true) else { return count };
        // Until the front has accepted it.
        drop(timeout(Duration::from_millis(20), answer).await);
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_too_many_streams_in_a_second_is_sent_away() {
    let origin = Origin::start().await;
    let front = Front::limited(&[silent().await], limits(|http| http.resets = 5)).await;
    let (mut client, ended) = h2(&front).await;
    assert!(reset_streams(&mut client, 200).await < 200);
    let why = timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap_err();
    assert!(why.is_remote() && why.is_go_away(), "{why:?}");
    assert_eq!(why.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    while front.counters.refusals(Refusal::Http2Flood) != 1 {
        tokio::task::yield_now().await;
    }
    // Others are served.
    front.http.route_by(std::sync::Arc::new(
        router::Router::compile(&crate::support::to(&[origin.address], front.port)).unwrap().router,
    ));
    let (mut client, _ended) = h2(&front).await;
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_within_the_limit_are_served_on() {
    let front = Front::limited(&[silent().await], limits(|http| http.resets = 1_000_000)).await;
    let (mut client, _ended) = h2(&front).await;
    assert_eq!(reset_streams(&mut client, 30).await, 30);
    assert_eq!(front.counters.refusals(Refusal::Http2Flood), 0);
    assert!(client.ready().await.is_ok());
}
