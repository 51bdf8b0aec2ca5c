//! Answers of our own as backends, so that user VCL sees them in vcl_backend_response and vcl_deliver: no route,
//! no backend, redirects, and ghost's loopback socket.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use model::RouteKind;
use model::names::{ERROR_HEADER, LISTENER_HEADER, ORDER_HEADER};
use router::answer::Own;
use router::{Action, Refusal, Router, Rule, TooLong};

use crate::control::Control;
use crate::error::Error;
use crate::ffi::{self, Ctx, Director, OwnedDirector, RawAnswer, Text, c_string};
use crate::guard::stopped;
use crate::message::Message;
use crate::socket::Socket;

/// What an answering director says.
pub(crate) enum Answer {
    NotFound,
    NoBackend,
    Unavailable,
    /// The same for a rule with a cache policy: there may be something in the cache.
    EmptyGroup {
        router: Arc<Router>,
        rule: u32,
    },
    Misdirected,
    Loop,
    /// Its headers depend on the request: they are set where the response is delivered.
    Preflight,
    /// The client wants an answer of the cache, which has none.
    NotCached,
    /// The path has more than one reading, or none.
    Refused(Refusal),
    TooLong(TooLong),
    Redirect {
        router: Arc<Router>,
        rule: u32,
    },
    Control(Control),
    /// To the front: what it asked for is invalidated.
    Invalidated,
}

/// One answer, with what it says still in Rust's hands.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) status: u16,
    /// `Name: value`; bytes, because a URL need not be UTF-8.
    pub(crate) header: Option<Vec<u8>>,
    pub(crate) body: String,
}

impl Answer {
    /// The director owns the answer from here on.
    pub(crate) fn director(self, ctx: *const Ctx, name: &str) -> Result<OwnedDirector, Error> {
        let answer = Box::into_raw(Box::new(self));
        // SAFETY: ctx is live; the director gives the answer back in ghost_answer_free.
        let director = unsafe { ffi::gs_answer_new(ctx, c_string(name).as_ptr(), answer.cast()) };
        OwnedDirector::new(director).ok_or_else(|| {
            // SAFETY: Varnish did not take it.
            drop(unsafe { Box::from_raw(answer) });
            Error::Director(name.to_owned())
        })
    }

    /// The rule whose Service has no endpoints.
    pub(crate) fn empty_groups_rule(&self) -> Option<&Rule> {
        if matches!(self, Self::EmptyGroup { .. }) { self.rule() } else { None }
    }

    /// The rule that answers, where it is one.
    pub(crate) fn rule(&self) -> Option<&Rule> {
        match self {
            Self::Redirect { router, rule } | Self::EmptyGroup { router, rule } => {
                router.rules().get(*rule as usize)
            }
            Self::NotFound
            | Self::NoBackend
            | Self::Unavailable
            | Self::Misdirected
            | Self::Loop
            | Self::Preflight
            | Self::NotCached
            | Self::Refused(_)
            | Self::TooLong(_)
            | Self::Invalidated
            | Self::Control(_) => None,
        }
    }

    /// What the router says of the request.
    fn action(&self) -> Action {
        match self {
            Self::NotFound => Action::NotFound,
            Self::EmptyGroup { .. } if self.rule().is_some_and(|rule| rule.kind() == RouteKind::Ingress) => {
                Action::Unavailable
            }
            Self::Unavailable => Action::Unavailable,
            Self::Misdirected => Action::Misdirected,
            Self::Loop => Action::Loop,
            Self::Preflight => Action::Preflight,
            Self::Refused(why) => Action::Refused(*why),
            Self::TooLong(what) => Action::TooLong(*what),
            Self::NoBackend
            | Self::EmptyGroup { .. }
            | Self::Redirect { .. }
            | Self::NotCached
            | Self::Invalidated
            | Self::Control(_) => Action::NoBackend,
        }
    }

