//! One group of one rule as a Varnish director. The holder of the director holds the decision: this is how it
//! comes from the client's side to the fetch, without a header and across a reload.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use model::names::{
    FRONT_HEADER, FRONT_PROOF_ENV, GHOST_PREFIX, HINTS_HEADER, KEPT_HEADER, LOOP_HEADER,
    MISS_ENDPOINT_HEADER, MISS_URL_HEADER,
};
use router::{Router, Rule, random};

use crate::backend::Backend;
use crate::cache;
use crate::error::Error;
use crate::ffi::{self, Ctx, Director, Http, OwnedDirector, Text, c_string};
use crate::guard::stopped;
use crate::journal;
use crate::message::{Message, c_bytes};
use crate::posted;
use crate::secret;
use crate::stats::Counters;

pub(crate) struct Target {
    router: Arc<Router>,
    rule: u32,
    group: u32,
    ways: Ways,
    /// The rule's, where they are wanted.
    counters: Option<Arc<Counters>>,
}

/// How requests reach the group.
pub(crate) struct Ways {
    /// In the order of the group's endpoints.
    pub(crate) endpoints: Box<[Arc<Backend>]>,
    /// Where only the front reaches it as the rule says.
    pub(crate) front: Option<Arc<Backend>>,
    /// The front, for responses to POST that it keeps; where the rule's policy keeps them.
    pub(crate) kept: Option<Arc<Backend>>,
}

impl Target {
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// The director owns the target from here on, and frees it when its last holder lets go.
    pub(crate) fn director(
        ctx: *const Ctx,
        router: &Arc<Router>,
        rule: u32,
        group: u32,
        ways: Ways,
        counters: Option<Arc<Counters>>,
    ) -> Result<OwnedDirector, Error> {
        let shown = &router.rules()[rule as usize];
        let name = format!("{}.{}.{}", shown.route_name(), shown.rule_index(), group);
        let target =
            Box::into_raw(Box::new(Self { router: Arc::clone(router), rule, group, ways, counters }));
        // SAFETY: ctx is live; the director gives the target back in ghost_target_free.
        let director = unsafe { ffi::gs_target_new(ctx, c_string(&name).as_ptr(), target.cast()) };
        OwnedDirector::new(director).ok_or_else(|| {
            // SAFETY: Varnish did not take it.
            drop(unsafe { Box::from_raw(target) });
            Error::Director(name)
        })
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.router.rules()[self.rule as usize]
    }

    /// Does the front hand over responses to POST for this group?
    pub(crate) fn takes_kept(&self) -> bool {
        self.ways.kept.is_some()
    }

    pub(crate) fn group_name(&self) -> &str {
        self.rule().groups()[self.group as usize].name()
    }

    fn group(&self) -> &router::Group {
        &self.rule().groups()[self.group as usize]
    }

    /// None where endpoints do not understand varnishd.
    fn pick(&self, avoid: Option<usize>) -> Option<usize> {
        Some(self.group()).filter(|group| group.protocol().is_http1())?.pick(random::next(), avoid)
    }
}

