//! Keccak-256 with its original padding, of messages that fit into one block.
//!
//! All that a chunk's tree hashes are 40 and 64 bytes, and a block takes 135. So nothing is absorbed
//! piece by piece: a message is put into the empty state, which is permuted once.

pub const DIGEST_LANES: usize = 4;
/// 32 bytes, as lanes of 64 bits, little-endian.
pub type Digest = [u64; DIGEST_LANES];

const LANES: usize = 25;
const RATE_LANES: usize = 17;
const ROUNDS: usize = 24;

/// What each round adds to the first lane: bits at 2^j - 1, of a shift register (the step iota).
const ROUND_CONSTANTS: [u64; ROUNDS] = round_constants();

const fn round_constants() -> [u64; ROUNDS] {
    let mut constants = [0; ROUNDS];
    let mut register: u8 = 1;
    let mut round = 0;
    while round < ROUNDS {
        let mut j = 0;
        while j < 7 {
            constants[round] |= ((register & 1) as u64) << ((1 << j) - 1);
            // Modulo x^8 + x^6 + x^5 + x^4 + 1.
            register = (register << 1) ^ (0x71 * (register >> 7));
            j += 1;
        }
        round += 1;
    }
    constants
}

/// By how many bits the lane of a column and a row is turned (the step rho).
const TURNS: [[u32; 5]; 5] = turns();

const fn turns() -> [[u32; 5]; 5] {
    let mut turns = [[0; 5]; 5];
    let (mut x, mut y) = (1, 0);
    let mut t = 0;
    while t < 24 {
        turns[y][x] = (t + 1) * (t + 2) / 2 % 64;
        (x, y) = (y, (2 * x + 3 * y) % 5);
        t += 1;
    }
    turns
}

/// Keccak-f[1600]. Lane (x, y) is at x + 5y.
fn permute(state: &mut [u64; LANES]) {
    let mut lanes = *state;
    for constant in ROUND_CONSTANTS {
        let columns: [u64; 5] = std::array::from_fn(|x| {
            lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20]
        });
        let mixed: [u64; 5] =
            std::array::from_fn(|x| columns[(x + 4) % 5] ^ columns[(x + 1) % 5].rotate_left(1));
        let mut moved = [0; LANES];
        for y in 0..5 {
            for x in 0..5 {
                let lane = lanes[x + 5 * y] ^ mixed[x];
                moved[y + (2 * x + 3 * y) % 5 * 5] = lane.rotate_left(TURNS[y][x]);
            }
        }
        for y in 0..5 {
            for x in 0..5 {
                let (next, over) = (moved[(x + 1) % 5 + 5 * y], moved[(x + 2) % 5 + 5 * y]);
                lanes[x + 5 * y] = moved[x + 5 * y] ^ (!next & over);
            }
        }
        lanes[0] ^= constant;
    }
    *state = lanes;
}

/// The digest of a message of whole lanes, 16 at most.
pub fn digest(message: &[u64]) -> Digest {
    assert!(message.len() < RATE_LANES, "it fits into a block");
    let mut state = [0; LANES];
    state[..message.len()].copy_from_slice(message);
    // The original padding: a one behind the message, and one at the end of the block.
    state[message.len()] = 1;
    state[RATE_LANES - 1] |= 1 << 63;
    permute(&mut state);
    std::array::from_fn(|lane| state[lane])
}
