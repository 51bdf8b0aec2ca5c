//! Cache-Control of a request whose policy obeys clients: which stored objects it takes. Varnish asks here while it looks for one
//! (`c/lookup.c`), under the lock of the object's key: nothing here waits or allocates.
//!
//! A client that takes none of what is stored has it validated. To the origin that is a request that the cache would have kept from it, so
//! there is one a second for each host and URL ([`crate::aside::REFUSED`]); all others get what is stored, as if they had not asked.

use std::ffi::{c_int, c_void};

use router::cache::Wanted;

use crate::aside::{Pace, Place, REFUSED};
use crate::ffi::{self, RawObject, RawWorker};
use crate::guard::stopped;
use crate::index;

/// Lives in the task.
pub(crate) struct Asked {
    pub(crate) wanted: Wanted,
    place: Place,
    permit: Permit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Permit {
    NotAsked,
    Granted,
    /// Refused; or used up by the last look. A request that has waited for another one's fetch takes what that has brought.
    None,
}

impl Asked {
    pub(crate) fn new(wanted: Wanted, host: &[u8], url: &[u8]) -> Self {
        Self { wanted, place: Pace::place(host, url), permit: Permit::NotAsked }
    }

    fn has_permit(&mut self) -> bool {
        if self.permit == Permit::NotAsked {
            // SAFETY: it takes nothing.
            let now = unsafe { ffi::gs_real_time() };
            self.permit = if REFUSED.permits(self.place, now) { Permit::Granted } else { Permit::None };
        }
        self.permit == Permit::Granted
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_takes_fresh(asked: *mut c_void, age: f64, fresh_for: f64) -> c_int {
    stopped(1, || {
        // SAFETY: what gs_look_with was given, on the thread of its task, which it lives in.
        let asked = unsafe { &mut *asked.cast::<Asked>() };
        c_int::from(asked.wanted.takes_fresh(age, fresh_for) || !asked.has_permit())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_takes_stale(
    asked: *mut c_void,
    worker: *mut RawWorker,
    object: *mut RawObject,
    age: f64,
    stale_for: f64,
    grace: f64,
) -> f64 {
    stopped(-1.0, || {
        // SAFETY: as above.
        let asked = unsafe { &mut *asked.cast::<Asked>() };
        let Some(most) = asked.wanted.takes_stale(age) else { return -1.0 };
        if stale_for <= grace {
            // It would be served. Less than that is a request to the origin.
            return if stale_for > most && asked.has_permit() { most } else { -1.0 };
        }
        // SAFETY: Varnish holds the object while it looks.
        let may_be_stale = stale_for <= most && !unsafe { index::is_never_stale(worker, object) };
        if may_be_stale { most } else { -1.0 }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_has_looked(asked: *mut c_void) {
    stopped((), || {
        // SAFETY: as above.
        let asked = unsafe { &mut *asked.cast::<Asked>() };
        if asked.permit == Permit::Granted {
            asked.permit = Permit::None;
        }
    });
}
