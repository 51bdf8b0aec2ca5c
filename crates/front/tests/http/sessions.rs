//! Requests of one client go to the same endpoint.

use std::time::Duration;

use model::{SessionBy, SessionPersistence, ghost};
use tokio::time::sleep;

use crate::support::{Front, Origin, status};

fn rule(config: &mut ghost::Config) -> &mut ghost::Route {
    &mut config.vhosts.get_mut("*").unwrap().routes[0]
}

fn session(by: SessionBy, name: &str) -> SessionPersistence {
    SessionPersistence { by, name: name.into(), ..SessionPersistence::default() }
}

async fn origins(count: usize) -> Vec<Origin> {
    let mut origins = Vec::new();
    for number in 0..count {
        let origin = Origin::start().await;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Origin: {number}\r\n\r\nok");
        let answers = vec![answer.as_bytes(); 500];
        origin.will_answer(&answers);
        origins.push(origin);
    }
    origins
}

async fn front(origins: &[Origin], session: SessionPersistence) -> Front {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    Front::with(&addresses, |config| rule(config).session_persistence = Some(Box::new(session))).await
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The endpoint that answers, and the token that comes with it.
async fn get(front: &Front, shown: &str) -> (String, Option<String>) {
    let request = format!("GET /a HTTP/1.1\r\nHost: a\r\n{shown}Connection: close\r\n\r\n");
    let answer = front.say(request.as_bytes()).await;
    assert_eq!(status(&answer), 200, "{answer}");
    let token = header(&answer, "set-cookie").or_else(|| header(&answer, "x-session"));
    (header(&answer, "x-origin").unwrap().to_owned(), token.map(str::to_owned))
}

/// What a browser sends of a Set-Cookie.
fn shown(cookie: &str) -> String {
    format!("Cookie: other=1; {}\r\n", cookie.split(';').next().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_keeps_a_client_at_its_endpoint() {
    let origins = origins(5).await;
    let front = front(&origins, session(SessionBy::Cookie, "sid")).await;
    for _ in 0..5 {
        let (first, cookie) = get(&front, "").await;
        let cookie = cookie.unwrap();
        assert!(
            cookie.starts_with("sid=") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"),
            "{cookie}"
        );
        for _ in 0..8 {
            let (next, cookie) = get(&front, &shown(&cookie)).await;
            assert_eq!((next.as_str(), cookie), (first.as_str(), None));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_keeps_a_client_at_its_endpoint() {
    let origins = origins(5).await;
    let front = front(&origins, session(SessionBy::Header, "x-session")).await;
    let (first, token) = get(&front, "").await;
    let shown = format!("X-Session: {}\r\n", token.unwrap());
    for _ in 0..10 {
        let (next, token) = get(&front, &shown).await;
        assert_eq!((next.as_str(), token), (first.as_str(), None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_cookies_and_endpoints_that_are_gone_get_a_new_session() {
    let origins = origins(3).await;
    let front = front(&origins, session(SessionBy::Cookie, "sid")).await;
    let address = origins[0].address;
    let (_, real) = get(&front, "").await;
    let real = real.unwrap();
    let mut changed = shown(&real).into_bytes();
    let at = changed.len() - 5;
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    for forged in [
        format!("Cookie: sid={address}\r\n"),
        "Cookie: sid=\r\n".into(),
        format!("Cookie: sid={}\r\n", "A".repeat(44)),
        format!("Cookie: sid={}\r\n", "A".repeat(4000)),
        String::from_utf8(changed).unwrap(),
    ] {
        let (_, cookie) = get(&front, &forged).await;
        assert!(cookie.is_some(), "{forged}");
    }
    // Another gateway, with a key of its own.
    let other = self::front(&origins, session(SessionBy::Cookie, "sid")).await;
    assert!(get(&other, &shown(&real)).await.1.is_some());
    // The endpoint leaves the Service.
    let (first, cookie) = get(&front, "").await;
    let cookie = cookie.unwrap();
    let left: Vec<_> = origins
        .iter()
        .enumerate()
        .filter(|(number, _)| number.to_string() != first)
        .map(|(_, o)| o.address)
        .collect();
    let mut config = crate::support::to(&left, front.port);
    rule(&mut config).session_persistence = Some(Box::new(session(SessionBy::Cookie, "sid")));
    front.http.route_by(std::sync::Arc::new(router::Router::compile(&config).unwrap().router));
    let (next, new) = get(&front, &shown(&cookie)).await;
    assert_ne!(next, first);
    let (again, none) = get(&front, &shown(&new.unwrap())).await;
    assert_eq!((again, none), (next, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_takes_no_connections_hands_its_sessions_to_others() {
    let origins = origins(2).await;
    let dead = crate::support::free_port();
    let addresses = [origins[0].address, ([127, 0, 0, 1], dead).into(), origins[1].address];
    let change = |config: &mut ghost::Config| {
        rule(config).session_persistence = Some(Box::new(session(SessionBy::Cookie, "sid")));
    };
    let front = Front::with(&addresses, change).await;
    // It is there for one request.
    let listener = tokio::net::TcpListener::bind(addresses[1]).await.unwrap();
    let serves = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Origin: gone\r\nConnection: close\r\n\r\nok",
            )
            .await;
    });
    let cookie = loop {
        let (origin, cookie) = get(&front, "").await;
        if origin == "gone" {
            break cookie.unwrap();
        }
    };
    serves.await.unwrap();
    let (next, new) = get(&front, &shown(&cookie)).await;
    assert_ne!(next, "gone");
    assert!(new.is_some(), "the client learns of its new endpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_decides_the_group_whatever_the_weights_become() {
    let origins = origins(2).await;
    let groups = |config: &mut ghost::Config, weights: [u32; 2]| {
        let mut one = rule(config).backends[0].clone();
        let end = one.endpoints.pop().unwrap();
        let mut other = ghost::Group { endpoints: vec![end], ..one.clone() };
        other.name = Some("test/other:80".into());
        rule(config).backends = [one, other].into();
        for (group, weight) in rule(config).backends.iter_mut().zip(weights) {
            group.weight = weight;
        }
        rule(config).session_persistence = Some(Box::new(session(SessionBy::Cookie, "sid")));
    };
    let addresses = [origins[0].address, origins[1].address];
    let front = Front::with(&addresses, |config| groups(config, [1, 0])).await;
    let (first, cookie) = get(&front, "").await;
    assert_eq!(first, "0");
    let mut config = crate::support::to(&addresses, front.port);
    groups(&mut config, [0, 1]);
    front.http.route_by(std::sync::Arc::new(router::Router::compile(&config).unwrap().router));
    let cookie = cookie.unwrap();
    for _ in 0..10 {
        assert_eq!(get(&front, &shown(&cookie)).await, ("0".to_owned(), None));
        assert_eq!(get(&front, "").await.0, "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_and_are_renewed_in_time() {
    let origins = origins(2).await;
    let with = |absolute: Option<f64>, idle: Option<f64>| SessionPersistence {
        absolute_seconds: absolute,
        idle_seconds: idle,
        permanent: absolute.is_some(),
        ..session(SessionBy::Cookie, "sid")
    };
    let absolute = front(&origins, with(Some(2.0), None)).await;
    let (_, cookie) = get(&absolute, "").await;
    let cookie = cookie.unwrap();
    assert!(cookie.ends_with("; Max-Age=2"), "{cookie}");
    assert_eq!(get(&absolute, &shown(&cookie)).await.1, None);
    let idle = front(&origins, with(None, Some(3.0))).await;
    let (first, mut used) = get(&idle, "").await;
    for _ in 0..4 {
        sleep(Duration::from_millis(1_100)).await;
        let (next, renewed) = get(&idle, &shown(used.as_ref().unwrap())).await;
        assert_eq!(next, first);
        assert!(renewed.is_some(), "the use is noted");
        used = renewed;
    }
    assert!(get(&absolute, &shown(&cookie)).await.1.is_some(), "it has ended");
}
