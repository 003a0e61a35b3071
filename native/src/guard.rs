//! A panic becomes a RuntimeError: PyO3 alone would raise what no `except Exception` catches.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// What `work` returns, or the text of its panic.
///
/// What it was changing is then in an unknown state: the callers let go of it.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(panic.as_ref()).to_owned())
}

/// As `caught`, for a function that Python calls.
pub fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    caught(work).unwrap_or_else(|text| Err(PyRuntimeError::new_err(fault(&text))))
}

/// How a panic is told.
pub fn fault(text: &str) -> String {
    format!("a fault in the native core: {text}")
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "of no text",
    }
}

/// Panics, for the test that this is a RuntimeError in Python.
#[pyfunction]
pub fn panics() -> PyResult<()> {
    guarded(|| panic!("as it was asked to"))
}
