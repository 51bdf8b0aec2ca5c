//! Approximately how often a key was a hit recently: counters of 8 bits, two for each key, halved from time to time. Bounded, without a lock. A
//! count that two threads write at once may lose one of both.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const LANES: usize = 8;
const HALF: u64 = 0x7f7f_7f7f_7f7f_7f7f;

#[derive(Debug)]
pub(crate) struct Sketch {
    /// Eight counters each. A power of two.
    words: Box<[AtomicU64]>,
    /// Counted since all were halved.
    counted: AtomicUsize,
}

impl Sketch {
    /// For about this number of keys.
    pub(crate) fn new(keys: usize) -> Self {
        let words = (keys.max(1024) * 4 / LANES).next_power_of_two();
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), counted: AtomicUsize::new(0) }
    }

    fn places(&self, hash: u64) -> [(&AtomicU64, u32); 2] {
        let place = |hash: u64| {
            let word = (hash >> 8) as usize & (self.words.len() - 1);
            (&self.words[word], (hash & 7) as u32 * 8)
        };
        [place(hash), place(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32))]
    }

    pub(crate) fn count(&self, hash: u64) -> u8 {
        let count = |(word, lane): (&AtomicU64, u32)| (word.load(Ordering::Relaxed) >> lane) as u8;
        let [one, other] = self.places(hash);
        count(one).min(count(other))
    }

    /// One more. All counts are halved after `period`.
    pub(crate) fn add(&self, hash: u64, period: usize) {
        for (word, lane) in self.places(hash) {
            let now = word.load(Ordering::Relaxed);
            if (now >> lane) as u8 != u8::MAX {
                word.store(now + (1 << lane), Ordering::Relaxed);
            }
        }
        if self.counted.fetch_add(1, Ordering::Relaxed) + 1 >= period {
            self.counted.store(0, Ordering::Relaxed);
            for word in &self.words {
                let now = word.load(Ordering::Relaxed);
                word.store((now >> 1) & HALF, Ordering::Relaxed);
            }
        }
    }

    /// From 0 again.
    pub(crate) fn forget(&self, hash: u64) {
        for (word, lane) in self.places(hash) {
            word.fetch_and(!(0xff << lane), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_forgotten_and_halved() {
        let sketch = Sketch::new(1024);
        assert_eq!(sketch.count(7), 0);
        (0..5).for_each(|_| sketch.add(7, 1000));
        sketch.add(8, 1000);
        assert_eq!((sketch.count(7), sketch.count(8)), (5, 1));
        sketch.forget(7);
        assert_eq!(sketch.count(7), 0);
        (0..300).for_each(|_| sketch.add(9, 1_000_000));
        assert_eq!(sketch.count(9), u8::MAX);
        sketch.add(10, 2);
        assert_eq!(sketch.count(9), 127);
    }

    #[test]
    fn keys_that_are_asked_for_once_each_are_not_taken_for_frequent_ones() {
        let sketch = Sketch::new(4096);
        let hash = |n: u64| {
            n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0xd6e8_feb8_6659_fd93)
        };
        (0..100_000).for_each(|n| sketch.add(hash(n), 8 * 4096));
        let frequent = (1_000_000..1_010_000).filter(|n| sketch.count(hash(*n)) >= 3).count();
        assert!(frequent < 2500, "{frequent} of 10,000");
    }
}
