//! The object that VCL makes: the configuration in force, and the way to the next one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use model::event::EVENTS_SOCKET;
use model::names::{GHOST_CONFIG_ENV, TLS_BACKENDS_SOCKET};
use router::{Refusal, TooLong};

use crate::answer::Answer;
use crate::control::Control;
use crate::door::Place;
use crate::error::Error;
use crate::events;
use crate::ffi::{self, Ctx, Director, OwnedDirector};
use crate::index::Watching;
use crate::table::Table;
use crate::{hot, retire};

/// varnishd is about to end: clients are asked to leave. It is never taken back.
pub(crate) static DRAINING: AtomicBool = AtomicBool::new(false);

/// Requests that have been routed and are not yet over, in all VCLs of this varnishd.
pub(crate) static IN_FLIGHT: AtomicI64 = AtomicI64::new(0);

pub struct Ghost {
    /// Where the control socket finds it. The first field, and so given up before all others.
    place: std::sync::OnceLock<Place>,
    path: PathBuf,
    /// The unix socket by which backends with TLS are reached.
    front: PathBuf,
    current: ArcSwap<Table>,
    reloading: Mutex<()>,
    pub(crate) reloads: AtomicU64,
    pub(crate) not_found: OwnedDirector,
    pub(crate) no_backend: OwnedDirector,
    pub(crate) unavailable: OwnedDirector,
    pub(crate) misdirected: OwnedDirector,
    pub(crate) looped: OwnedDirector,
    pub(crate) invalidated: OwnedDirector,
    pub(crate) preflight: OwnedDirector,
    /// 504 for `only-if-cached`.
    pub(crate) not_cached: OwnedDirector,
    refusals: Vec<(Refusal, OwnedDirector)>,
    pub(crate) url_too_long: OwnedDirector,
    pub(crate) header_too_long: OwnedDirector,
    /// Set right after the object has its place in memory, which it must know.
    control: std::sync::OnceLock<OwnedDirector>,
    _watching: Watching,
}

impl Ghost {
    /// Reads the file: a VCL is complete before it is used.
    pub(crate) fn new(ctx: *const Ctx, path: &str) -> Result<Box<Self>, Error> {
        let path = match path {
            "" => std::env::var_os(GHOST_CONFIG_ENV).ok_or(Error::NoPath)?.into(),
            path => PathBuf::from(path),
        };
        let front = path.with_file_name(TLS_BACKENDS_SOCKET);
        hot::open();
        events::go_to(path.with_file_name(EVENTS_SOCKET));
        let table = Table::load(ctx, &path, &front, None)?;
        let ghost = Box::new(Self {
            path,
            front,
            current: ArcSwap::from_pointee(table),
            reloading: Mutex::new(()),
            reloads: AtomicU64::new(0),
            not_found: Answer::NotFound.director(ctx, "ghost.not_found")?,
            no_backend: Answer::NoBackend.director(ctx, "ghost.no_backend")?,
            unavailable: Answer::Unavailable.director(ctx, "ghost.unavailable")?,
            misdirected: Answer::Misdirected.director(ctx, "ghost.misdirected")?,
            looped: Answer::Loop.director(ctx, "ghost.loop")?,
            invalidated: Answer::Invalidated.director(ctx, "ghost.invalidated")?,
            preflight: Answer::Preflight.director(ctx, "ghost.preflight")?,
            not_cached: Answer::NotCached.director(ctx, "ghost.not_cached")?,
            refusals: Refusal::ALL
                .into_iter()
                .map(|why| Ok((why, Answer::Refused(why).director(ctx, "ghost.refused")?)))
                .collect::<Result<_, Error>>()?,
            url_too_long: Answer::TooLong(TooLong::Url).director(ctx, "ghost.url_too_long")?,
            header_too_long: Answer::TooLong(TooLong::Header).director(ctx, "ghost.header_too_long")?,
            control: std::sync::OnceLock::new(),
            place: std::sync::OnceLock::new(),
            _watching: Watching::begin(),
        });
        // SAFETY: the box does not move what it holds, and the control director dies with the object.
        let control = unsafe { Control::new(&raw const *ghost) };
        let control = Answer::Control(control).director(ctx, "ghost.control")?;
        let _ = ghost.control.set(control);
        // SAFETY: as above; the place is given up first when the object ends.
        let _ = ghost.place.set(unsafe { Place::take(ctx, &raw const *ghost) }?);
        // SAFETY: it takes nothing.
        unsafe { ffi::gs_give_memory_back() };
        Ok(ghost)
    }

    /// The director that says why a path is refused.
    pub(crate) fn refusal(&self, why: Refusal) -> Director {
        let of_reason = self.refusals.iter().find(|(refusal, _)| *refusal == why);
        of_reason.map_or(self.not_found.raw(), |(_, director)| director.raw())
    }

    pub(crate) fn control(&self) -> Option<&OwnedDirector> {
        self.control.get()
    }

    /// The configuration for a request that begins now.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.current.load_full()
    }

    /// This router's VCL is in use: the page names the table by which the front decides.
    pub(crate) fn publish(&self) {
        // A reload that runs does it at its end.
        if let Ok(_none_reloads) = self.reloading.try_lock() {
            hot::publish(self.table().router());
        }
    }

    /// Reads the file again. Requests that were routed before keep the table they have; on an error all do.
    pub(crate) fn reload(&self, ctx: *const Ctx) -> Result<Arc<Table>, Error> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Arc::new(Table::load(ctx, &self.path, &self.front, Some(&self.table()))?);
        hot::withdraw(Some(new.router()));
        retire::release(self.current.swap(Arc::clone(&new)));
        hot::publish(new.router());
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(new)
    }
}
