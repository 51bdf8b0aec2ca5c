//! Varnish's messages as `router` wants to see and edit them.

use std::ffi::{CStr, c_char, c_void};

use router::edit::{EditHeaders, EditRequest, HeaderLine};

use crate::ffi::{self, Ctx, Http, Text};
use crate::guard::stopped;

const NO_ROOM: &CStr =
    c"ghost: no room for a header: raise http_max_hdr, workspace_client or workspace_backend";

/// A message that is alive for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    http: *mut Http,
    _alive: std::marker::PhantomData<&'a ()>,
}

impl<'a> Message<'a> {
    /// # Safety
    /// `http` must be NULL or alive for `'a`, and no other thread may edit it.
    pub(crate) unsafe fn new(http: *mut Http) -> Option<Self> {
        (!http.is_null()).then_some(Self { http, _alive: std::marker::PhantomData })
    }

    pub(crate) fn method(self) -> &'a [u8] {
        // SAFETY: alive, see new().
        unsafe { ffi::gs_method(self.http).bytes() }.unwrap_or_default()
    }

    pub(crate) fn url(self) -> &'a [u8] {
        // SAFETY: alive, see new().
        unsafe { ffi::gs_url(self.http).bytes() }.unwrap_or_default()
    }

    /// `HTTP/1.1`
    pub(crate) fn proto(self) -> &'a [u8] {
        // SAFETY: alive, see new().
        unsafe { ffi::gs_proto(self.http).bytes() }.unwrap_or_default()
    }

    /// Of a response.
    pub(crate) fn status(self) -> u16 {
        // SAFETY: alive, see new().
        u16::try_from(unsafe { ffi::gs_status(self.http) }).unwrap_or_default()
    }

    /// Every value of a header.
    pub(crate) fn headers(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let mut at = 0;
        // SAFETY: alive, see new(); the name's pointer and length belong together.
        std::iter::from_fn(move || unsafe {
            ffi::gs_header(self.http, name.as_ptr(), name.len(), &mut at).bytes()
        })
    }

    pub(crate) fn header(self, name: &str) -> Option<&'a [u8]> {
        self.headers(name).next()
    }

    pub(crate) fn remove_header(self, name: &str) {
        // SAFETY: alive, see new().
        unsafe { ffi::gs_remove(self.http, name.as_ptr(), name.len()) };
    }

    /// In one look at all headers.
    pub(crate) fn remove_any(self, names: &[Text]) {
        // SAFETY: alive, see new(); the names are only read.
        unsafe { ffi::gs_remove_any(self.http, names.as_ptr(), names.len()) };
    }

    /// One look at all headers. `look` says of each, by name and value, what it is in bits, and by [`ffi::DROP`] that it is to
    /// go. Returns the bits of those that stay.
    pub(crate) fn survey<F: FnMut(&[u8], &[u8]) -> u32>(self, mut look: F) -> u32 {
        unsafe extern "C" fn call<F: FnMut(&[u8], &[u8]) -> u32>(
            look: *mut c_void,
            line: *const u8,
            n: usize,
        ) -> u32 {
            // What was not looked at must not go on.
            stopped(ffi::DROP, || {
                // SAFETY: what gs_survey was given below; the line and its length belong together.
                let (look, line) = unsafe { (&mut *look.cast::<F>(), std::slice::from_raw_parts(line, n)) };
                let Some(end) = line.iter().position(|byte| *byte == b':') else { return 0 };
                let (name, value) = line.split_at(end);
                look(name, value.get(1..).unwrap_or_default().trim_ascii())
            })
        }
        // SAFETY: alive, see new(); `look` outlives the call.
        unsafe { ffi::gs_survey(self.http, call::<F>, (&raw mut look).cast()) }
    }

    pub(crate) fn remove_headers_with(self, prefix: &str) {
        // SAFETY: alive, see new().
        unsafe { ffi::gs_remove_prefix(self.http, prefix.as_ptr(), prefix.len()) };
    }

    pub(crate) fn set_header(self, name: &str, value: &[u8]) {
        self.remove_header(name);
        self.add_header(name, value);
    }

    pub(crate) fn add_header(self, name: &str, value: &[u8]) {
        // SAFETY: alive, see new(); the parts are copied.
        unsafe { ffi::gs_add_pair(self.http, name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    }

    /// Is there room for one more header with so many bytes in its name and value?
    pub(crate) fn has_room_for(self, bytes: usize) -> bool {
        // SAFETY: alive, see new().
        unsafe { ffi::gs_has_room(self.http, bytes) == 1 }
    }

    /// Fails the task where an edit was lost: half of them is worse than none.
    ///
    /// # Safety
    /// `ctx` must be the live context that the message belongs to.
    pub(crate) unsafe fn fail_if_lost(self, ctx: *const Ctx) {
        // SAFETY: alive, see new(); the caller's promise.
        unsafe {
            if ffi::gs_overflowed(self.http) == 1 {
                ffi::gs_fail(ctx, NO_ROOM.as_ptr());
            }
        }
    }

    /// Without a copy.
    ///
    /// # Safety
    /// The line must stay alive until the message is gone.
    pub(crate) unsafe fn add_static(self, line: &CStr) {
        // SAFETY: the caller's promise.
        unsafe { ffi::gs_add_static(self.http, line.as_ptr()) };
    }
}

impl EditHeaders for Message<'_> {
    fn remove(&mut self, name: &str) {
        self.remove_header(name);
    }

    fn add(&mut self, header: &HeaderLine) {
        let line = header.line();
        // SAFETY: alive, see new(); the line is copied.
        unsafe { ffi::gs_add(self.http, line.as_ptr(), line.len()) };
    }

    fn any(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.headers(name).any(seen)
    }
}

impl EditRequest for Message<'_> {
    fn set_host(&mut self, host: &str) {
        self.set_header("Host", host.as_bytes());
    }

    fn set_url(&mut self, url: &[u8]) {
        // SAFETY: alive, see new(); the URL is copied.
        unsafe { ffi::gs_set_url(self.http, url.as_ptr(), url.len()) };
    }
}

/// The client's request in vcl_recv.
pub(crate) struct ClientRequest<'a> {
    pub(crate) message: Message<'a>,
    pub(crate) socket: &'a [u8],
    pub(crate) server_name: Option<&'a [u8]>,
}

impl router::Request for ClientRequest<'_> {
    fn socket(&self) -> &[u8] {
        self.socket
    }

    fn server_name(&self) -> Option<&[u8]> {
        self.server_name
    }

    fn host(&self) -> &[u8] {
        self.message.header("Host").unwrap_or_default()
    }

    fn method(&self) -> &[u8] {
        self.message.method()
    }

    fn url(&self) -> &[u8] {
        self.message.url()
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.message.headers(name).any(seen)
    }
}

/// # Safety
/// `text` must be NULL or a C string that is alive for `'a`.
pub(crate) unsafe fn c_bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}
