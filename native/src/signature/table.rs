//! Multiples of a point, so that multiplying it takes an addition for each digit and no doubling.
//!
//! The time depends on the scalar: for public numbers only.

use std::sync::OnceLock;

use curve25519_dalek::constants::ED25519_BASEPOINT_POINT;
use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;

/// Bits of a digit for the base point, whose table of 655 KB is made once.
const BASE_DIGIT_BITS: usize = 8;

/// The table of a point.
pub struct Table {
    digit_bits: usize,
    /// For digit i: the multiples by 1 to 2^(digit_bits - 1) of 2^(i digit_bits) times the point.
    multiples: Vec<EdwardsPoint>,
}

impl Table {
    /// `digit_bits`: 4 to 8. Takes 254 bits worth of digits, each 2^(digit_bits - 1) points.
    pub fn new(point: &EdwardsPoint, digit_bits: usize) -> Table {
        let (digits, half) = (digits_of(digit_bits), 1 << (digit_bits - 1));
        let mut multiples = Vec::with_capacity(digits * half);
        let mut step = *point;
        for _ in 0..digits {
            let mut multiple = step;
            multiples.push(multiple);
            for _ in 1..half {
                multiple += step;
                multiples.push(multiple);
            }
            step = multiple + multiple;
        }
        Table { digit_bits, multiples }
    }

    /// The point times `scalar`.
    pub fn times(&self, scalar: &Scalar) -> EdwardsPoint {
        let (bits, half) = (self.digit_bits, 1usize << (self.digit_bits - 1));
        let mut words = [0u64; 5];
        for (word, bytes) in words.iter_mut().zip(scalar.as_bytes().chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        }
        let mut sum = EdwardsPoint::identity();
        let mut carry = 0;
        for (i, row) in self.multiples.chunks_exact(half).enumerate() {
            let (at, shift) = (i * bits / 64, i * bits % 64);
            let window = u128::from(words[at]) | u128::from(words[at + 1]) << 64;
            let digit = (window >> shift) as usize % (2 * half) + carry;
            // Digits above one half count down from the next: a point is negated for nothing.
            carry = usize::from(digit > half);
            if carry == 0 {
                if digit > 0 {
                    sum += &row[digit - 1];
                }
            } else if digit < 2 * half {
                sum -= &row[2 * half - digit - 1];
            }
        }
        sum
    }
}

/// So many that the highest is below one half: scalars are below 2^253, and nothing is carried out.
fn digits_of(digit_bits: usize) -> usize {
    255usize.div_ceil(digit_bits)
}

/// The table of the base point.
pub fn base_table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(&ED25519_BASEPOINT_POINT, BASE_DIGIT_BITS))
}
