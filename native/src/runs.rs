//! Runs of whole entries with whole payloads, and of payloads alone (point2point.md 4); `wire/bulk.py`.
//!
//! Done in steps, so that only those with Python's objects need the interpreter's lock: find out
//! where each entry's packets lie, ask for the hashes that links name, rebuild and hash, make objects.

use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::guard::guarded;
use crate::hashing::{HASH_BYTES, PREFIX, Yamf, parsed, unlocked, yamf};
use crate::lipmaa::{Link, link_count, lipmaa};
use crate::varu64;

const AUTHOR_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// The first byte of a raw payload packet.
const PAYLOAD: u8 = 8;

/// Where in the data the packets of one entry lie.
struct Place {
    is_end: bool,
    /// The backlink, if it is carried.
    backlink: Option<Yamf>,
    /// Of the size's first byte, its end, the end of the signature, and of the payload.
    size_at: usize,
    hash_at: usize,
    tail_end: usize,
    payload_at: usize,
    end: usize,
}

/// An entry with the hashes that it links to: the lipmaalink if it has one, the backlink if it has one.
struct Linked {
    seq: u64,
    place: Place,
    lipmaalink: Option<Link>,
    backlink: Option<Link>,
}

/// What `parse_run` needs to know of a log and its peer.
struct Request<'a> {
    data: &'a [u8],
    author: &'a [u8],
    log_id: u64,
    entries_max: u64,
    payload_bytes_max: u64,
}

/// Rebuilt entries: the encodings one after the other, where each ends, and their hashes.
#[derive(Default)]
struct Rebuilt {
    encodings: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<Yamf>,
    mismatch: bool,
}

/// The packets at `offset`, if all of them are there in the usual shape.
///
/// 128 or 129 | [backlink, 66] | size, V | payload hash, 66 | signature, 64 | 8 | V n | bytes
fn place(request: &Request<'_>, offset: usize, with_backlink: bool) -> Option<Place> {
    let data = request.data;
    let first = *data.get(offset)?;
    if first >> 1 != 64 {
        return None;
    }
    let mut size_at = offset + 1;
    let mut backlink = None;
    if with_backlink {
        backlink = Some(parsed(data.get(size_at..size_at + HASH_BYTES)?)?);
        size_at += HASH_BYTES;
    }
    let (n, hash_at) = canonical(data, size_at)?;
    if n > request.payload_bytes_max {
        return None;
    }
    let tail_end = hash_at + HASH_BYTES + SIGNATURE_BYTES;
    // The packet of the payload states the same size, in the same bytes.
    let payload_at = tail_end + 1 + hash_at - size_at;
    let end = payload_at.checked_add(usize::try_from(n).ok()?)?;
    let whole = end <= data.len()
        && data[tail_end] == PAYLOAD
        && data[tail_end + 1..payload_at] == data[size_at..hash_at]
        && data[hash_at..hash_at + 2] == PREFIX;
    let is_end = first & 1 == 1;
    whole.then_some(Place { is_end, backlink, size_at, hash_at, tail_end, payload_at, end })
}

/// `wire.entry.tail_offset`.
fn tail_offset(log_id: u64, seq: u64) -> usize {
    let mut numbers = Vec::with_capacity(18);
    varu64::put(&mut numbers, log_id);
    varu64::put(&mut numbers, seq);
    1 + AUTHOR_BYTES + numbers.len() + link_count(seq) * HASH_BYTES
}

/// The number at `at`, and the offset behind it, if it is there and as short as can be.
pub fn canonical(data: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *data.get(at)?;
    if first < 248 {
        return Some((u64::from(first), at + 1));
    }
    let end = at + 1 + usize::from(first - 247);
    let digits = data.get(at + 1..end)?;
    let n = varu64::from_digits(digits);
    (digits[0] != 0 && n >= 248).then_some((n, end))
}

/// The entries that are there whole, up to one that ends the log.
fn places(request: &Request<'_>, mut offset: usize, mut with_backlink: bool) -> Vec<Place> {
    let mut found = Vec::new();
    while (found.len() as u64) < request.entries_max {
        let Some(place) = place(request, offset, with_backlink) else { break };
        with_backlink = false;
        offset = place.end;
        let is_end = place.is_end;
        found.push(place);
        if is_end {
            break;
        }
    }
    found
}

/// The hash of entry `seq`, if it is known.
fn known(hashes: &Bound<'_, PyDict>, seq: u64) -> PyResult<Option<Yamf>> {
    let Some(found) = hashes.get_item(seq)? else {
        return Ok(None);
    };
    let hash = found.cast::<PyBytes>()?.as_bytes().try_into();
    let hash = hash.map_err(|_| PyValueError::new_err(format!("the hash of {seq} has 66 bytes")))?;
    Ok(Some(hash))
}

/// The entries whose links are known, up to the first where one is not; the first entry is `first`.
fn linked(hashes: &Bound<'_, PyDict>, first: u64, places: Vec<Place>) -> PyResult<Vec<Linked>> {
    let mut found = Vec::with_capacity(places.len());
    for (seq, place) in (first..=u64::MAX).zip(places) {
        let link = |to: u64| -> PyResult<Option<Link>> {
            Ok(match to.checked_sub(first) {
                Some(index) => Some(Link::Earlier(index as usize)),
                None => known(hashes, to)?.map(Link::Known),
            })
        };
        let (mut lipmaalink, mut backlink) = (None, None);
        if seq > 1 {
            backlink = link(seq - 1)?;
            if let Some(given) = place.backlink {
                if matches!(backlink, Some(Link::Known(held)) if held != given) {
                    break;
                }
                backlink = Some(Link::Known(given));
            }
            let to = lipmaa(seq);
            if to != seq - 1 {
                lipmaalink = link(to)?;
            }
            if backlink.is_none() || (to != seq - 1 && lipmaalink.is_none()) {
                break;
            }
        }
        found.push(Linked { seq, place, lipmaalink, backlink });
    }
    Ok(found)
}

