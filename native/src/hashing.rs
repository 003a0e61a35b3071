//! YAMF hashes (encodings.md); `wire/yamf.py`.

use blake2b_simd::{State, blake2b};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::guarded;

pub const HASH_BYTES: usize = 66;
/// Type 0 (BLAKE2b) and digest length 64.
pub const PREFIX: [u8; 2] = [0, 64];
pub type Yamf = [u8; HASH_BYTES];

/// From so many bytes on the interpreter's lock is worth letting go of: 30 microseconds of hashing.
const UNLOCKED_BYTES: usize = 1 << 15;

/// The yamf hash of `data`.
pub fn yamf(data: &[u8]) -> Yamf {
    with_prefix(blake2b(data).as_array())
}

/// The yamf hash that `bytes` are, if they are one of the type that there is.
pub fn parsed(bytes: &[u8]) -> Option<Yamf> {
    bytes.try_into().ok().filter(|hash: &Yamf| hash[..2] == PREFIX)
}

fn with_prefix(digest: &[u8; 64]) -> Yamf {
    let mut hash = [0; HASH_BYTES];
    hash[..2].copy_from_slice(&PREFIX);
    hash[2..].copy_from_slice(digest);
    hash
}

/// Runs `work`, without the interpreter's lock if it is about many bytes.
pub fn unlocked<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < UNLOCKED_BYTES { work() } else { py.detach(work) }
}

/// Equals `yamf_hash`.
#[pyfunction]
pub fn yamf_hash<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| Ok(PyBytes::new(py, &unlocked(py, data.len(), || yamf(data)))))
}

/// Equals `PythonPayloadHasher`.
#[pyclass]
pub struct PayloadHasher {
    state: State,
}

#[pymethods]
impl PayloadHasher {
    #[new]
    fn new() -> Self {
        PayloadHasher { state: State::new() }
    }

    fn update(&mut self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        guarded(|| {
            let state = &mut self.state;
            unlocked(py, data.len(), || {
                state.update(data);
            });
            Ok(())
        })
    }

    fn digest_yamf<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        guarded(|| Ok(PyBytes::new(py, &with_prefix(self.state.finalize().as_array()))))
    }
}
