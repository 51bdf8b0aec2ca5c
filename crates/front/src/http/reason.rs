//! Words for logs and metrics: why a request failed.

use super::origin::Failure;

/// Why a request was refused, failed or broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    BadRequest,
    HeadTimeout,
    HeadTooLarge,
    UrlTooLong,
    BodyTooLarge,
    UploadBroken,
    UploadTimeout,
    NotSupported,
    Misdirected,
    NoRoute,
    NoBackend,
    Loop,
    TooManyRequests,
    /// By a limit of the gateway's own, or without a configuration.
    Unavailable,
    BackendUnreachable,
    BackendTimeout,
    BackendInvalid,
    /// The timeout of the rule for the whole request.
    RequestTimeout,
    /// The origin, or varnishd, broke off its answer after its head.
    AnswerBroken,
    /// The client left before it had the whole answer.
    ClientGone,
    Other,
}

impl Reason {
    pub const ALL: [Self; 21] = [
        Self::BadRequest,
        Self::HeadTimeout,
        Self::HeadTooLarge,
        Self::UrlTooLong,
        Self::BodyTooLarge,
        Self::UploadBroken,
        Self::UploadTimeout,
        Self::NotSupported,
        Self::Misdirected,
        Self::NoRoute,
        Self::NoBackend,
        Self::Loop,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::BackendUnreachable,
        Self::BackendTimeout,
        Self::BackendInvalid,
        Self::RequestTimeout,
        Self::AnswerBroken,
        Self::ClientGone,
        Self::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::HeadTimeout => "head_timeout",
            Self::HeadTooLarge => "head_too_large",
            Self::UrlTooLong => "url_too_long",
            Self::BodyTooLarge => "body_too_large",
            Self::UploadBroken => "upload_broken",
            Self::UploadTimeout => "upload_timeout",
            Self::NotSupported => "not_supported",
            Self::Misdirected => "misdirected",
            Self::NoRoute => "no_route",
            Self::NoBackend => "no_backend",
            Self::Loop => "loop",
            Self::TooManyRequests => "too_many_requests",
            Self::Unavailable => "unavailable",
            Self::BackendUnreachable => "backend_unreachable",
            Self::BackendTimeout => "backend_timeout",
            Self::BackendInvalid => "backend_invalid",
            Self::RequestTimeout => "request_timeout",
            Self::AnswerBroken => "answer_broken",
            Self::ClientGone => "client_gone",
            Self::Other => "other",
        }
    }

    /// What the status of a gateway-made answer says, where nothing more exact is known.
    pub(crate) fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            ..400 => return None,
            400 => Self::BadRequest,
            404 => Self::NoRoute,
            408 => Self::UploadTimeout,
            413 => Self::BodyTooLarge,
            414 => Self::UrlTooLong,
            417 | 501 | 505 => Self::NotSupported,
            421 => Self::Misdirected,
            429 => Self::TooManyRequests,
            431 => Self::HeadTooLarge,
            500 => Self::NoBackend,
            502 => Self::BackendInvalid,
            503 => Self::Unavailable,
            504 => Self::BackendTimeout,
            508 => Self::Loop,
            _ => Self::Other,
        })
    }
}

impl From<Failure> for Reason {
    fn from(from: Failure) -> Self {
        match from {
            Failure::Unreachable => Self::BackendUnreachable,
            Failure::Timeout => Self::BackendTimeout,
            Failure::Broken | Failure::NoWebSockets => Self::BackendInvalid,
            Failure::Upload => Self::UploadBroken,
            Failure::Stalled => Self::UploadTimeout,
            Failure::Deadline => Self::RequestTimeout,
            Failure::Filter => Self::NoBackend,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_in_their_order_and_have_names_of_their_own() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            assert!(Reason::ALL.iter().filter(|other| other.name() == reason.name()).count() == 1);
        }
    }
}
