//! Own entries, signed; `wire/signing.py`.

use ed25519_dalek::{Signer as _, SigningKey};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::guard::guarded;
use crate::hashing::{Yamf, parsed, yamf};
use crate::lipmaa::{Link, lipmaa};
use crate::varu64;

/// What is to be signed of one entry: its links, but for the backlink, and its payload.
struct Draft {
    lipmaalink: Option<Link>,
    payload_bytes: u64,
    payload_hash: Yamf,
}

/// Where the run stands in its log.
struct Place {
    log_id: u64,
    /// Of the first entry.
    seq: u64,
    backlink: Option<Yamf>,
    /// Whether the last entry is the log's.
    is_end: bool,
}

/// An encoding and its hash.
type Objects<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Signs as `wire.signing.Signer` does without it, with one key. The copy of it is overwritten when
/// this goes away.
#[pyclass(frozen)]
pub struct Signer {
    key: SigningKey,
}

#[pymethods]
impl Signer {
    #[new]
    fn new(seed: &[u8]) -> PyResult<Self> {
        let seed = seed.try_into().map_err(|_| PyValueError::new_err("a seed has 32 bytes"))?;
        guarded(|| Ok(Signer { key: SigningKey::from_bytes(seed) }))
    }

    /// The signature of a message.
    fn sign<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        guarded(|| Ok(PyBytes::new(py, &self.key.sign(message).to_bytes())))
    }

    /// Equals `Signer.sign_run`; None where anything is not as it has to be, for Python to say what.
    #[allow(clippy::too_many_arguments)]
    fn sign_run<'py>(
        &self,
        py: Python<'py>,
        log_id: &Bound<'py, PyAny>,
        seq: &Bound<'py, PyAny>,
        is_end: bool,
        backlink: Option<&[u8]>,
        link_of: &Bound<'py, PyAny>,
        payloads: &Bound<'py, PyList>,
    ) -> PyResult<Option<Vec<Objects<'py>>>> {
        guarded(|| {
            let (Ok(log_id), Ok(seq)) = (log_id.extract(), seq.extract()) else { return Ok(None) };
            let known = backlink.and_then(parsed);
            let place = Place { log_id, seq, backlink: known, is_end };
            // Entry 1 has no backlink, and each other one has.
            if seq == 0 || (seq > 1) != known.is_some() || known.is_some() != backlink.is_some() {
                return Ok(None);
            }
            let Some(drafts) = drafts(&place, link_of, payloads)? else { return Ok(None) };
            let work = || sign_all(&self.key, &place, &drafts);
            // Getting the lock back can take longer than to sign one.
            let signed = if drafts.len() == 1 { work() } else { py.detach(work) };
            let object =
                |(encoded, hash): &(Vec<u8>, Yamf)| (PyBytes::new(py, encoded), PyBytes::new(py, hash));
            Ok(Some(signed.iter().map(object).collect()))
        })
    }
}

/// What is to be signed, as Python gave it.
fn drafts<'py>(
    place: &Place,
    link_of: &Bound<'py, PyAny>,
    payloads: &Bound<'py, PyList>,
) -> PyResult<Option<Vec<Draft>>> {
    let mut made = Vec::with_capacity(payloads.len());
    let mut next = Some(place.seq);
    for payload in payloads.iter() {
        let Some(seq) = next else { return Ok(None) };
        let payload = payload.cast::<PyTuple>()?;
        let Ok(payload_bytes) = payload.get_item(0)?.extract() else { return Ok(None) };
        let Some(payload_hash) = parsed(payload.get_item(1)?.extract()?) else { return Ok(None) };
        let far = lipmaa(seq);
        let lipmaalink = if seq == 1 || far == seq - 1 {
            None
        } else if let Some(index) = far.checked_sub(place.seq) {
            Some(Link::Earlier(index as usize))
        } else if let (true, Some(known)) = (far == place.seq - 1, place.backlink) {
            Some(Link::Known(known))
        } else {
            let Some(known) = parsed(link_of.call1((far,))?.extract()?) else { return Ok(None) };
            Some(Link::Known(known))
        };
        made.push(Draft { lipmaalink, payload_bytes, payload_hash });
        next = seq.checked_add(1);
    }
    Ok(Some(made))
}

/// Each entry with its hash, to which the next one links.
fn sign_all(key: &SigningKey, place: &Place, drafts: &[Draft]) -> Vec<(Vec<u8>, Yamf)> {
    let author = key.verifying_key().to_bytes();
    let mut signed: Vec<(Vec<u8>, Yamf)> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let is_end = place.is_end && index + 1 == drafts.len();
        let mut encoded = Vec::with_capacity(322);
        encoded.push(u8::from(is_end));
        encoded.extend_from_slice(&author);
        varu64::put(&mut encoded, place.log_id);
        varu64::put(&mut encoded, place.seq + index as u64);
        if let Some(link) = &draft.lipmaalink {
            encoded.extend_from_slice(&link.hash(|index| signed[index].1));
        }
        if let Some(hash) = signed.last().map(|(_, hash)| hash).or(place.backlink.as_ref()) {
            encoded.extend_from_slice(hash);
        }
        varu64::put(&mut encoded, draft.payload_bytes);
        encoded.extend_from_slice(&draft.payload_hash);
        let signature = key.sign(&encoded);
        encoded.extend_from_slice(&signature.to_bytes());
        let hash = yamf(&encoded);
        signed.push((encoded, hash));
    }
    signed
}
