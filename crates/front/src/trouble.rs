//! Endpoints of TLSRoutes that are not reached, each told once.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use crate::Event;
use crate::run::Reporter;

/// More are not remembered: the oldest news are then told again.
const MOST: usize = 10_000;

/// What was last told of each Service and endpoint. Told again once it is well, or fails for another reason.
pub(crate) struct Trouble {
    reporter: Reporter,
    told: Mutex<HashMap<(String, Option<SocketAddr>), String>>,
}

impl Trouble {
    pub(crate) fn new(reporter: Reporter) -> Self {
        Self { reporter, told: Mutex::default() }
    }

    pub(crate) fn ill(&self, service: &str, endpoint: Option<SocketAddr>, why: String) {
        let news = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() >= MOST {
                told.clear();
            }
            let before = told.insert((service.to_owned(), endpoint), why.clone());
            before.is_none_or(|before| before != why)
        };
        if news {
            (self.reporter)(Event::Unreached { service: service.to_owned(), endpoint, why });
        }
    }

    pub(crate) fn well(&self, service: &str, endpoint: SocketAddr) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.is_empty() {
            told.remove(&(service.to_owned(), Some(endpoint)));
            told.remove(&(service.to_owned(), None));
        }
    }

    /// With a new configuration everything is news.
    pub(crate) fn forget(&self) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trouble").finish_non_exhaustive()
    }
}
