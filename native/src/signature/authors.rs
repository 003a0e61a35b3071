//! The authors whose signatures were checked last, and the tables of those with many.
//!
//! Nobody waits here for another thread: in a forked process there is no other, and what one held
//! stays held. Who finds something taken does without it, which takes longer and judges the same.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use super::equation::{Key, KeyBytes};
use super::table::Table;

/// A table takes 379 KB and as long to make as it saves in some 25 checks.
const DIGIT_BITS: usize = 7;
const TABLE_FROM_ENTRIES: usize = 32;
/// So that all of them take 3 MB at most, whoever sends what.
const REMEMBERED: usize = 8;

/// A key that may be valid, and its table once that is worth it.
pub struct Author {
    pub key: Key,
    table_begun: AtomicBool,
    table: OnceLock<Table>,
}

impl Author {
    pub fn new(key: Key) -> Author {
        Author { key, table_begun: AtomicBool::new(false), table: OnceLock::new() }
    }

    pub fn table(&self) -> Option<&Table> {
        self.table.get()
    }

    /// Makes the table, unless a thread has begun to.
    pub fn make_table(&self) {
        if !self.table_begun.swap(true, Ordering::Relaxed) {
            let _ = self.table.set(Table::new(&self.key.minus_a, DIGIT_BITS));
        }
    }
}

struct Remembered {
    bytes: KeyBytes,
    entries: usize,
    /// None if no signature can be valid.
    author: Option<Arc<Author>>,
}

/// Those looked up last, the latest in front.
pub struct Authors {
    latest: Mutex<VecDeque<Remembered>>,
}

/// The authors of this process.
pub fn authors() -> &'static Authors {
    static AUTHORS: Authors = Authors { latest: Mutex::new(VecDeque::new()) };
    &AUTHORS
}

impl Authors {
    /// The author with this key, who signed `entries` more; None if they cannot have.
    pub fn look_up(&self, bytes: &KeyBytes, entries: usize) -> Option<Arc<Author>> {
        let (author, often) = {
            let Some(mut latest) = self.lock() else {
                return Key::decode(bytes).map(arc);
            };
            let place = latest.iter().position(|each| each.bytes == *bytes);
            let mut found = match place.and_then(|place| latest.remove(place)) {
                Some(found) => found,
                None => Remembered { bytes: *bytes, entries: 0, author: Key::decode(bytes).map(arc) },
            };
            found.entries = found.entries.saturating_add(entries);
            let told = (found.author.clone(), found.entries >= TABLE_FROM_ENTRIES);
            latest.push_front(found);
            latest.truncate(REMEMBERED);
            told
        };
        let author = author?;
        if often {
            author.make_table();
        }
        Some(author)
    }

    /// None while a thread has it. What a panic leaves is whole: between taking out and putting in
    /// nothing can panic.
    fn lock(&self) -> Option<MutexGuard<'_, VecDeque<Remembered>>> {
        match self.latest.try_lock() {
            Ok(latest) => Some(latest),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn arc(key: Key) -> Arc<Author> {
    Arc::new(Author::new(key))
}
