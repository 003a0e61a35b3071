//! Threads that check signatures and never take the interpreter's lock; `peer/node/host/verify_threads.py`.
//!
//! Batches are copied on their way in, and verdicts are bytes, so that no thread here touches an
//! object of Python's. That there are verdicts to take shows as a readable file descriptor, which an
//! event loop waits for.
//!
//! A process that is forked has none of the threads, and whatever locks they held stay locked: a pool
//! touches neither unless it is in the process that made it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::guard::{caught, fault, guarded};
use crate::signature::{held, verdicts};

/// Entries to check: all of them one after the other, and where each ends.
struct Batch {
    number: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn verdicts(&self) -> Vec<u8> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let entries: Vec<&[u8]> =
            starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]).collect();
        verdicts(&entries)
    }
}

/// The number of a batch, and one verdict for each of its entries or the text of a panic.
type Answer = (u64, Result<Vec<u8>, String>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Batch>,
    idle: usize,
    answers: Vec<Answer>,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bell: UnixStream,
    /// Open for as long as a thread may ring, which without a listener would raise SIGPIPE.
    rung: UnixStream,
}

impl Shared {
    /// A panic never leaves it half changed: what may panic runs without it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(batch) = state.waiting.pop_front() {
                return Some(batch);
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn answer(&self, answer: Answer) {
        let mut state = self.lock();
        if state.answers.is_empty() {
            // Under the lock, so that there is one byte while there are answers, and none without.
            // It fails only where nobody listens any more.
            let _ = (&self.bell).write(&[0]);
        }
        state.answers.push(answer);
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some(batch) = self.next_batch() {
            self.answer((batch.number, caught(|| batch.verdicts())));
        }
    }
}

/// Checks batches of entries. Its threads start when there is work, and end when it is closed.
#[pyclass(frozen)]
pub struct Pool {
    shared: Arc<Shared>,
    threads_max: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
}

#[pymethods]
impl Pool {
    /// With `threads_max` threads at most. Raises OSError where there are no file descriptors left.
    #[new]
    fn new(threads_max: usize) -> PyResult<Pool> {
        guarded(|| {
            if threads_max == 0 {
                return Err(PyValueError::new_err("a pool needs a thread"));
            }
            let (rung, bell) = UnixStream::pair()?;
            rung.set_nonblocking(true)?;
            bell.set_nonblocking(true)?;
            let state = Mutex::new(State::default());
            let shared = Arc::new(Shared { state, changed: Condvar::new(), bell, rung });
            let threads = Mutex::new(Vec::new());
            Ok(Pool { shared, threads_max, threads, process: process::id() })
        })
    }

    /// The file descriptor that is readable while there are answers to take.
    fn fileno(&self) -> RawFd {
        self.shared.rung.as_raw_fd()
    }

    /// Queues a batch. Raises OSError, and takes nothing, where not one thread can be had, or in a
    /// process forked from that of the threads.
    fn submit(&self, number: u64, entries: &Bound<'_, PyList>) -> PyResult<()> {
        guarded(|| {
            if self.is_forked() {
                return Err(PyOSError::new_err("the threads are of the process before the fork"));
            }
            let held = held(entries)?;
            let mut batch = Batch {
                number,
                bytes: Vec::with_capacity(held.iter().map(|each| each.as_bytes().len()).sum()),
                ends: Vec::with_capacity(held.len()),
            };
            for encoded in &held {
                batch.bytes.extend_from_slice(encoded.as_bytes());
                batch.ends.push(batch.bytes.len());
            }
            self.ensure_thread()?;
            self.shared.lock().waiting.push_back(batch);
            self.shared.changed.notify_one();
            Ok(())
        })
    }

    /// What has been answered since the last call, in any order: numbers, and verdicts as
    /// `signatures_are_valid` gives them, or the text of a fault in place of them.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Taken<'py>)>> {
        guarded(|| {
            let answers = if self.is_forked() {
                // To ring for the process before is not silenced here either.
                Vec::new()
            } else {
                let mut state = self.shared.lock();
                let mut rung = [0; 8];
                let _ = (&self.shared.rung).read(&mut rung);
                std::mem::take(&mut state.answers)
            };
            Ok(answers.into_iter().map(|(number, answer)| (number, taken(py, answer))).collect())
        })
    }

    /// Forgets what waits, and returns once the threads have ended.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            if self.is_forked() {
                return Ok(());
            }
            self.shared.close();
            let threads = std::mem::take(&mut *self.threads());
            py.detach(|| threads.into_iter().for_each(|thread| drop(thread.join())));
            Ok(())
        })
    }
}

#[derive(IntoPyObject)]
enum Taken<'py> {
    Verdicts(Bound<'py, PyBytes>),
    Fault(String),
}

fn taken(py: Python<'_>, answer: Result<Vec<u8>, String>) -> Taken<'_> {
    match answer {
        Ok(verdicts) => Taken::Verdicts(PyBytes::new(py, &verdicts)),
        Err(text) => Taken::Fault(fault(&text)),
    }
}

impl Pool {
    fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more thread if none is idle and there may be more; fewer than wanted will do.
    fn ensure_thread(&self) -> PyResult<()> {
        let mut threads = self.threads();
        {
            let state = self.shared.lock();
            if state.closed {
                return Err(PyOSError::new_err("the pool is closed"));
            }
            if state.idle > state.waiting.len() || threads.len() == self.threads_max {
                return Ok(());
            }
        }
        let shared = Arc::clone(&self.shared);
        let started = Builder::new().name("verify".to_owned()).spawn(move || shared.work());
        match started {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => return Err(error.into()),
            Err(_) => (),
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_forked() {
            // There is nothing to detach from.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(threads));
        } else {
            self.shared.close();
        }
    }
}
