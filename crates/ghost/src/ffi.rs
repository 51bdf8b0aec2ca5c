//! The shim's functions, with Varnish's structs as opaque pointers.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct vrt_ctx`
#[repr(C)]
pub struct Ctx {
    _opaque: [u8; 0],
}

/// `struct http`: the headers of one message.
#[repr(C)]
pub(crate) struct Http {
    _opaque: [u8; 0],
}

/// `struct vsmw_cluster`
#[repr(C)]
pub(crate) struct RawCluster {
    _opaque: [u8; 0],
}

/// `struct worker`
#[repr(C)]
pub struct RawWorker {
    _opaque: [u8; 0],
}

/// `struct objcore`
#[repr(C)]
pub struct RawObject {
    _opaque: [u8; 0],
}

/// What a thread of ours holds while it acts for the VCL in use.
#[repr(C)]
pub struct RawCall {
    _opaque: [u8; 0],
}

/// `VCL_BACKEND`
pub(crate) type Director = *const c_void;

/// Bytes that belong to Varnish.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Text {
    pub(crate) p: *const u8,
    pub(crate) n: usize,
}

impl Text {
    pub(crate) const fn of(text: &'static str) -> Self {
        Self { p: text.as_ptr(), n: text.len() }
    }

    /// # Safety
    /// The text must be alive for `'a`.
    pub(crate) unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        // SAFETY: the shim gives a pointer and the length that belongs to it, or NULL.
        (!self.p.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.p, self.n) })
    }
}

#[repr(C)]
pub(crate) struct NewBackend {
    pub(crate) name: *const c_char,
    pub(crate) sockaddr: *const c_void,
    pub(crate) socklen: c_uint,
    /// Of the front, for a backend with TLS; or NULL.
    pub(crate) path: *const c_char,
    /// What Varnish sends before the first request of a connection by `path`.
    pub(crate) preamble: Text,
    pub(crate) connect: f64,
    pub(crate) first_byte: f64,
    pub(crate) between_bytes: f64,
}

#[repr(C)]
pub(crate) struct RawAnswer {
    pub(crate) status: c_uint,
    pub(crate) header: *const c_char,
    pub(crate) body: Text,
}

/// Says of a header's line what it is, in bits.
pub(crate) type Look = unsafe extern "C" fn(private: *mut c_void, line: *const u8, n: usize) -> c_uint;
/// As a bit: the header is to go.
pub(crate) const DROP: c_uint = 1 << 31;

