//! When a request is sent again, and after which pause.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use model::Retry;
use router::random;

use super::super::attempt::is_idempotent;
use super::super::origin::{Failure, Sent, Try};

/// The shortest pause where the route names none.
const PAUSE: Duration = Duration::from_millis(25);
/// Pauses double with each retry, up to this multiple of the shortest.
const LONGEST: u32 = 10;
/// Retries of one request, whatever its route says.
const MOST: u32 = 20;

/// What the rule says, for one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy<'a> {
    rule: &'a Retry,
    is_idempotent: bool,
}

impl<'a> Policy<'a> {
    pub(crate) fn new(rule: Option<&'a Retry>, method: &Method) -> Option<Self> {
        let rule = rule.filter(|retry| retry.attempts > 0)?;
        Some(Self { rule, is_idempotent: is_idempotent(method) })
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.rule.attempts.min(MOST)
    }

    /// Is this not final? A request that an endpoint may have carried out, without an answer, is sent again only if doing it twice is
    /// the same as doing it once (RFC 9110, 9.2.2). A response with a status that the route names is retried for every method.
    pub(crate) fn wants(&self, sent: &Result<Sent, Failure>, one: &Try) -> bool {
        match sent {
            Ok(sent) => self.names(sent.answered.0.status()),
            Err(Failure::Unreachable) => true,
            Err(Failure::Timeout | Failure::Broken) => !one.was_sent || self.is_idempotent,
            Err(
                Failure::Deadline
                | Failure::Upload
                | Failure::Stalled
                | Failure::Filter
                | Failure::NoWebSockets,
            ) => false,
        }
    }

    fn names(&self, status: StatusCode) -> bool {
        self.rule.codes.contains(&status.as_u16())
    }

    /// The pause before the next try, after this number of retries: at least that of the route, plus a random part of up to half of it.
    pub(crate) fn pause(&self, retries: u32, random: u64) -> Duration {
        let shortest =
            self.rule.backoff_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let pause = shortest.unwrap_or(PAUSE).saturating_mul((1 << retries.min(8)).min(LONGEST));
        let spread = u64::try_from(pause.as_micros() / 2).unwrap_or(u64::MAX);
        pause.saturating_add(Duration::from_micros(random::below(spread, random)))
    }

    /// Would the next try begin before the end?
    pub(crate) fn has_time(pause: Duration, end: Option<Instant>) -> bool {
        end.is_none_or(|end| Instant::now().checked_add(pause).is_some_and(|then| then < end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_never_shorter_than_the_route_says() {
        let rule = Retry { attempts: 50, backoff_seconds: Some(0.1), ..Retry::default() };
        let policy = Policy::new(Some(&rule), &Method::GET).unwrap();
        assert_eq!(policy.attempts(), MOST);
        let millis = |retries, random| policy.pause(retries, random).as_millis();
        assert_eq!(millis(0, 0), 100);
        assert!((149..=150).contains(&millis(0, u64::MAX)));
        assert_eq!(millis(1, 0), 200);
        assert_eq!(millis(3, 0), 800);
        assert_eq!((millis(4, 0), millis(40, 0)), (1_000, 1_000));
    }

    #[test]
    fn a_route_without_attempts_has_no_retries() {
        assert!(Policy::new(Some(&Retry::default()), &Method::GET).is_none());
        assert!(Policy::new(None, &Method::GET).is_none());
    }

    #[test]
    fn a_request_that_may_have_been_carried_out_is_sent_again_only_if_it_is_idempotent() {
        let rule = Retry { attempts: 1, ..Retry::default() };
        let wants = |method: &Method, failure, was_sent| {
            let one = Try { was_sent, ..Try::default() };
            Policy::new(Some(&rule), method).unwrap().wants(&Err(failure), &one)
        };
        for failure in [Failure::Timeout, Failure::Broken] {
            assert!(wants(&Method::GET, failure, true));
            assert!(wants(&Method::PUT, failure, true));
            assert!(!wants(&Method::POST, failure, true));
            assert!(!wants(&Method::PATCH, failure, true));
            assert!(wants(&Method::POST, failure, false));
        }
        assert!(wants(&Method::POST, Failure::Unreachable, false));
        for failure in [Failure::Deadline, Failure::Upload, Failure::Stalled, Failure::Filter] {
            assert!(!wants(&Method::GET, failure, false));
        }
    }
}
