//! Rows of a store's entries, many at once: what is to be written or filled in, and what was read;
//! `logstore/usual.py`.
//!
//! Only the usual ones are taken: small payloads, numbers that go on, links that are known, hashes that
//! are right. At the first that is otherwise each function stops, and Python judges it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyTuple};

use crate::guard::guarded;
use crate::hashing::{HASH_BYTES, unlocked, yamf};
use crate::lipmaa::{link_count, lipmaa};
use crate::runs::canonical;
use crate::varu64;

const SIGNATURE_BYTES: usize = 64;

/// What all encodings of a log have behind the tag.
fn prefix(author: &[u8], log_id: u64) -> Vec<u8> {
    let mut made = author.to_vec();
    varu64::put(&mut made, log_id);
    made
}

/// Where the number of an entry ends, if the encoding is of this log and this number.
fn number_end(encoded: &[u8], prefix: &[u8], seq: u64) -> Option<usize> {
    let mut number = Vec::with_capacity(9);
    varu64::put(&mut number, seq);
    let rest = encoded.get(1..)?.strip_prefix(prefix)?;
    rest.starts_with(&number).then(|| 1 + prefix.len() + number.len())
}

/// The hash of the payload that an encoding names.
fn payload_hash(encoded: &[u8]) -> Option<&[u8]> {
    let end = encoded.len().checked_sub(SIGNATURE_BYTES)?;
    encoded.get(end.checked_sub(HASH_BYTES)?..end)
}

/// An entry with its payload, as Python gave it.
struct Given<'py> {
    seq: u64,
    encoded: Bound<'py, PyBytes>,
    hash: Bound<'py, PyBytes>,
    payload: Bound<'py, PyBytes>,
}

impl<'py> Given<'py> {
    fn hashed(&self) -> Hashed<'_> {
        (self.encoded.as_bytes(), self.hash.as_bytes(), Some(self.payload.as_bytes()))
    }

    /// From (seq, encoding, hash, payload, ..); None if it is anything else.
    fn from(entry: &Bound<'py, PyAny>) -> Option<Given<'py>> {
        let entry = entry.cast::<PyTuple>().ok()?;
        Some(Given {
            seq: entry.get_item(0).ok()?.extract().ok()?,
            encoded: entry.get_item(1).ok()?.cast_into().ok()?,
            hash: entry.get_item(2).ok()?.cast_into().ok()?,
            payload: entry.get_item(3).ok()?.cast_into().ok()?,
        })
    }
}

/// An encoding, the hash that it is to have, and the payload if there is one.
type Hashed<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>);

/// How many, from the first on, have the hashes that they say.
fn sound<'a>(py: Python<'_>, given: impl Iterator<Item = Hashed<'a>>) -> usize {
    let all: Vec<Hashed<'a>> = given.collect();
    let bytes =
        all.iter().map(|(encoded, _, payload)| encoded.len() + payload.map_or(0, <[u8]>::len)).sum();
    unlocked(py, bytes, || {
        let is_sound = |(encoded, hash, payload): &&Hashed<'a>| {
            yamf(encoded)[..] == **hash
                && payload.is_none_or(|payload| payload_hash(encoded) == Some(&yamf(payload)[..]))
        };
        all.iter().take_while(is_sound).count()
    })
}

/// Whether an encoding, from the end of its number on, has these links as far as they are known, this
/// size, and room for a payload hash and a signature.
fn ends_so(encoded: &[u8], number_end: usize, links: &[Option<&[u8]>], size: usize) -> bool {
    let mut at = number_end;
    for link in links {
        let given = encoded.get(at..at + HASH_BYTES);
        if given.is_none() || link.is_some_and(|known| given != Some(known)) {
            return false;
        }
        at += HASH_BYTES;
    }
    let mut digits = Vec::with_capacity(9);
    varu64::put(&mut digits, size as u64);
    encoded.get(at..).is_some_and(|rest| rest.starts_with(&digits))
        && encoded.len() == at + digits.len() + HASH_BYTES + SIGNATURE_BYTES
}

/// What entry `seq` links to: the hashes of its lipmaalink, if it has one, and of its backlink, each if
/// it is known.
fn links<'py>(
    earlier: &[Given<'py>],
    hashes: &Bound<'py, PyDict>,
    hash_of: &Bound<'py, PyAny>,
    seq: u64,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let hash = |to: u64| -> PyResult<Option<Bound<'py, PyBytes>>> {
        let first = earlier.first().map_or(seq, |first| first.seq);
        if let Some(index) = to.checked_sub(first) {
            return Ok(earlier.get(index as usize).map(|each| each.hash.clone()));
        }
        let found = match hashes.get_item(to)? {
            Some(found) => found,
            None => hash_of.call1((to,))?,
        };
        Ok(if found.is_none() { None } else { Some(found.cast_into()?) })
    };
    let far = lipmaa(seq);
    Ok(match seq {
        1 => Vec::new(),
        _ if far == seq - 1 => vec![hash(far)?],
        _ => vec![hash(far)?, hash(seq - 1)?],
    })
}