unsafe extern "C" {
    pub(crate) fn gs_give_memory_back();
    pub(crate) fn gs_req(ctx: *const Ctx) -> *mut Http;
    pub(crate) fn gs_bereq(ctx: *const Ctx) -> *mut Http;
    pub(crate) fn gs_beresp(ctx: *const Ctx) -> *mut Http;
    pub(crate) fn gs_resp(ctx: *const Ctx) -> *mut Http;
    pub(crate) fn gs_status(http: *const Http) -> c_uint;
    pub(crate) fn gs_method(http: *const Http) -> Text;
    pub(crate) fn gs_url(http: *const Http) -> Text;
    pub(crate) fn gs_proto(http: *const Http) -> Text;
    pub(crate) fn gs_header(http: *const Http, name: *const u8, n: usize, at: *mut c_uint) -> Text;
    pub(crate) fn gs_remove(http: *mut Http, name: *const u8, n: usize);
    pub(crate) fn gs_remove_any(http: *mut Http, names: *const Text, n: usize);
    pub(crate) fn gs_survey(http: *mut Http, look: Look, private: *mut c_void) -> c_uint;
    pub(crate) fn gs_remove_prefix(http: *mut Http, prefix: *const u8, n: usize);
    pub(crate) fn gs_add_static(http: *mut Http, line: *const c_char);
    pub(crate) fn gs_add(http: *mut Http, line: *const u8, n: usize);
    pub(crate) fn gs_add_pair(http: *mut Http, name: *const u8, n: usize, value: *const u8, m: usize);
    pub(crate) fn gs_overflowed(http: *const Http) -> c_int;
    pub(crate) fn gs_has_room(http: *mut Http, bytes: usize) -> c_int;
    pub(crate) fn gs_whole_object(ctx: *const Ctx, length: *mut u64) -> *mut RawObject;
    pub(crate) fn gs_set_url(http: *mut Http, url: *const u8, n: usize);

    pub(crate) fn gs_local_socket(ctx: *const Ctx) -> *const c_char;
    pub(crate) fn gs_server_port(ctx: *const Ctx) -> c_uint;
    pub(crate) fn gs_server_name(ctx: *const Ctx) -> Text;
    pub(crate) fn gs_is_included(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_tls_version(ctx: *const Ctx) -> Text;
    pub(crate) fn gs_client_ip(ctx: *const Ctx) -> *const c_char;
    pub(crate) fn gs_on_backend_side(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_in_synth(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_hint(ctx: *const Ctx, director: Director);
    pub(crate) fn gs_hinted(ctx: *const Ctx) -> Director;
    pub(crate) fn gs_bereq_backend(ctx: *const Ctx) -> Director;
    pub(crate) fn gs_fail(ctx: *const Ctx, why: *const c_char);
    pub(crate) fn gs_hash(ctx: *const Ctx, text: *const c_char);
    pub(crate) fn gs_ws_copy(ctx: *const Ctx, p: *const u8, n: usize) -> *const c_char;
    pub(crate) fn gs_log(ctx: *const Ctx, line: *const c_char);

    pub(crate) fn gs_first_try(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_bereq0(ctx: *const Ctx) -> *mut Http;
    pub(crate) fn gs_uncacheable(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_has_body(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_body_digest(ctx: *const Ctx, most: usize, to: *mut u8) -> c_int;
    pub(crate) fn gs_ask_by_query(ctx: *const Ctx);
    pub(crate) fn gs_digest(ctx: *const Ctx) -> *const u8;
    pub(crate) fn gs_storage_name(ctx: *const Ctx) -> *const c_char;
    pub(crate) fn gs_is_bgfetch(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_now(ctx: *const Ctx) -> f64;
    pub(crate) fn gs_set_age(ctx: *const Ctx, age: f64);
    pub(crate) fn gs_waited(ctx: *const Ctx) -> f64;
    pub(crate) fn gs_keep_to_validate(ctx: *const Ctx, grace: f64, keep: f64);
    pub(crate) fn gs_is_kept_to_validate(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_do_not_wait(ctx: *const Ctx);
    pub(crate) fn gs_replaces_stale(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_was_304(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_validated(ctx: *const Ctx) -> *mut RawObject;
    pub(crate) fn gs_is_stored(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_fresh_for(ctx: *const Ctx) -> f64;
    pub(crate) fn gs_set_resp_status(ctx: *const Ctx, status: c_uint);
    pub(crate) fn gs_ttl(ctx: *const Ctx) -> f64;
    pub(crate) fn gs_fetch_time(ctx: *const Ctx) -> f64;
    pub(crate) fn gs_fetched_object(ctx: *const Ctx) -> *mut RawObject;
    pub(crate) fn gs_let_go_of_ended(ctx: *const Ctx);
    pub(crate) fn gs_keep_for(ctx: *const Ctx, ttl: f64, grace: f64, keep: f64);
    pub(crate) fn gs_set_uncacheable(ctx: *const Ctx);
    pub(crate) fn gs_do_not_stream(ctx: *const Ctx);
    pub(crate) fn gs_set_grace(ctx: *const Ctx, grace: f64);
    pub(crate) fn gs_stale(ctx: *const Ctx, stale_for: *mut f64) -> *mut RawObject;
    pub(crate) fn gs_rescue(ctx: *const Ctx, hold: f64, most: f64) -> c_int;
    pub(crate) fn gs_cache_status(ctx: *const Ctx) -> c_int;

    pub(crate) fn gs_task_get(ctx: *const Ctx, id: *const c_void) -> *mut c_void;
    pub(crate) fn gs_task_alloc(ctx: *const Ctx, n: usize) -> *mut c_void;
    pub(crate) fn gs_task_set(ctx: *const Ctx, id: *const c_void, state: *mut c_void) -> c_int;

    pub(crate) fn gs_backend_new(
        ctx: *const Ctx,
        from: *const NewBackend,
        cluster: *mut RawCluster,
    ) -> Director;
    pub(crate) fn gs_release(director: Director);
    pub(crate) fn gs_cluster_new(ctx: *const Ctx, backends: usize) -> *mut RawCluster;
    pub(crate) fn gs_cluster_free(cluster: *mut RawCluster);
    pub(crate) fn gs_target_new(ctx: *const Ctx, name: *const c_char, target: *mut c_void) -> Director;
    pub(crate) fn gs_answer_new(ctx: *const Ctx, name: *const c_char, answer: *mut c_void) -> Director;
    pub(crate) fn gs_ours(director: Director, private: *mut *mut c_void) -> c_int;

    pub(crate) fn gs_vcl(ctx: *const Ctx) -> *const c_void;
    pub(crate) fn gs_call_begin() -> *mut RawCall;
    pub(crate) fn gs_call_ctx(call: *mut RawCall) -> *const Ctx;
    pub(crate) fn gs_call_worker(call: *mut RawCall) -> *mut RawWorker;
    pub(crate) fn gs_call_end(call: *mut RawCall);
    pub(crate) fn gs_await(listener: c_int, wake: c_int) -> c_int;
    pub(crate) fn gs_peer_is_ours(fd: c_int) -> c_int;

    pub(crate) fn gs_subscribe() -> usize;
    pub(crate) fn gs_unsubscribe(handle: usize);
    pub(crate) fn gs_stored_header(
        worker: *mut RawWorker,
        object: *mut RawObject,
        after: *const c_char,
    ) -> *const c_char;
    pub(crate) fn gs_expire(object: *mut RawObject, soft: c_int) -> c_int;
    pub(crate) fn gs_request_body(ctx: *const Ctx, most: usize, n: *mut usize) -> *mut u8;
    pub(crate) fn gs_free(p: *mut c_void);
    pub(crate) fn gs_forget(object: *mut RawObject);
    pub(crate) fn gs_has_ended(object: *const RawObject) -> c_int;
    pub(crate) fn gs_hit(ctx: *const Ctx) -> *mut RawObject;
    pub(crate) fn gs_is_hit_for_miss(object: *const RawObject) -> c_int;
    pub(crate) fn gs_real_time() -> f64;
    pub(crate) fn gs_worker(ctx: *const Ctx) -> *mut RawWorker;

    pub(crate) fn gs_look_with(ctx: *const Ctx, asked: *mut c_void);
    pub(crate) fn gs_has_waited(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_refreshes(ctx: *const Ctx) -> c_int;
    pub(crate) fn gs_let_go(ctx: *const Ctx);
}

/// A director that we hold one reference of.
pub(crate) struct OwnedDirector(Director);

// SAFETY: Varnish counts references under its own lock; directors are used from every worker thread.
unsafe impl Send for OwnedDirector {}
// SAFETY: as above.
unsafe impl Sync for OwnedDirector {}

impl OwnedDirector {
    /// `None` for NULL.
    pub(crate) fn new(director: Director) -> Option<Self> {
        (!director.is_null()).then_some(Self(director))
    }

    pub(crate) fn raw(&self) -> Director {
        self.0
    }
}

impl Drop for OwnedDirector {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and given up once.
        unsafe { gs_release(self.0) };
    }
}

/// A C string of any text; what comes after a zero byte is lost.
pub(crate) fn c_string(text: &str) -> std::ffi::CString {
    let end = text.find('\0').unwrap_or(text.len());
    std::ffi::CString::new(&text[..end]).unwrap_or_default()
}
