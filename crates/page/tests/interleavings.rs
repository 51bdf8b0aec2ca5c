//! Every interleaving of the protocol that src/lib.rs describes, and every value that its loads may return.
//!
//! Memory is a list of messages for each location, and each thread knows how far it has seen each of them (its view). A load
//! returns any message that is not older than the view; `Acquire` takes over the view that a `Release` has left in the message. Locks and
//! sockets hand over whole views. That is C11's release/acquire memory, without consume and without fences.
//!
//! The steps of the actors are those of `Page`, one atomic access each. Tests that weaken a step must find a violation: they show
//! that this checker can.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "whatever goes wrong here must fail the test")]

use std::collections::HashSet;

const EPOCH: usize = 0;
const SLOT: usize = 1;
const DIGEST: usize = 2;
const TABLE: usize = 3;
const LOCATIONS: usize = 4;

/// How many messages of each location are known.
type View = [u8; LOCATIONS];

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Message {
    value: u64,
    view: View,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Memory([Vec<Message>; LOCATIONS]);

impl Memory {
    fn new(values: [u64; LOCATIONS]) -> Self {
        Self(values.map(|value| vec![Message { value, view: [0; LOCATIONS] }]))
    }

    /// All that a load may return, and the view after it.
    fn load(&self, at: usize, view: &View, acquire: bool) -> Vec<(u64, View)> {
        let seen = usize::from(view[at]);
        let all = self.0[at].iter().enumerate().skip(seen);
        all.map(|(n, message)| {
            let mut after = *view;
            after[at] = n as u8;
            if acquire {
                join(&mut after, &message.view);
            }
            (message.value, after)
        })
        .collect()
    }

    /// Reads the newest message and writes the next one.
    fn change(&mut self, at: usize, view: &mut View, release: bool, new: impl Fn(u64) -> u64) {
        let last = self.0[at].last().expect("there is a first message").clone();
        view[at] = self.0[at].len() as u8;
        let mut left = last.view;
        if release {
            join(view, &last.view);
            left = *view;
        }
        self.0[at].push(Message { value: new(last.value), view: left });
    }
}

fn join(view: &mut View, other: &View) {
    view.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

/// Something that a lock or a socket guards.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Guarded<T> {
    value: T,
    view: View,
}

impl<T> Guarded<T> {
    fn new(value: T) -> Self {
        Self { value, view: [0; LOCATIONS] }
    }

    fn enter(&mut self, view: &mut View) -> &mut T {
        join(view, &self.view);
        self.view = *view;
        &mut self.value
    }
}

/// What varnishd would find. `None` is a miss, whose answer is never marked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Object {
    version: u64,
    /// ghost marks an object only once it is whole.
    whole: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry {
    version: u64,
    /// The slot's value.
    stamp: u64,
    digest: u64,
    /// By which table ghost answered. Only the checker knows.
    made_by: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Thread {
    step: u8,
    view: View,
    epoch: u64,
    slot: u64,
    found: Option<Object>,
    made_by: u64,
}

#[derive(Clone, Copy)]
enum Actor {
    /// Invalidates: this version and older ones must not be served once it has acknowledged.
    Raiser,
    /// Asks varnishd for what the front may store.
    Storer,
    /// Answers a client that has seen the acknowledgement.
    Server,
    /// A fetch that asked the origin before the invalidation, and comes into the cache after it.
    Fetch,
    /// Swaps ghost's table: from the first to the second, and back.
    Swapper,
}

/// What of the protocol is in force.
#[derive(Clone, Copy)]
struct Rules {
    epoch_before_slots: bool,
    release: bool,
    acquire: bool,
    /// The storer reads `epoch` again.
    checks_again: bool,
    /// The objects end before the counters are raised.
    ends_first: bool,
    only_whole: bool,
    /// ghost publishes 0 before it swaps.
    withdraws_digest: bool,
    /// A change of the digest raises `epoch`.
    digest_moves_epoch: bool,
}

const RULES: Rules = Rules {
    epoch_before_slots: true,
    release: true,
    acquire: true,
    checks_again: true,
    ends_first: true,
    only_whole: true,
    withdraws_digest: true,
    digest_moves_epoch: true,
};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    memory: Memory,
    cache: Guarded<Option<Object>>,
    /// Versions up to this one were invalidated, for ADR 17: fetches that began before look at it.
    noted: Guarded<u64>,
    acknowledged: Guarded<u64>,
    store: Guarded<Option<Entry>>,
    threads: Vec<Thread>,
}

const FIRST_TABLE: u64 = 7;
const SECOND_TABLE: u64 = 8;

/// Explores everything. The violation that it finds, or how many states there are.
fn explore(actors: &[Actor], rules: Rules) -> Result<usize, String> {
    let first = State {
        memory: Memory::new([0, 0, FIRST_TABLE, FIRST_TABLE]),
        cache: Guarded::new(Some(Object { version: 1, whole: true })),
        noted: Guarded::new(0),
        acknowledged: Guarded::new(0),
        store: Guarded::new(None),
        threads: vec![Thread::default(); actors.len()],
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        for (n, actor) in actors.iter().enumerate() {
            for next in step(&state, n, *actor, rules)? {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    Ok(seen.len())
}

/// All states that one step of one thread may lead to.
fn step(state: &State, n: usize, actor: Actor, rules: Rules) -> Result<Vec<State>, String> {
    let mut next = state.clone();
    next.threads[n].step += 1;
    let at = state.threads[n].step;
    let mut view = state.threads[n].view;
    let one = |mut next: State, view: View| {
        next.threads[n].view = view;
        Ok(vec![next])
    };
    match (actor, at) {
        (Actor::Raiser, 0) => {
            *next.noted.enter(&mut view) = 1;
            one(next, view)
        }
        (Actor::Raiser, 1..=4) => {
            let epoch_at = if rules.epoch_before_slots { 2 } else { 3 };
            let slot_at = 5 - epoch_at;
            let order = if rules.ends_first { [1, epoch_at, slot_at, 4] } else { [epoch_at, slot_at, 1, 4] };
            match order[usize::from(at) - 1] {
                1 => {
                    let cached = next.cache.enter(&mut view);
                    *cached = cached.filter(|object| object.version > 1);
                }
                2 => next.memory.change(EPOCH, &mut view, rules.release, |n| n + 1),
                3 => next.memory.change(SLOT, &mut view, rules.release, |n| n + 1),
                _ => *next.acknowledged.enter(&mut view) = 1,
            }
            one(next, view)
        }
        (Actor::Fetch, 0) => {
            // It has its answer, of the first version, and nothing was invalidated.
            if *next.noted.enter(&mut view) != 0 {
                next.threads[n].step = 9;
            }
            one(next, view)
        }
        (Actor::Fetch, 1) => {
            *next.cache.enter(&mut view) = Some(Object { version: 1, whole: false });
            one(next, view)
        }
        (Actor::Fetch, 2) => {
            // OEV_INSERT: overtaken by an invalidation?
            if *next.noted.enter(&mut view) != 0 {
                next.threads[n].step = 4;
            }
            one(next, view)
        }
        (Actor::Fetch, 3) => {
            if let Some(object) = next.cache.enter(&mut view) {
                object.whole = true;
            }
            next.threads[n].step = 9;
            one(next, view)
        }
        (Actor::Fetch, 4) => {
            *next.cache.enter(&mut view) = None;
            one(next, view)
        }
        (Actor::Fetch, 5) => {
            next.memory.change(EPOCH, &mut view, rules.release, |n| n + 1);
            one(next, view)
        }
        (Actor::Fetch, 6) => {
            next.memory.change(SLOT, &mut view, rules.release, |n| n + 1);
            next.threads[n].step = 9;
            one(next, view)
        }
        (Actor::Swapper, 0..=9) => {
            let table = if at < 5 { SECOND_TABLE } else { FIRST_TABLE };
            let raise = |next: &mut State, view: &mut View| {
                if rules.digest_moves_epoch {
                    next.memory.change(EPOCH, view, rules.release, |n| n + 1);
                }
            };
            match at % 5 {
                0 if rules.withdraws_digest => next.memory.change(DIGEST, &mut view, rules.release, |_| 0),
                1 if rules.withdraws_digest => raise(&mut next, &mut view),
                2 => next.memory.change(TABLE, &mut view, rules.release, |_| table),
                3 => next.memory.change(DIGEST, &mut view, rules.release, |_| table),
                4 => raise(&mut next, &mut view),
                _ => {}
            }
            one(next, view)
        }
        (Actor::Storer, 0) => Ok(loads(&next, n, EPOCH, rules, |thread, value| thread.epoch = value)),
        (Actor::Storer, 1) => Ok(loads(&next, n, DIGEST, rules, |thread, value| {
            if value != FIRST_TABLE {
                thread.step = 9;
            }
        })),
        (Actor::Storer, 2) => Ok(loads(&next, n, TABLE, rules, |thread, value| thread.made_by = value)),
        (Actor::Storer, 3) => {
            let found = *next.cache.enter(&mut view);
            match found.filter(|object| object.whole || !rules.only_whole) {
                Some(object) => next.threads[n].found = Some(object),
                None => next.threads[n].step = 9,
            }
            one(next, view)
        }
        (Actor::Storer, 4) => Ok(loads(&next, n, SLOT, rules, |thread, value| thread.slot = value)),
        (Actor::Storer, 5) => Ok(loads(&next, n, DIGEST, rules, |thread, value| {
            if value != FIRST_TABLE {
                thread.step = 9;
            }
        })),
        (Actor::Storer, 6) => Ok(loads(&next, n, EPOCH, rules, |thread, value| {
            if value != thread.epoch && rules.checks_again {
                thread.step = 9;
            }
        })),
        (Actor::Storer, 7) => {
            let thread = &state.threads[n];
            let Some(object) = thread.found else { return Ok(Vec::new()) };
            let (version, stamp, made_by) = (object.version, thread.slot, thread.made_by);
            if made_by != FIRST_TABLE {
                return Err(format!(
                    "the answer of table {made_by} is stored for table {FIRST_TABLE}: {state:?}"
                ));
            }
            *next.store.enter(&mut view) = Some(Entry { version, stamp, digest: FIRST_TABLE, made_by });
            one(next, view)
        }
        // The client has seen the acknowledgement; until then there is nothing to check.
        (Actor::Server, 0) => match *next.acknowledged.enter(&mut view) {
            0 => Ok(Vec::new()),
            _ => one(next, view),
        },
        (Actor::Server, 1) => match *next.store.enter(&mut view) {
            Some(entry) => {
                next.threads[n].found = Some(Object { version: entry.version, whole: true });
                next.threads[n].epoch = entry.stamp;
                one(next, view)
            }
            None => Ok(Vec::new()),
        },
        (Actor::Server, 2) => {
            let all = loads(&next, n, SLOT, rules, |thread, value| thread.slot = value);
            let served = all.iter().map(|next| &next.threads[n]).find(|thread| thread.slot == thread.epoch);
            match served.and_then(|thread| thread.found) {
                Some(old) if old.version <= 1 => Err(format!("served after its invalidation: {state:?}")),
                _ => Ok(all),
            }
        }
        _ => Ok(Vec::new()),
    }
}

/// One state for each value that a load may return.
fn loads(next: &State, n: usize, at: usize, rules: Rules, take: impl Fn(&mut Thread, u64)) -> Vec<State> {
    let all = next.memory.load(at, &next.threads[n].view, rules.acquire);
    all.into_iter()
        .map(|(value, view)| {
            let mut next = next.clone();
            next.threads[n].view = view;
            take(&mut next.threads[n], value);
            next
        })
        .collect()
}

const INVALIDATION: [Actor; 4] = [Actor::Raiser, Actor::Storer, Actor::Storer, Actor::Server];
const OVERTAKEN: [Actor; 4] = [Actor::Raiser, Actor::Fetch, Actor::Storer, Actor::Server];
const SWAP: [Actor; 2] = [Actor::Swapper, Actor::Storer];

#[track_caller]
fn fails(actors: &[Actor], rules: Rules, how: &str) {
    let found = explore(actors, rules).expect_err("a weaker protocol must fail");
    assert!(found.starts_with(how), "{found}");
}

#[test]
fn nothing_is_served_after_its_acknowledged_invalidation() {
    let states = explore(&INVALIDATION, RULES).unwrap();
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn two_invalidations_at_once_are_as_safe_as_one() {
    let actors = [Actor::Raiser, Actor::Raiser, Actor::Storer, Actor::Server];
    explore(&actors, RULES).unwrap();
}

#[test]
fn what_an_overtaken_fetch_brings_is_never_served() {
    explore(&OVERTAKEN, RULES).unwrap();
    fails(&OVERTAKEN, Rules { only_whole: false, ..RULES }, "served after");
}

#[test]
fn an_answer_of_another_table_is_never_stored() {
    explore(&SWAP, RULES).unwrap();
    fails(
        &SWAP,
        Rules { withdraws_digest: false, digest_moves_epoch: false, ..RULES },
        "the answer of table",
    );
    fails(&SWAP, Rules { digest_moves_epoch: false, ..RULES }, "the answer of table");
}

#[test]
fn each_part_of_the_protocol_is_needed() {
    for weaker in [
        Rules { epoch_before_slots: false, ..RULES },
        Rules { release: false, ..RULES },
        Rules { acquire: false, ..RULES },
        Rules { checks_again: false, ..RULES },
        Rules { ends_first: false, ..RULES },
    ] {
        fails(&INVALIDATION, weaker, "served after");
    }
}
