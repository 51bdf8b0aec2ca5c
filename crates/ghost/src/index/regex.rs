//! An expression of a ban, as Varnish itself reads it.

use std::ffi::{CStr, c_void};

use super::bans::Matches;
use crate::ffi;

/// NULL matches everything: so it is where nobody can say what it means.
pub(crate) struct Regex(*mut c_void);

// SAFETY: made once, and only read from then on.
unsafe impl Send for Regex {}
// SAFETY: as above.
unsafe impl Sync for Regex {}

impl Regex {
    pub(crate) fn new(text: &CStr) -> Self {
        // SAFETY: a string that ends in a zero byte, alive during the call.
        Self(unsafe { ffi::gs_regex_new(text.as_ptr()) })
    }
}

impl Matches for Regex {
    fn matches(&self, url: &[u8]) -> bool {
        // SAFETY: ours since new(); pointer and length belong together.
        self.0.is_null() || unsafe { ffi::gs_regex_matches(self.0, url.as_ptr(), url.len()) } != 0
    }
}

impl Drop for Regex {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: ours since new(), and given back once.
            unsafe { ffi::gs_regex_free(self.0) };
        }
    }
}