    fn say(&self, ctx: *const Ctx, bereq: Message<'_>) -> Said {
        let ours = || {
            Own::to(self.action()).map_or_else(Said::default, |own| Said {
                status: own.status,
                header: None,
                body: own.body.into_owned(),
            })
        };
        match self {
            Self::Control(control) => control.answer(ctx, bereq),
            Self::Invalidated => {
                let order = bereq.header(ORDER_HEADER);
                let header = order.map(|order| [ORDER_HEADER.as_bytes(), b": ", order].concat());
                Said { status: 204, header, body: String::new() }
            }
            Self::NotCached => {
                let own = Own::not_cached();
                Said { status: own.status, header: None, body: own.body.into_owned() }
            }
            Self::Redirect { .. } => {
                // SAFETY: ctx is the fetch's live context.
                let own = unsafe { Socket::of(ctx) };
                let socket = String::from_utf8_lossy(bereq.header(LISTENER_HEADER).unwrap_or(&own));
                let host = bereq.header("Host").unwrap_or_default();
                match self.rule().and_then(|rule| rule.redirect(&socket, host, bereq.url())) {
                    Some((status, location)) => {
                        let header = [b"Location: ", location.as_slice()].concat();
                        Said { status, header: Some(header), body: String::new() }
                    }
                    None => ours(),
                }
            }
            _ => ours(),
        }
    }
}

/// # Safety
/// `director` must be NULL or alive for `'a`.
pub(crate) unsafe fn of_director<'a>(director: Director) -> Option<&'a Answer> {
    let mut private = std::ptr::null_mut();
    // SAFETY: kind 2 says that the director's private part is an Answer, which lives as long as the director.
    unsafe { (ffi::gs_ours(director, &mut private) == 2).then(|| &*private.cast_const().cast::<Answer>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_answer(ctx: *const Ctx, answer: *const c_void, to: *mut RawAnswer) -> c_int {
    stopped(-1, || {
        // SAFETY: the shim passes a director's private part and the fetch's own request.
        let (answer, bereq) = unsafe { (&*answer.cast::<Answer>(), Message::new(ffi::gs_bereq(ctx))) };
        let panicked = || Said {
            status: 500,
            header: Some(format!("{ERROR_HEADER}: ghost panicked: this is a bug").into_bytes()),
            body: String::new(),
        };
        let say = || Some(bereq.map_or_else(Said::default, |bereq| answer.say(ctx, bereq)));
        // SAFETY: ctx is live, and the place is the shim's.
        unsafe { hand_over(ctx, stopped(None, say).unwrap_or_else(panicked), to) }
    })
}

/// # Safety
/// `ctx` must be live, and `to` a place for the answer.
unsafe fn hand_over(ctx: *const Ctx, said: Said, to: *mut RawAnswer) -> c_int {
    let mut header = said.header.unwrap_or_default();
    header.iter_mut().filter(|b| matches!(b, b'\r' | b'\n' | b'\0')).for_each(|b| *b = b' ');
    // SAFETY: ctx is live; the copy lives in the task's workspace, as long as the task. NULL: out of workspace.
    unsafe {
        let line = ffi::gs_ws_copy(ctx, header.as_ptr(), header.len());
        if line.is_null() {
            return -1;
        }
        let body: Box<[u8]> = said.body.into_bytes().into();
        let n = body.len();
        // The shim gives it back.
        let body = Box::into_raw(body).cast::<u8>();
        *to = RawAnswer {
            status: said.status.into(),
            header: if header.is_empty() { std::ptr::null() } else { line },
            body: Text { p: body, n },
        };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_body_free(p: *mut u8, n: usize) {
    stopped((), || {
        if !p.is_null() {
            // SAFETY: made by Box::into_raw in ghost_answer, of this length, freed once.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(p, n)) });
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_answer_free(answer: *mut c_void) {
    // SAFETY: made by Box::into_raw in Answer::director, freed once, by Varnish.
    stopped((), || drop(unsafe { Box::from_raw(answer.cast::<Answer>()) }));
}
