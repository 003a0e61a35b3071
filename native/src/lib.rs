//! The native core of bamboo-peer: what it does most often, without the interpreter's lock.
//!
//! Every function here has one in Python that it equals, byte for byte and error for error, and that
//! is named beside it. That one is the reading matter and the oracle (tests/wire/test_native.py); it
//! also does the work wherever this core is not installed. Bytes of a peer cost memory in proportion
//! to their number, never to a length that they claim, and a bug in here is an exception in Python.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

mod chunks;
mod guard;
mod hashing;
mod keccak;
mod lipmaa;
mod lzfoo_decoder;
mod lzfoo_rewriting;
mod pool;
mod rows;
mod runs;
mod signature;
mod signing;
mod varu64;

/// What Python sees; `wire/native.py` has the types.
#[pymodule]
mod bamboo_native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::chunks::content_address;
    #[pymodule_export]
    use crate::guard::panics;
    #[pymodule_export]
    use crate::hashing::{PayloadHasher, yamf_hash};
    #[pymodule_export]
    use crate::lzfoo_decoder::LZFooDecoder;
    #[pymodule_export]
    use crate::lzfoo_rewriting::lz4_to_lzfoo;
    #[pymodule_export]
    use crate::pool::Pool;
    #[pymodule_export]
    use crate::rows::{rows_read, rows_to_fill, rows_to_write};
    #[pymodule_export]
    use crate::runs::{parse_payloads, parse_run};
    #[pymodule_export]
    use crate::signature::{signature_is_valid, signatures_are_valid, verify, verify_with_tables};

    #[pymodule_export]
    use crate::signing::Signer;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Raised whenever a function takes or returns something else than before: `wire/native.py`
        // takes no core with another number.
        module.add("INTERFACE", 6)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