const CRC32_OF_BYTE: [u32; 256] = crc32_of_byte();

const fn crc32_of_byte() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

/// CRC-32 as of zlib.
fn crc32(data: &[u8]) -> u32 {
    let step = |sum: u32, &byte: &u8| CRC32_OF_BYTE[(sum as u8 ^ byte) as usize] ^ sum >> 8;
    !data.iter().fold(u32::MAX, step)
}

/// `logstore.rows.entry_tag`.
fn entry_tag(ingest: i64, log: i64, received_at: i64, state: u8) -> u32 {
    let mut packed = [0; 25];
    for (place, number) in packed.chunks_exact_mut(8).zip([ingest, log, received_at]) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    packed[24] = state;
    crc32(&packed)
}

/// What the rows of a run have in common.
#[derive(FromPyObject)]
pub struct Place<'py> {
    author: Bound<'py, PyBytes>,
    log_id: u64,
    /// Of the log.
    row_id: i64,
    /// Of the first row.
    ingest: i64,
    received_at: i64,
    state: u8,
}

/// Equals `python_rows_to_write`.
#[pyfunction]
pub fn rows_to_write<'py>(
    py: Python<'py>,
    entries: &Bound<'py, PyList>,
    start: usize,
    place: Place<'py>,
    hashes: &Bound<'py, PyDict>,
    encodings: &Bound<'py, PyDict>,
    hash_of: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyList>, usize, usize)> {
    guarded(|| {
        let prefix = prefix(place.author.as_bytes(), place.log_id);
        let mut given: Vec<Given<'py>> = Vec::new();
        for entry in entries.iter().skip(start) {
            let Some(next) = Given::from(&entry) else { break };
            if next.seq == 0
                || given.last().is_some_and(|last| last.seq.checked_add(1) != Some(next.seq))
            {
                break;
            }
            let encoded = next.encoded.as_bytes();
            let end = number_end(encoded, &prefix, next.seq);
            // The end of a log is a tag of 1, and limits what is held of it.
            let (Some(end), Some(0)) = (end, encoded.first()) else { break };
            let links = links(&given, hashes, hash_of, next.seq)?;
            let links: Vec<_> =
                links.iter().map(|link| link.as_ref().map(|hash| hash.as_bytes())).collect();
            // Without a path to entry 1 it cannot be stored.
            let has_path = next.seq == 1 || links.iter().any(Option::is_some);
            if !has_path || !ends_so(encoded, end, &links, next.payload.as_bytes().len()) {
                break;
            }
            given.push(next);
        }
        given.truncate(sound(py, given.iter().map(Given::hashed)));
        let rows = PyList::empty(py);
        let (mut encoded_bytes, mut payload_bytes) = (0, 0);
        for (each, ingest) in given.iter().zip(place.ingest..) {
            hashes.set_item(each.seq, &each.hash)?;
            encodings.set_item(each.seq, &each.encoded)?;
            let tag = entry_tag(ingest, place.row_id, place.received_at, place.state);
            let row = (
                ingest,
                place.row_id,
                PyBytes::new(py, &each.seq.to_be_bytes()),
                place.received_at,
                place.state,
                tag,
                &each.hash,
                &each.encoded,
                &each.payload,
            );
            rows.append(row)?;
            encoded_bytes += each.encoded.as_bytes().len();
            payload_bytes += each.payload.as_bytes().len();
        }
        Ok((rows, encoded_bytes, payload_bytes))
    })
}

/// A row without its payload: ingest, seq, received_at, encoding.
#[derive(FromPyObject)]
struct Lacking<'py>(i64, Bound<'py, PyBytes>, i64, Bound<'py, PyBytes>);

