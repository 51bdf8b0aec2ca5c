use super::*;
use crate::http::upstream::upload::Rooms;

fn answered(rooms: &Rooms, miss: &str) -> Answered {
    answered_in("shop", rooms, miss)
}

fn answered_in(namespace: &str, rooms: &Rooms, miss: &str) -> Answered {
    let place = Arc::new(Place::take(&rooms.of(namespace), 3).unwrap());
    let (headers, body) = (HeaderMap::new(), Bytes::from_static(b"abc"));
    Answered { miss: miss.into(), namespace: namespace.into(), headers, body, _place: place }
}

const MISS: MissFor<'_> = MissFor { rule: "shop/a#1", host: "shop.test", position: 0, group: "shop/a:80" };

#[test]
fn a_token_is_good_once_for_its_own_rule_and_group() {
    let (waiting, rooms) = (Waiting::default(), Rooms::default());
    let ticket = waiting.enter(answered(&rooms, &MISS.to_string())).unwrap();
    let token = ticket.token.to_string();
    let other = waiting.enter(answered(&rooms, &MISS.to_string())).unwrap();
    assert_ne!(ticket.token, other.token);
    assert_eq!(&waiting.take(token.as_bytes(), MISS).unwrap().body[..], b"abc");
    assert!(waiting.take(token.as_bytes(), MISS).is_none());
    // A rule of another namespace does not get it, and the token is used up.
    let of_other = MissFor { rule: "blog/a#1", ..MISS };
    assert!(waiting.take(other.token.to_string().as_bytes(), of_other).is_none());
    assert!(waiting.take(other.token.to_string().as_bytes(), MISS).is_none());
    for none in ["", "0000000000000000-0000000000000000", "x"] {
        assert!(waiting.take(none.as_bytes(), MISS).is_none(), "{none}");
    }
}

#[test]
fn what_nobody_has_taken_goes_with_its_request() {
    let (waiting, rooms) = (Waiting::default(), Rooms::default());
    let ticket = waiting.enter(answered(&rooms, &MISS.to_string())).unwrap();
    let token = ticket.token.to_string();
    assert_eq!(rooms.used(), 3);
    drop(ticket);
    assert!(waiting.take(token.as_bytes(), MISS).is_none());
    assert_eq!(rooms.used(), 0);
    let enter = |number: usize| {
        let namespace = format!("ns-{}", number / (PLACES_OF_NAMESPACE + 1));
        waiting.enter(answered_in(&namespace, &rooms, &MISS.to_string()))
    };
    let tickets: Vec<_> = (0..PLACES_OF_NAMESPACE + 1).filter_map(enter).collect();
    assert_eq!(tickets.len(), PLACES_OF_NAMESPACE, "one namespace has its share");
    let others: Vec<_> = (PLACES_OF_NAMESPACE + 1..2 * PLACES).filter_map(enter).collect();
    assert_eq!(tickets.len() + others.len(), PLACES);
}

#[test]
fn the_time_that_a_post_took_is_in_its_age() {
    let of = |said: &[&'static str], millis| {
        let mut headers = HeaderMap::new();
        for age in said {
            headers.append(header::AGE, HeaderValue::from_static(age));
        }
        age_of(&headers, Duration::from_millis(millis))
    };
    assert_eq!(of(&[], 100), Some(0));
    assert_eq!(of(&[], 1500), Some(2));
    assert_eq!(of(&["7"], 1400), Some(8));
    assert_eq!(of(&["7", "7"], 0), None);
    assert_eq!(of(&["soon"], 0), None);
}
