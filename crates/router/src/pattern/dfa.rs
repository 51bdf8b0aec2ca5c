//! A pattern as a table: one look-up for each byte. Nothing is built while requests are matched, so its memory is known and
//! threads need no caches of their own.

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, Look};

use super::{Cost, LIMIT};

/// Limits while a pattern is compiled, in bytes. They bound the time as well.
const NFA_LIMIT: usize = 256 << 10;
const DETERMINIZE_LIMIT: usize = 512 << 10;
/// Its numbers are twice as wide as ours, its rows are rounded up to a power of two, and nothing is merged yet.
const DENSE_LIMIT: usize = 8 * LIMIT;
/// Longer prefixes tell no more.
const LONGEST_PREFIX: usize = 64;

/// No value matches from here on.
const DEAD: u16 = 0;

#[derive(Debug)]
pub(super) struct Dfa {
    /// Which column of the table a byte belongs to.
    columns: [u8; 256],
    /// One row for each state. An entry is the place of the next state's row. The last column says whether a value may end
    /// here.
    table: Box<[u16]>,
    width: usize,
    start: u16,
    prefix: Arc<[u8]>,
}

impl Dfa {
    /// `None`: it is too large.
    pub(super) fn new(hir: Hir) -> Option<Self> {
        let whole = Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]);
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(NFA_LIMIT));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&whole).ok()?;
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .accelerate(false)
            .determinize_size_limit(Some(DETERMINIZE_LIMIT))
            .dfa_size_limit(Some(DENSE_LIMIT));
        let dense = dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
        Self::compact(&dense)
    }

    fn compact(dense: &dense::DFA<Vec<u32>>) -> Option<Self> {
        let classes = dense.byte_classes();
        let first = dense.start_state_forward(&Input::new("").anchored(Anchored::Yes)).ok()?;
        let mut states = States::default();
        states.rows.push(vec![DEAD.into(); classes.alphabet_len()].into());
        let start = states.number(first, dense);
        let mut next = 0;
        while let Some(state) = states.found.get(next).copied() {
            next += 1;
            let row = classes.representatives(..).map(|unit| match unit.as_u8() {
                Some(byte) => states.number(dense.next_state(state, byte), dense),
                None => dense.is_match_state(dense.next_eoi_state(state)).into(),
            });
            let row = row.collect();
            states.rows.push(row);
        }
        let (rows, start) = merged(states.rows, start);
        let (kept, column_of) = distinct_columns(&rows);
        let width = kept.len();
        if rows.len() * width * size_of::<u16>() + size_of::<Self>() + LONGEST_PREFIX > LIMIT {
            return None;
        }
        let place = |state: u32| u16::try_from(state as usize * width).ok();
        let mut table = Vec::with_capacity(rows.len() * width);
        for row in &rows {
            let (end, bytes) = kept.split_last()?;
            for column in bytes {
                table.push(place(row[*column])?);
            }
            table.push(u16::try_from(row[*end]).ok()?);
        }
        let mut columns = [0; 256];
        for (byte, column) in (0..=255_u8).zip(&mut columns) {
            *column = column_of[usize::from(classes.get(byte))];
        }
        let start = place(start)?;
        let mut dfa = Self { columns, table: table.into(), width, start, prefix: Arc::new([]) };
        dfa.prefix = dfa.common_prefix().into();
        Some(dfa)
    }

    pub(super) fn is_match(&self, value: &[u8]) -> bool {
        let mut at = usize::from(self.start);
        for byte in value {
            at = usize::from(self.table[at + usize::from(self.columns[usize::from(*byte)])]);
            if at == usize::from(DEAD) {
                return false;
            }
        }
        self.may_end(at)
    }

    fn may_end(&self, at: usize) -> bool {
        self.table[at + self.width - 1] != 0
    }

    /// As long as only one byte leads on.
    fn common_prefix(&self) -> Vec<u8> {
        let mut prefix = Vec::new();
        let mut at = usize::from(self.start);
        while prefix.len() < LONGEST_PREFIX && !self.may_end(at) {
            let next = |byte: &u8| self.table[at + usize::from(self.columns[usize::from(*byte)])];
            let mut living = (0..=255).filter(|byte| next(byte) != DEAD);
            let (Some(only), None) = (living.next(), living.next()) else { break };
            at = usize::from(next(&only));
            prefix.push(only);
        }
        prefix
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.table) + self.prefix.len()
    }

    pub(super) fn cost(&self) -> Cost {
        Cost { bytes: self.bytes(), prefix: Arc::clone(&self.prefix) }
    }
}

/// States while they are found. Numbers are positions of rows; the first row is that of the dead state.
#[derive(Debug, Default)]
struct States {
    numbers: HashMap<StateID, u32>,
    found: Vec<StateID>,
    rows: Vec<Row>,
}

/// The next state for each class of bytes, and last whether a value may end here.
type Row = Box<[u32]>;

impl States {
    fn number(&mut self, state: StateID, dense: &dense::DFA<Vec<u32>>) -> u32 {
        if dense.is_dead_state(state) {
            return DEAD.into();
        }
        *self.numbers.entry(state).or_insert_with(|| {
            self.found.push(state);
            self.found.len() as u32
        })
    }
}

/// States with the same row are the same. Alternatives with common endings become much smaller by this.
fn merged(mut rows: Vec<Row>, mut start: u32) -> (Vec<Row>, u32) {
    /// Each pass goes one byte back from the end of a value.
    const MOST_PASSES: usize = 64;
    for _ in 0..MOST_PASSES {
        let before = rows.len();
        let mut numbers: Vec<u32> = Vec::with_capacity(before);
        let mut first: HashMap<Row, u32> = HashMap::with_capacity(before);
        let mut kept = Vec::with_capacity(before);
        for row in rows {
            let number = *first.entry(row).or_insert_with_key(|row| {
                kept.push(row.clone());
                kept.len() as u32 - 1
            });
            numbers.push(number);
        }
        for row in &mut kept {
            let end = row.len() - 1;
            row[..end].iter_mut().for_each(|state| *state = numbers[*state as usize]);
        }
        start = numbers[start as usize];
        rows = kept;
        if rows.len() == before {
            break;
        }
    }
    (rows, start)
}

/// Columns that differ, and for each column which of them it is. Both cases of a letter are one in `(?i)`. The last one stays
/// by itself.
fn distinct_columns(rows: &[Row]) -> (Vec<usize>, Vec<u8>) {
    let width = rows.first().map_or(0, |row| row.len());
    let mut first: HashMap<Vec<u32>, u8> = HashMap::new();
    let mut kept = Vec::new();
    let mut column_of = Vec::with_capacity(width);
    for column in 0..width.saturating_sub(1) {
        let entries = rows.iter().map(|row| row[column]).collect();
        column_of.push(*first.entry(entries).or_insert_with(|| {
            kept.push(column);
            // There are at most 256 classes of bytes.
            (kept.len() - 1) as u8
        }));
    }
    kept.push(width.saturating_sub(1));
    (kept, column_of)
}
