//! What an object's stored headers say of it.

use std::borrow::Cow;
use std::ffi::CStr;

use model::names::{CACHE_HOST_HEADER, CACHE_URL_HEADER, NEVER_STALE, OWNER_HEADER, RESCUE_SECONDS_HEADER};

use router::cache::groups;

use super::tags;
use crate::ffi::{self, RawObject, RawWorker};

/// Its names, and what else of its headers counts.
#[derive(Default)]
pub(crate) struct Stored<'a> {
    host: Option<&'a [u8]>,
    pub(crate) url: Option<&'a [u8]>,
    owner: Option<&'a [u8]>,
    /// Groups among them.
    pub(crate) tags: Vec<Cow<'a, [u8]>>,
    /// Lines of Cache-Groups.
    groups: Vec<&'a [u8]>,
    /// Lines of Vary.
    pub(crate) vary: Vec<&'a [u8]>,
    pub(crate) has_cookie: bool,
    /// There are more tags than are read.
    pub(crate) too_many: bool,
}

impl<'a> Stored<'a> {
    /// # Safety
    /// `worker` must be the thread's own, and the object alive for `'a`, with its headers.
    pub(crate) unsafe fn read(worker: *mut RawWorker, object: *mut RawObject) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::read_until(worker, object, |_| false) }
    }

    /// Host, URL and owner alone.
    ///
    /// # Safety
    /// As for all of it.
    pub(crate) unsafe fn place(worker: *mut RawWorker, object: *mut RawObject) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self::read_until(worker, object, |stored| {
                stored.host.is_some() && stored.url.is_some() && stored.owner.is_some()
            })
        }
    }

    /// # Safety
    /// As for all of it.
    unsafe fn read_until(
        worker: *mut RawWorker,
        object: *mut RawObject,
        is_enough: impl Fn(&Self) -> bool,
    ) -> Self {
        let mut stored = Self::default();
        let mut line = std::ptr::null();
        loop {
            // SAFETY: the caller's promise; the line is the one that was given last.
            line = unsafe { ffi::gs_stored_header(worker, object, line) };
            if line.is_null() {
                let groups = groups(std::mem::take(&mut stored.groups));
                stored.add_tags(groups.map(|group| Cow::Owned(group.into_bytes())));
                return stored;
            }
            // SAFETY: stored headers end in a zero byte, and live as long as the object.
            stored.take(unsafe { CStr::from_ptr(line) }.to_bytes());
            if is_enough(&stored) {
                return stored;
            }
        }
    }

    fn take(&mut self, line: &'a [u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(CACHE_HOST_HEADER.as_bytes()) {
            self.host = Some(value);
        } else if name.eq_ignore_ascii_case(CACHE_URL_HEADER.as_bytes()) {
            self.url = Some(value);
        } else if name.eq_ignore_ascii_case(OWNER_HEADER.as_bytes()) {
            self.owner = Some(value);
        } else if name.eq_ignore_ascii_case(b"Vary") {
            self.vary.push(value);
        } else if name.eq_ignore_ascii_case(b"Set-Cookie") {
            self.has_cookie = true;
        } else if tags::is_tag_header(name) {
            self.add_tags(tags::tags(value).map(Cow::Borrowed));
        } else if tags::is_groups_header(name) {
            self.groups.push(value);
        }
    }

    fn add_tags(&mut self, mut all: impl Iterator<Item = Cow<'a, [u8]>>) {
        self.tags.extend(all.by_ref().take(tags::MOST - self.tags.len()));
        self.too_many |= all.next().is_some();
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = &[u8]> {
        self.tags.iter().map(AsRef::as_ref)
    }

    pub(crate) fn host(&self) -> Option<&'a [u8]> {
        self.host.map(without_port)
    }

    pub(crate) fn owner(&self) -> &'a [u8] {
        self.owner.unwrap_or_default()
    }
}

/// `example.com:8080` and `[::1]:8080`.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) && !host[..colon].ends_with(b":") => {
            &host[..colon]
        }
        _ => host,
    }
}

/// For how many seconds after it was fresh an object may take the place of a failure; `None` where nothing limits it.
///
/// # Safety
/// `worker` must be the thread's own, and the object alive, with its headers.
pub(crate) unsafe fn rescue_seconds(worker: *mut RawWorker, object: *mut RawObject) -> Option<f64> {
    // SAFETY: the caller's promise.
    let value = unsafe { staleness(worker, object) }?;
    Some(std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok()).unwrap_or(0.0))
}

/// Must the object be validated before it is served stale, whatever the client takes?
///
/// # Safety
/// As [`rescue_seconds`].
pub(crate) unsafe fn is_never_stale(worker: *mut RawWorker, object: *mut RawObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { staleness(worker, object) }.is_some_and(|value| value.trim_ascii() == NEVER_STALE.as_bytes())
}

/// The value of [`RESCUE_SECONDS_HEADER`].
///
/// # Safety
/// As [`rescue_seconds`]; it must not outlive the object.
unsafe fn staleness<'a>(worker: *mut RawWorker, object: *mut RawObject) -> Option<&'a [u8]> {
    let mut line = std::ptr::null();
    loop {
        // SAFETY: the caller's promise; the line is the one that was given last.
        line = unsafe { ffi::gs_stored_header(worker, object, line) };
        if line.is_null() {
            return None;
        }
        // SAFETY: stored headers end in a zero byte, and live as long as the object.
        let text = unsafe { CStr::from_ptr(line) }.to_bytes();
        if let Some((name, value)) = text.split_at_checked(RESCUE_SECONDS_HEADER.len())
            && name.eq_ignore_ascii_case(RESCUE_SECONDS_HEADER.as_bytes())
            && let Some(value) = value.strip_prefix(b":")
        {
            return Some(value);
        }
    }
}
