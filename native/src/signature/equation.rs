//! The verdict on a signature, which is that of libsodium's releases before 1.0.23.
//!
//! A signature is (R, S), a key is A. It is valid if
//!
//! 1. S is below the order of the group,
//! 2. A is the canonical encoding of a point that is not of small order,
//! 3. R is not the encoding of a point of small order, and
//! 4. R is, byte for byte, the encoding of [S]B - [k]A, where k is the hash of R, A and the message.
//!
//! No cofactor is multiplied in, and each signature has its own equation. Checking a random linear
//! combination of several would be faster still, and was not taken: who signs can make R so that it
//! passes together with others and fails alone, and then peers disagree on what is a log.

use std::sync::OnceLock;

use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use sha2::{Digest, Sha512};

use super::table::{Table, base_table};

pub const SIGNATURE_BYTES: usize = 64;
pub type KeyBytes = [u8; 32];

/// Encodings of points are made of so many at a time, which share one inversion in the field.
const ENCODED_AT_ONCE: usize = 32;

/// The last bytes of 2^255 - 19, the first being 0xed and the others 0xff.
const PRIME_FIRST: u8 = 0xed;
const PRIME_LAST: u8 = 0x7f;

/// A message, and what is said to be its signature.
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    pub message: &'a [u8],
    pub signature: &'a [u8; SIGNATURE_BYTES],
}

/// A public key that may have made valid signatures.
pub struct Key {
    bytes: KeyBytes,
    pub minus_a: EdwardsPoint,
}

impl Key {
    /// None if no signature is valid under this key (2).
    pub fn decode(bytes: &KeyBytes) -> Option<Key> {
        if !is_canonical(bytes) {
            return None;
        }
        let a = CompressedEdwardsY(*bytes).decompress()?;
        if a.is_small_order() {
            return None;
        }
        Some(Key { bytes: *bytes, minus_a: -a })
    }
}

/// Whether the y coordinate is below 2^255 - 19. The sign of x, the highest bit, is not looked at.
fn is_canonical(bytes: &KeyBytes) -> bool {
    let [first, middle @ .., last] = bytes;
    *first < PRIME_FIRST || last & PRIME_LAST != PRIME_LAST || middle.iter().any(|&byte| byte != 0xff)
}

/// The eight encodings of points of small order that (4) can make.
fn small_order() -> &'static [KeyBytes; 8] {
    static FOUND: OnceLock<[KeyBytes; 8]> = OnceLock::new();
    FOUND.get_or_init(|| EIGHT_TORSION.map(|point| point.compress().to_bytes()))
}

/// Appends the verdict on each claim, 1 or 0; `table` is of the multiples of `key.minus_a`.
pub fn judge(key: &Key, table: Option<&Table>, claims: &[Claim<'_>], verdicts: &mut Vec<u8>) {
    for group in claims.chunks(ENCODED_AT_ONCE) {
        let points: Vec<_> = group.iter().map(|claim| right_side(key, table, claim)).collect();
        let made: Vec<EdwardsPoint> = points.iter().flatten().copied().collect();
        let mut encodings = EdwardsPoint::compress_batch_alloc(&made).into_iter();
        for (claim, point) in group.iter().zip(&points) {
            let encoding = if point.is_some() { encodings.next() } else { None };
            let equal = encoding.is_some_and(|made| made.as_bytes() == r_and_s(claim).0);
            verdicts.push(u8::from(equal));
        }
    }
}

fn r_and_s<'a>(claim: &Claim<'a>) -> (&'a [u8; 32], &'a [u8; 32]) {
    let (r, s) = claim.signature.split_at(32);
    match (r.try_into(), s.try_into()) {
        (Ok(r), Ok(s)) => (r, s),
        _ => unreachable!("a signature has 64 bytes"),
    }
}

/// [S]B - [k]A; None if (1) or (3) does not hold.
fn right_side(key: &Key, table: Option<&Table>, claim: &Claim<'_>) -> Option<EdwardsPoint> {
    let (r, s) = r_and_s(claim);
    let s: Scalar = Option::from(Scalar::from_canonical_bytes(*s))?;
    if small_order().contains(r) {
        return None;
    }
    let hash =
        Sha512::new().chain_update(r).chain_update(key.bytes).chain_update(claim.message).finalize();
    let k = Scalar::from_bytes_mod_order_wide(&hash.into());
    Some(match table {
        Some(table) => base_table().times(&s) + table.times(&k),
        None => EdwardsPoint::vartime_double_scalar_mul_basepoint(&k, &key.minus_a, &s),
    })
}
