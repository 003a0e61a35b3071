//! LZ4's matches as LZFoo elements (encodings.md); `wire/lzfoo_encoder.py`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::guarded;
use crate::hashing::unlocked;
use crate::varu64::{put, put_length};

const LZ4_MATCH_MIN: usize = 4;
/// What the half of a token says where the length goes on in the bytes that follow.
const GOES_ON: usize = 15;
/// Copies of this length are worth it only with an offset of one byte.
const ONE_BYTE_OFFSETS: usize = 248;

const LITERAL: u8 = 0;
const COPY: u8 = 128;

/// The head of an element of `n` bytes.
fn put_head(out: &mut Vec<u8>, kind: u8, n: usize) {
    put_length(out, n as u64, 120, 119, kind);
}

fn put_literal(out: &mut Vec<u8>, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_head(out, LITERAL, bytes.len());
        out.extend_from_slice(bytes);
    }
}

/// Reads an LZ4 block: a run of sequences, the last of which ends with its literals.
struct Block<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl Block<'_> {
    fn byte(&mut self) -> Option<usize> {
        let byte = *self.bytes.get(self.pos)?;
        self.pos += 1;
        Some(usize::from(byte))
    }

    /// A length of which the token has said `n`.
    fn length(&mut self, mut n: usize) -> Option<usize> {
        if n == GOES_ON {
            loop {
                let more = self.byte()?;
                n = n.checked_add(more)?;
                if more < 255 {
                    break;
                }
            }
        }
        Some(n)
    }
}

/// The elements; None if `block` is not LZ4's of `data`.
fn rewritten(block: &[u8], data: &[u8], window: usize) -> Option<Vec<u8>> {
    let mut block = Block { bytes: block, pos: 0 };
    let mut out = Vec::with_capacity(block.bytes.len());
    let mut at = 0usize; // in the data
    let mut literal = 0; // where the pending literal begins in the data
    loop {
        let token = block.byte()?;
        let n = block.length(token >> 4)?;
        block.pos = block.pos.checked_add(n)?;
        at = at.checked_add(n)?;
        if block.pos == block.bytes.len() {
            break;
        }
        let offset = block.byte()? | block.byte()? << 8;
        let n = block.length(token & 15)? + LZ4_MATCH_MIN;
        // A match beyond the window, or whose copy takes as many bytes as it saves, stays literal.
        if offset <= window && (n > LZ4_MATCH_MIN || offset < ONE_BYTE_OFFSETS) {
            put_literal(&mut out, data.get(literal..at)?);
            put_head(&mut out, COPY, n);
            put(&mut out, offset as u64);
            literal = at.checked_add(n)?;
        }
        at = at.checked_add(n)?;
    }
    if at != data.len() {
        return None;
    }
    put_literal(&mut out, data.get(literal..)?);
    Some(out)
}

/// Equals `python_lz4_to_lzfoo`. Raises ValueError if `block` is not LZ4's of `data`.
#[pyfunction]
pub fn lz4_to_lzfoo<'py>(
    py: Python<'py>,
    block: &[u8],
    data: &[u8],
    window: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| match unlocked(py, block.len(), || rewritten(block, data, window)) {
        Some(elements) => Ok(PyBytes::new(py, &elements)),
        None => Err(PyValueError::new_err("this is not LZ4's block of these bytes")),
    })
}
