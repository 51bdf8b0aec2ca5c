//! The time that a rule gives to a request or to one try of it.

use std::time::{Duration, Instant};

use http::HeaderMap;
use model::RouteKind;
use router::Rule;
use tokio::time::timeout_at;

/// What sets the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The timeout of one try.
    Try,
    /// The timeout of the request: all tries, the pauses between them, and the answer.
    Request,
}

/// When it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Until {
    pub(crate) at: Instant,
    pub(crate) limit: Limit,
    /// If an endpoint does not answer by then, it has failed. Not where an earlier try took most of the time.
    pub(crate) is_fault: bool,
}

impl Until {
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }
}

/// Waits for the future at most until then. Without an end there is no timer.
pub(crate) async fn within<T>(until: Option<Until>, future: impl Future<Output = T>) -> Result<T, Until> {
    match until {
        None => Ok(future.await),
        Some(until) => timeout_at(until.at.into(), future).await.map_err(|_| until),
    }
}

/// When a request that began then is over, all tries together: by its rule, and by what a gRPC client says itself.
pub(crate) fn of_request(rule: &Rule, headers: &HeaderMap, began: Instant) -> Option<Until> {
    let of_client =
        (rule.kind() == RouteKind::GrpcRoute).then(|| headers.get("grpc-timeout")).flatten().and_then(grpc);
    until(rule.request_timeout(), of_client, began)
}

/// The shorter of both. An endpoint has failed by the time that its route gives it, not by one that a client makes up.
fn until(of_rule: Option<Duration>, of_client: Option<Duration>, began: Instant) -> Option<Until> {
    let time = of_rule.into_iter().chain(of_client).min()?;
    Some(Until { at: began + time, limit: Limit::Request, is_fault: of_rule == Some(time) })
}

/// `grpc-timeout`: at most eight digits and a unit. A value of another form is ignored, as by gRPC servers.
fn grpc(value: &http::HeaderValue) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let time = match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    };
    // A clock that far ahead may not exist.
    Some(time.min(Duration::from_secs(86_400)))
}

/// The end of the next try, with `earlier` tries before it.
pub(crate) fn of_try(rule: &Rule, request: Option<Until>, earlier: u32) -> Option<Until> {
    let request = request.map(|until| Until { is_fault: until.is_fault && earlier == 0, ..until });
    let Some(time) = rule.backend_timeout() else { return request };
    let of_try = Until { at: Instant::now() + time, limit: Limit::Try, is_fault: true };
    Some(request.filter(|request| request.at <= of_try.at).unwrap_or(of_try))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_that_waits_too_short_is_no_fault_of_an_endpoint() {
        let (short, long, now) = (Duration::from_millis(1), Duration::from_secs(1), Instant::now());
        let is_fault = |of_rule, of_client| until(of_rule, of_client, now).map(|until| until.is_fault);
        assert_eq!(is_fault(None, Some(short)), Some(false));
        assert_eq!(is_fault(Some(long), Some(short)), Some(false));
        assert_eq!(is_fault(Some(short), Some(long)), Some(true));
        assert_eq!(is_fault(Some(short), None), Some(true));
        assert_eq!(is_fault(None, None), None);
    }

    #[test]
    fn timeouts_of_grpc_clients_are_read_by_their_units() {
        let read = |text: &'static str| grpc(&HeaderValue::from_static(text));
        assert_eq!(read("5S"), Some(Duration::from_secs(5)));
        assert_eq!(read("100m"), Some(Duration::from_millis(100)));
        assert_eq!(read("7u"), Some(Duration::from_micros(7)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(86_400)));
        for bad in ["", "S", "5", "5s", "-5S", "123456789S", "1.5S", " 5S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
