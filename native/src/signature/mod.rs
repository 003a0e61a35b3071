//! Signatures of entries (bamboo.md Verified); `wire/signature.py`.

mod authors;
mod equation;
mod table;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::guard::guarded;
use authors::{Author, authors};
use equation::{Claim, Key, KeyBytes, SIGNATURE_BYTES, judge};

/// Tag, author, and the signature at the end: the least that can be judged.
const SIGNED_BYTES_MIN: usize = 1 + 32 + SIGNATURE_BYTES;

/// The author that an encoding names, what was signed, and the signature.
fn parts(encoded: &[u8]) -> Option<(KeyBytes, Claim<'_>)> {
    if encoded.len() < SIGNED_BYTES_MIN {
        return None;
    }
    let (_, after_tag) = encoded.split_first()?;
    let (author, _) = after_tag.split_first_chunk()?;
    let (message, signature) = encoded.split_last_chunk()?;
    Some((*author, Claim { message, signature }))
}

/// One verdict for each encoding, 1 if its signature is its author's, else 0.
pub fn verdicts(entries: &[&[u8]]) -> Vec<u8> {
    let parsed: Vec<_> = entries.iter().map(|encoded| parts(encoded)).collect();
    let mut found = Vec::with_capacity(entries.len());
    // Runs of one author, or of encodings that are too short to have one.
    for run in parsed.chunk_by(|one, next| author_of(one) == author_of(next)) {
        let author = author_of(&run[0]).and_then(|bytes| authors().look_up(&bytes, run.len()));
        match author {
            Some(author) => {
                let claims: Vec<_> = run.iter().flatten().map(|(_, claim)| *claim).collect();
                judge(&author.key, author.table(), &claims, &mut found);
            }
            None => found.resize(found.len() + run.len(), 0),
        }
    }
    found
}

fn author_of(parsed: &Option<(KeyBytes, Claim<'_>)>) -> Option<KeyBytes> {
    parsed.as_ref().map(|(author, _)| *author)
}

/// Equals `python_signature_is_valid`.
///
/// Keeps the interpreter's lock: getting it back can take longer than the check.
#[pyfunction]
pub fn signature_is_valid(encoded: &[u8]) -> PyResult<bool> {
    guarded(|| Ok(verdicts(&[encoded]) == [1]))
}

/// Equals `python_signature_is_valid` of each: one byte, 1 or 0, for each encoding.
#[pyfunction]
pub fn signatures_are_valid<'py>(
    py: Python<'py>,
    entries: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let held = held(entries)?;
        let slices: Vec<&[u8]> = held.iter().map(|encoded| encoded.as_bytes()).collect();
        let found = py.detach(|| verdicts(&slices));
        Ok(PyBytes::new(py, &found))
    })
}

/// The encodings of a list, kept alive.
pub fn held<'py>(entries: &Bound<'py, PyList>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    entries.iter().map(|encoded| Ok(encoded.cast_into::<PyBytes>()?)).collect()
}

/// Equals `python_verify`: of public key, message, signature; the way of an author seen seldom.
#[pyfunction]
pub fn verify(public_key: &[u8], message: &[u8], signature: &[u8]) -> PyResult<bool> {
    guarded(|| Ok(verified(public_key, message, signature, false)))
}

/// As `verify`, the way of an author seen often.
#[pyfunction]
pub fn verify_with_tables(public_key: &[u8], message: &[u8], signature: &[u8]) -> PyResult<bool> {
    guarded(|| Ok(verified(public_key, message, signature, true)))
}

fn verified(public_key: &[u8], message: &[u8], signature: &[u8], with_table: bool) -> bool {
    let key = public_key.try_into().ok().and_then(|bytes| Key::decode(&bytes));
    let (Some(key), Ok(signature)) = (key, signature.try_into()) else {
        return false;
    };
    let author = Author::new(key);
    if with_table {
        author.make_table();
    }
    let mut found = Vec::with_capacity(1);
    judge(&author.key, author.table(), &[Claim { message, signature }], &mut found);
    found == [1]
}
