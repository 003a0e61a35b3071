//! Addresses of Swarm's content chunks (swarm.md 2.7); `gateways/swarm/bmt.py`.

use std::sync::LazyLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::guarded;
use crate::keccak::{DIGEST_LANES, Digest, digest};

const SPAN_BYTES: usize = 8;
const PAYLOAD_BYTES_MAX: usize = 4096;
const LANE_BYTES: usize = 8;
const PIECE_LANES: usize = 2 * DIGEST_LANES;
/// Of digests, from the hashes of a payload's 64 pieces up to the one that is its root.
const ROWS: usize = 7;

/// From so many bytes on the interpreter's lock is worth letting go of: tens of microseconds.
const UNLOCKED_BYTES: usize = 2048;

/// In each row the digest of a subtree of zeros, but for the root's.
static ZERO_NODES: LazyLock<[Digest; ROWS - 1]> = LazyLock::new(|| {
    let mut nodes = [digest(&[0; PIECE_LANES]); ROWS - 1];
    for row in 1..nodes.len() {
        nodes[row] = digest(&[nodes[row - 1], nodes[row - 1]].concat());
    }
    nodes
});

/// The address of a chunk: its span, and a payload of 1 to 4096 bytes.
fn address(chunk: &[u8]) -> [u8; 32] {
    let (span, payload) = chunk.split_at(SPAN_BYTES);
    let mut lanes = [0; PAYLOAD_BYTES_MAX / LANE_BYTES];
    for (lane, bytes) in lanes.iter_mut().zip(payload.chunks(LANE_BYTES)) {
        *lane = lane_of(bytes);
    }
    // Each row is written over the one below it, whose lanes were read by then.
    let mut pieces = payload.len().div_ceil(PIECE_LANES * LANE_BYTES);
    for row in 0..ROWS {
        for piece in 0..pieces {
            let node = digest(&lanes[piece * PIECE_LANES..][..PIECE_LANES]);
            lanes[piece * DIGEST_LANES..][..DIGEST_LANES].copy_from_slice(&node);
        }
        if pieces % 2 == 1 && row < ROWS - 1 {
            lanes[pieces * DIGEST_LANES..][..DIGEST_LANES].copy_from_slice(&ZERO_NODES[row]);
        }
        pieces = pieces.div_ceil(2);
    }
    let mut last = [0; 1 + DIGEST_LANES];
    last[0] = lane_of(span);
    last[1..].copy_from_slice(&lanes[..DIGEST_LANES]);
    let mut address = [0; 32];
    for (bytes, lane) in address.chunks_mut(LANE_BYTES).zip(digest(&last)) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    address
}

/// Up to eight bytes, with zeros behind them.
fn lane_of(bytes: &[u8]) -> u64 {
    let mut whole = [0; LANE_BYTES];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

/// Equals `python_content_address`.
#[pyfunction]
pub fn content_address<'py>(py: Python<'py>, chunk: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let size = chunk.len();
        if !(SPAN_BYTES < size && size <= SPAN_BYTES + PAYLOAD_BYTES_MAX) {
            let text = format!("a chunk of {size} bytes: it has 9 to 4104");
            return Err(PyValueError::new_err(text));
        }
        let found = if size < UNLOCKED_BYTES { address(chunk) } else { py.detach(|| address(chunk)) };
        Ok(PyBytes::new(py, &found))
    })
}