/// Equals `python_rows_to_fill`.
#[pyfunction]
pub fn rows_to_fill<'py>(
    py: Python<'py>,
    entries: &Bound<'py, PyList>,
    start: usize,
    place: Place<'py>,
    lacking: &Bound<'py, PyList>,
    at: usize,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    guarded(|| {
        let prefix = prefix(place.author.as_bytes(), place.log_id);
        let mut found: Vec<(Given<'py>, i64, i64)> = Vec::new();
        for (entry, row) in entries.iter().skip(start).zip(lacking.iter().skip(at)) {
            let Some(next) = Given::from(&entry) else { break };
            let Lacking(before, seq, received_at, held) = row.extract()?;
            let goes_on =
                found.last().is_none_or(|(last, ..)| last.seq.checked_add(1) == Some(next.seq));
            let encoded = next.encoded.as_bytes();
            if next.seq == 0
                || !goes_on
                || seq.as_bytes() != next.seq.to_be_bytes()
                || held.as_bytes() != encoded
            {
                break;
            }
            let Some(end) = number_end(encoded, &prefix, next.seq) else { break };
            let links = &[None, None][..link_count(next.seq)];
            if !ends_so(encoded, end, links, next.payload.as_bytes().len()) {
                break;
            }
            found.push((next, before, received_at));
        }
        found.truncate(sound(py, found.iter().map(|(given, ..)| given.hashed())));
        let rows = PyList::empty(py);
        let mut payload_bytes = 0;
        for ((given, before, received_at), ingest) in found.iter().zip(place.ingest..) {
            let tag = entry_tag(ingest, place.row_id, *received_at, place.state);
            rows.append((ingest, place.state, &given.payload, tag, *before))?;
            payload_bytes += given.payload.as_bytes().len();
        }
        Ok((rows, payload_bytes))
    })
}

/// A row that was read: (ingest, seq, received_at, state, hash, encoding, payload).
struct Read<'py> {
    ingest: Bound<'py, PyInt>,
    seq: u64,
    received_at: Bound<'py, PyInt>,
    state: Bound<'py, PyAny>,
    hash: Bound<'py, PyBytes>,
    encoded: Bound<'py, PyBytes>,
    payload: Option<Bound<'py, PyBytes>>,
}

impl<'py> Read<'py> {
    /// None if it is in no usual state, or its payload is not where that says.
    fn from(row: &Bound<'py, PyAny>, states: &Bound<'py, PyDict>, whole: u8) -> Option<Read<'py>> {
        let row = row.cast::<PyTuple>().ok()?;
        let seq = row.get_item(1).ok()?.cast_into::<PyBytes>().ok()?;
        let found = row.get_item(3).ok()?;
        let state = states.get_item(&found).ok()??;
        let payload = row.get_item(6).ok()?;
        let payload = if payload.is_none() { None } else { Some(payload.cast_into().ok()?) };
        if payload.is_some() != (found.extract::<u8>().ok()? == whole) {
            return None;
        }
        Some(Read {
            ingest: row.get_item(0).ok()?.cast_into().ok()?,
            seq: u64::from_be_bytes(seq.as_bytes().try_into().ok()?),
            received_at: row.get_item(2).ok()?.cast_into().ok()?,
            state,
            hash: row.get_item(4).ok()?.cast_into().ok()?,
            encoded: row.get_item(5).ok()?.cast_into().ok()?,
            payload,
        })
    }

    fn hashed(&self) -> Hashed<'_> {
        let payload = self.payload.as_ref().map(|payload| payload.as_bytes());
        (self.encoded.as_bytes(), self.hash.as_bytes(), payload)
    }

    /// The size of its payload, where the encoding states it as a number.
    fn size(&self, number_end: usize) -> Option<u64> {
        match &self.payload {
            Some(payload) => Some(payload.as_bytes().len() as u64),
            None => {
                let at = number_end + link_count(self.seq) * HASH_BYTES;
                canonical(self.encoded.as_bytes(), at).map(|(size, _)| size)
            }
        }
    }
}

/// Equals `python_rows_read`.
#[pyfunction]
pub fn rows_read<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyList>,
    key: &Bound<'py, PyTuple>,
    start: u64,
    states: &Bound<'py, PyDict>,
    whole: u8,
) -> PyResult<Bound<'py, PyList>> {
    guarded(|| {
        let (author, log_id): (Bound<'py, PyBytes>, u64) = key.extract()?;
        let prefix = prefix(author.as_bytes(), log_id);
        let mut next = start;
        let mut read: Vec<(Read<'py>, u64)> = Vec::with_capacity(rows.len());
        for row in rows.iter() {
            let Some(each) = Read::from(&row, states, whole) else { break };
            let seq = each.seq;
            let Some(end) = number_end(each.encoded.as_bytes(), &prefix, seq) else { break };
            let Some(size) = each.size(end) else { break };
            if seq < next {
                break;
            }
            read.push((each, size));
            let Some(after) = seq.checked_add(1) else { break };
            next = after;
        }
        let count = sound(py, read.iter().map(|(each, _)| each.hashed()));
        let entries = PyList::empty(py);
        for (each, size) in &read[..count] {
            entries.append((
                key,
                each.seq,
                &each.ingest,
                &each.encoded,
                &each.hash,
                &each.received_at,
                &each.state,
                &each.payload,
                size,
                0,
            ))?;
        }
        Ok(entries)
    })
}