/// Rebuilds and hashes entries, up to the first whose payload has another hash than it names.
fn rebuilt(request: &Request<'_>, entries: &[Linked]) -> Rebuilt {
    let mut made = Rebuilt::default();
    let mut log = request.author.to_vec();
    varu64::put(&mut log, request.log_id);
    for entry in entries {
        let place = &entry.place;
        let start = made.encodings.len();
        made.encodings.push(u8::from(place.is_end));
        made.encodings.extend_from_slice(&log);
        varu64::put(&mut made.encodings, entry.seq);
        for link in [&entry.lipmaalink, &entry.backlink].into_iter().flatten() {
            made.encodings.extend_from_slice(&link.hash(|index| made.hashes[index]));
        }
        made.encodings.extend_from_slice(&request.data[place.size_at..place.tail_end]);
        made.ends.push(made.encodings.len());
        made.hashes.push(yamf(&made.encodings[start..]));
        let named = &request.data[place.hash_at..place.hash_at + HASH_BYTES];
        if yamf(&request.data[place.payload_at..place.end])[..] != *named {
            made.mismatch = true;
            break;
        }
    }
    made
}

/// Equals `python_parse_run`, with (seq, encoding, hash, payload) for each entry, the index of the
/// last one if it is at fault, and the offset behind the run.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (data, offset, author, log_id, seq, hashes, entries_max, payload_bytes_max, with_backlink))]
pub fn parse_run<'py>(
    py: Python<'py>,
    data: &[u8],
    offset: usize,
    author: &[u8],
    log_id: u64,
    seq: u64,
    hashes: &Bound<'py, PyDict>,
    entries_max: u64,
    payload_bytes_max: u64,
    with_backlink: bool,
) -> PyResult<(Bound<'py, PyList>, Option<usize>, usize)> {
    guarded(|| {
        if seq == 0 {
            return Err(PyValueError::new_err("seqnums begin at 1"));
        }
        let entries_max = entries_max.min((u64::MAX - seq).saturating_add(1));
        let request = Request { data, author, log_id, entries_max, payload_bytes_max };
        let entries = linked(hashes, seq, places(&request, offset, with_backlink))?;
        let bytes = entries.last().map_or(0, |last| last.place.end - offset);
        let made = unlocked(py, bytes, || rebuilt(&request, &entries));
        let rows = PyList::empty(py);
        let mut start = 0;
        for ((entry, &end), hash) in entries.iter().zip(&made.ends).zip(&made.hashes) {
            let hash = PyBytes::new(py, hash);
            hashes.set_item(entry.seq, &hash)?;
            let encoded = PyBytes::new(py, &made.encodings[start..end]);
            let payload = PyBytes::new(py, &data[entry.place.payload_at..entry.place.end]);
            let row = (entry.seq, encoded, hash, payload);
            rows.append(Bound::<PyTuple>::clone(&row.into_pyobject(py)?))?;
            start = end;
        }
        let count = made.hashes.len();
        let end = if count == 0 { offset } else { entries[count - 1].place.end };
        Ok((rows, made.mismatch.then(|| count - 1), end))
    })
}

/// Where the payload of an entry lies if its packet is at `offset`, whole, raw, and of the size that
/// the entry names; and the hash that it is to have.
fn named<'a>(
    data: &[u8],
    offset: usize,
    encoded: &'a [u8],
    size_at: usize,
    payload_bytes_max: u64,
) -> Option<(Range<usize>, &'a [u8])> {
    let (size, hash_at) = canonical(encoded, size_at)?;
    let hash = encoded.get(hash_at..hash_at + HASH_BYTES)?;
    if size > payload_bytes_max || *data.get(offset)? != PAYLOAD {
        return None;
    }
    let (stated, start) = canonical(data, offset + 1)?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (stated == size && end <= data.len()).then_some((start..end, hash))
}

/// Equals `python_parse_payloads`.
#[pyfunction]
pub fn parse_payloads<'py>(
    py: Python<'py>,
    data: &[u8],
    offset: usize,
    log_id: u64,
    seq: u64,
    encodings: Vec<Bound<'py, PyBytes>>,
    payload_bytes_max: u64,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    guarded(|| {
        let mut found: Vec<(Range<usize>, &[u8])> = Vec::with_capacity(encodings.len());
        let mut end = offset;
        for (n, encoded) in (seq..=u64::MAX).zip(&encodings) {
            let size_at = tail_offset(log_id, n);
            let place = named(data, end, encoded.as_bytes(), size_at, payload_bytes_max);
            let Some(place) = place else { break };
            end = place.0.end;
            found.push(place);
        }
        let count = unlocked(py, end - offset, || {
            let is_right =
                |(place, hash): &&(Range<usize>, &[u8])| yamf(&data[place.clone()])[..] == **hash;
            found.iter().take_while(is_right).count()
        });
        let right = &found[..count];
        let payloads = right.iter().map(|(place, _)| PyBytes::new(py, &data[place.clone()]));
        let end = right.last().map_or(offset, |(place, _)| place.end);
        Ok((PyList::new(py, payloads.collect::<Vec<_>>())?, end))
    })
}