/// # Safety
/// `director` must be NULL or alive for `'a`.
pub(crate) unsafe fn of_director<'a>(director: Director) -> Option<&'a Target> {
    let mut private = std::ptr::null_mut();
    // SAFETY: kind 1 says that the director's private part is a Target, which lives as long as the director.
    unsafe { (ffi::gs_ours(director, &mut private) == 1).then(|| &*private.cast_const().cast::<Target>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_target_pick(target: *const c_void, at: *mut usize) -> Director {
    stopped(std::ptr::null(), || {
        // SAFETY: the shim passes a director's private part and a valid position.
        let (target, at) = unsafe { (&*target.cast::<Target>(), &mut *at) };
        match target.pick(Some(*at)) {
            Some(picked) => {
                *at = picked;
                target.ways.endpoints.get(picked).map_or(std::ptr::null(), |b| b.raw())
            }
            None => std::ptr::null(),
        }
    })
}

/// The front, where it is to fetch; else NULL. `kept` becomes 1 where it has the response already: then no endpoint may be asked.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_target_front(
    target: *const c_void,
    unedited: *mut Http,
    kept: *mut c_int,
) -> Director {
    stopped(std::ptr::null(), || {
        // SAFETY: the shim passes a director's private part, the fetch's own request, and a place.
        let (target, unedited, kept) =
            unsafe { (&*target.cast::<Target>(), Message::new(unedited), &mut *kept) };
        let is_kept = unedited.is_some_and(posted::is_fetch_of);
        *kept = c_int::from(is_kept);
        let way = if is_kept { &target.ways.kept } else { &target.ways.front };
        way.as_ref().map_or(std::ptr::null(), |front| front.raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_fetched(target: *const c_void, seconds: f64, answered: c_int) {
    stopped((), || {
        // SAFETY: the shim passes a director's private part.
        if let Some(counters) = unsafe { &(*target.cast::<Target>()).counters } {
            counters.fetched(seconds, answered == 1);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_target_free(target: *mut c_void) {
    // SAFETY: made by Box::into_raw in Target::director, freed once, by Varnish.
    stopped((), || drop(unsafe { Box::from_raw(target.cast::<Target>()) }));
}

/// After all VCL and all filters: what these may have set goes, and what they must not remove is there.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_leaving(target: *const c_void, bereq: *mut Http, unedited: *mut Http) {
    stopped((), || {
        // SAFETY: the shim passes a director's private part; the fetch owns its request, before edits and after.
        let (target, message, unedited) =
            unsafe { (&*target.cast::<Target>(), Message::new(bereq), Message::new(unedited)) };
        let Some(message) = message else { return };
        message.remove_headers_with(GHOST_PREFIX);
        if let Some(id) = target.router.gateway_id() {
            name_us(message, id);
        }
        if let Some(kept) = unedited.and_then(posted::of_request) {
            message.add_header(KEPT_HEADER, kept.token.to_string().as_bytes());
        }
        if let Some(number) = unedited.and_then(|unedited| unedited.header(HINTS_HEADER))
            && target.ways.front.is_some()
        {
            message.add_header(HINTS_HEADER, number);
        }
        // The front carries out the filters of the backendRef.
        if let Some(unedited) = unedited
            && target.ways.front.is_some()
            && target.group().edits().is_some()
        {
            message.add_header(MISS_URL_HEADER, unedited.url());
        }
    });
}

/// Says in CDN-Loop that the request went through this Gateway; once, however often it is tried.
pub(crate) fn name_us(message: Message<'_>, id: &str) {
    if !message.headers(LOOP_HEADER).any(|value| value == id.as_bytes()) {
        message.add_header(LOOP_HEADER, id.as_bytes());
    }
}

/// Between an origin and its proxy alone: never stored, never handed on (RFC 9111, 3.1). Varnish removes Proxy-Authenticate by itself.
const OF_PROXIES: [Text; 2] = [Text::of("Proxy-Authentication-Info"), Text::of("Proxy-Connection")];

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_arrived(
    target: *const c_void,
    beresp: *mut Http,
    backend: *const c_char,
    seconds: f64,
) {
    stopped((), || {
        // SAFETY: the shim passes a director's private part, the fetch's own response, and a backend's name.
        let (target, message, backend) =
            unsafe { (&*target.cast::<Target>(), Message::new(beresp), c_bytes(backend)) };
        let Some(message) = message else { return };
        let endpoint = message.header(MISS_ENDPOINT_HEADER).filter(|_| target.ways.front.is_some());
        let backend = String::from_utf8_lossy(endpoint.unwrap_or(backend)).into_owned();
        message.remove_headers_with(GHOST_PREFIX);
        message.remove_any(&OF_PROXIES);
        cache::hide_range(message);
        let router = &target.router;
        if router.logs_requests() || router.trace_sampling().is_some() {
            let value = format!("{backend} {seconds:.6}");
            message.set_header(journal::BACKEND_HEADER, value.as_bytes());
        }
    });
}

/// Is it the front's own answer? Origins can write the same words, but they do not have the front's secret of this start.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_is_fronts(beresp: *mut Http) -> c_int {
    stopped(0, || {
        // SAFETY: the fetch owns its response.
        let given = unsafe { Message::new(beresp) }.and_then(|message| message.header(FRONT_HEADER));
        c_int::from(given.is_some_and(|given| secret::is(FRONT_PROOF_ENV, given)))
    })
}
