//! Lipmaalinks (bamboo.md); `wire/pools.py` has the theory. And links of runs that are being made.

use crate::hashing::Yamf;

/// What an entry of a run links to: a hash that is known, or that of an entry of the same run.
pub enum Link {
    Known(Yamf),
    Earlier(usize),
}

impl Link {
    /// The hash; `earlier` tells those of the run, by index.
    pub fn hash(&self, earlier: impl Fn(usize) -> Yamf) -> Yamf {
        match self {
            Link::Known(hash) => *hash,
            Link::Earlier(index) => earlier(*index),
        }
    }
}

/// The spine numbers (3^k - 1) / 2 below 2^64, from k = 0 on.
const SPINE: [u64; 42] = spine();

const fn spine() -> [u64; 42] {
    let mut numbers = [0; 42];
    let mut k = 1;
    while k < numbers.len() {
        numbers[k] = 3 * numbers[k - 1] + 1;
        k += 1;
    }
    numbers
}

/// The seqnum that entry `n` (at least 1) links back to; 0 for n = 1; equals `lipmaa`.
pub fn lipmaa(n: u64) -> u64 {
    let above = SPINE.partition_point(|&number| number < n);
    if SPINE.get(above) == Some(&n) {
        // By 3^(k-1).
        return n - (2 * SPINE[above - 1] + 1);
    }
    let mut rest = n;
    for k in (1..above).rev() {
        rest %= SPINE[k];
        if rest == 0 {
            return n - SPINE[k];
        }
    }
    // S(1) = 1 divides every number.
    unreachable!("{n} has a lipmaalink")
}

/// How many links the encoding of entry `n` has.
pub fn link_count(n: u64) -> usize {
    match n {
        0 | 1 => 0,
        _ if lipmaa(n) == n - 1 => 1,
        _ => 2,
    }
}
