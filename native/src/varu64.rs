//! VarU64 (encodings.md); `wire/varu64.py`.

/// Appends the canonical encoding of `n`; equals `encode_varu64`.
pub fn put(out: &mut Vec<u8>, n: u64) {
    put_length(out, n, 248, 247, 0);
}

/// Appends a number below `small` as one byte, any other as `base` and the count of bytes that follow,
/// with the bits of `kind` set in the first byte.
pub fn put_length(out: &mut Vec<u8>, n: u64, small: u64, base: u8, kind: u8) {
    let bytes = n.to_be_bytes();
    if n < small {
        out.push(kind | bytes[7]);
        return;
    }
    // `small` is above 0, so that at least one byte is left.
    let zeros = (n.leading_zeros() / 8) as usize;
    let digits = &bytes[zeros..];
    out.push(kind | (base + digits.len() as u8));
    out.extend_from_slice(digits);
}

/// The number with these big-endian bytes, at most eight.
pub fn from_digits(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |n, &digit| n << 8 | u64::from(digit))
}
