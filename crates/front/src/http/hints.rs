//! 103 Early Hints of an origin that varnishd asks on behalf of a client: the front numbers the requests whose clients take hints, and finds
//! the client by that number when the hint comes. It comes from ghost as a datagram ([`listen`]), or by a miss that the front fetches.
//!
//! Guarantees that a hint reaches the one client whose request made the fetch, and no other client; that none is kept for later; and that no
//! request waits for one. At most [`PLACES`] requests are waiting for hints at once: others get none.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Extensions, Request, Response, StatusCode};
use model::event::{Event, LARGEST_EVENT};
use router::random;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::stream::{Hints, early};
use super::{Http, Told};

/// 103 responses of one request that are handed on.
pub(crate) const MOST_HINTS: usize = 8;
/// Values of `Link` in one of them.
const MOST_LINKS: usize = 32;
/// Requests that wait for hints of misses, at once.
const PLACES: usize = 1024;
const PAUSE: Duration = Duration::from_millis(500);

/// The number of the request that has it, and where its hints go.
type Place = Mutex<Option<(u64, Hints)>>;

/// Who waits for hints. A request whose place is taken gets none.
#[derive(Debug)]
pub(crate) struct Waiting(Box<[Place]>);

impl Default for Waiting {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }
}

/// A place among the requests that wait for hints, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    waiting: &'a Waiting,
    pub(crate) number: u64,
}

impl Waiting {
    fn place(&self, number: u64) -> Option<&Place> {
        self.0.get(number as usize % PLACES)
    }

    pub(crate) fn enter(&self, hints: &Hints) -> Option<Ticket<'_>> {
        let number = random::next();
        let mut place = self.place(number)?.try_lock().ok()?;
        if place.is_some() {
            return None;
        }
        *place = Some((number, hints.clone()));
        Some(Ticket { waiting: self, number })
    }

    /// Where hints for this request go, while it waits.
    pub(crate) fn find(&self, number: u64) -> Option<Hints> {
        let place = self.place(number)?.lock().unwrap_or_else(PoisonError::into_inner);
        place.as_ref().filter(|(waiting, _)| *waiting == number).map(|(_, hints)| hints.clone())
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.waiting.place(self.number) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// A queue for the hints of this request. Its origin may speak HTTP/1 or HTTP/2.
pub(crate) fn expect(of_request: &mut Extensions) -> mpsc::Receiver<Response<()>> {
    let (tell, hints) = mpsc::channel(MOST_HINTS);
    hand_on(of_request, Hints(tell));
    hints
}

/// What the origin says before its answer to this request goes there.
pub(crate) fn hand_on(of_request: &mut Extensions, to: Hints) {
    of_request.insert(to.clone());
    let mut carrier = Request::new(());
    hyper::ext::on_informational(&mut carrier, move |hint| {
        if hint.status() == StatusCode::EARLY_HINTS {
            // Those beyond the most are left out.
            let _ = to.0.try_send(early(hint.headers()));
        }
    });
    of_request.extend(std::mem::take(carrier.extensions_mut()));
}

/// Takes what ghost reports, as long as it is polled.
pub(crate) async fn listen(http: &Http, socket: &Path, proof: &str) {
    let datagrams = loop {
        let _ = std::fs::remove_file(socket);
        let bound = UnixDatagram::bind(socket).and_then(|bound| {
            // varnishd may run as another user. Datagrams without the proof are ignored.
            std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
            Ok(bound)
        });
        match bound {
            Ok(bound) => break bound,
            // Its directory is made when varnishd is started.
            Err(_) => sleep(PAUSE).await,
        }
    };
    let mut buffer = vec![0; LARGEST_EVENT + 1];
    loop {
        let Ok(length) = datagrams.recv(&mut buffer).await else {
            sleep(PAUSE).await;
            continue;
        };
        match Event::read(&buffer[..length], proof.as_bytes()) {
            Some(Event::Hints { request, links }) => http.hint(request, &links),
            Some(Event::Write(write)) => http.tell_peers(write),
            None => {}
        }
    }
}

impl Http {
    fn hint(&self, request: u64, links: &[String]) {
        let Some(Hints(to)) = self.hints.find(request) else { return };
        let mut headers = HeaderMap::new();
        for link in links.iter().take(MOST_LINKS).filter_map(|link| HeaderValue::from_str(link).ok()) {
            headers.append(header::LINK, link);
        }
        if !headers.is_empty() {
            let _ = to.try_send(early(&headers));
        }
    }

    /// Reports a write to the other pods, without waiting for them.
    pub(crate) fn tell_peers(&self, write: model::event::Write) {
        let Some(to) = self.told.get() else { return };
        let place = self.writes.take(&write.owner, 1);
        let is_told = place.is_some_and(|place| to.try_send(Told { write, _place: place }).is_ok());
        if !is_told {
            self.not_told.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_for_the_request_that_waits_and_for_no_other() {
        let waiting = Waiting::default();
        let (tell, mut hints) = mpsc::channel(1);
        let ticket = waiting.enter(&Hints(tell)).unwrap();
        let number = ticket.number;
        assert!(waiting.find(number).is_some());
        // The same place, another request.
        assert!(waiting.find(number.wrapping_add(PLACES as u64)).is_none());
        waiting.find(number).unwrap().0.try_send(Response::new(())).unwrap();
        assert!(hints.try_recv().is_ok());
        drop(ticket);
        assert!(waiting.find(number).is_none());
    }

    #[test]
    fn places_are_bounded() {
        let waiting = Waiting::default();
        let (tell, _hints) = mpsc::channel(1);
        let tickets: Vec<_> = (0..PLACES * 4).filter_map(|_| waiting.enter(&Hints(tell.clone()))).collect();
        assert!(tickets.len() <= PLACES && tickets.len() > PLACES / 2, "{}", tickets.len());
        drop(tickets);
        assert!(waiting.0.iter().all(|place| place.lock().unwrap().is_none()));
    }
}
