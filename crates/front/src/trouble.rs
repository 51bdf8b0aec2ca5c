//! Endpoints of TLSRoutes that are not reached, each reported once.

use std::fmt;
use std::net::SocketAddr;

use crate::Event;
use crate::reported::Reported;
use crate::run::Reporter;

/// By Service and endpoint.
pub(crate) struct Trouble {
    reporter: Reporter,
    reported: Reported<(String, Option<SocketAddr>)>,
}

impl Trouble {
    pub(crate) fn new(reporter: Reporter) -> Self {
        Self { reporter, reported: Reported::default() }
    }

    pub(crate) fn ill(&self, service: &str, endpoint: Option<SocketAddr>, why: String) {
        if self.reported.is_news((service.to_owned(), endpoint), &why) {
            (self.reporter)(Event::Unreached { service: service.to_owned(), endpoint, why });
        }
    }

    pub(crate) fn well(&self, service: &str, endpoint: SocketAddr) {
        self.reported.works(|| [(service.to_owned(), Some(endpoint)), (service.to_owned(), None)]);
    }

    /// After a change of the configuration every failure is reported again.
    pub(crate) fn forget(&self) {
        self.reported.clear();
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trouble").finish_non_exhaustive()
    }
}
