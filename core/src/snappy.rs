//! Snappy's raw format (<https://github.com/google/snappy/blob/main/format_description.txt>), which every reader
//! of Parquet knows: repetitions within 64 KiB, found by a hash of their first four bytes.

use crate::thrift::varint;

const BLOCK_BYTES: usize = 1 << 16; // a place in it takes 16 bits
const HASH_BITS_MAX: u32 = 12;
const MATCH_BYTES_MIN: usize = 4;
const COPY_BYTES_MAX: usize = 64;
/// After so many places without a repetition every second one is tried, and so on.
const PATIENCE_BITS: u32 = 5;

/// A compressor, which keeps its table.
#[derive(Default)]
pub struct Snappy {
    places: Vec<u16>,
}

impl Snappy {
    /// Appends `plain`, compressed.
    pub fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        varint(out, plain.len() as u64);
        plain.chunks(BLOCK_BYTES).for_each(|block| self.block(block, out));
    }

    fn block(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let bits = (usize::BITS - block.len().leading_zeros()).clamp(6, HASH_BITS_MAX);
        self.places.clear();
        self.places.resize(1 << bits, 0);
        let (mut literal, mut at, mut misses) = (0, 1, 1 << PATIENCE_BITS);
        while let Some(four) = four_at(block, at) {
            let place = &mut self.places[(four.wrapping_mul(0x1e35_a7bd) >> (u32::BITS - bits)) as usize];
            let before = usize::from(std::mem::replace(place, at as u16));
            if four_at(block, before) != Some(four) {
                at += misses >> PATIENCE_BITS;
                misses += 1;
                continue;
            }
            put_literal(out, &block[literal..at]);
            let length = MATCH_BYTES_MIN
                + equal_bytes(&block[before + MATCH_BYTES_MIN..], &block[at + MATCH_BYTES_MIN..]);
            put_copy(out, at - before, length);
            at += length;
            (literal, misses) = (at, 1 << PATIENCE_BITS);
        }
        put_literal(out, &block[literal..]);
    }
}

fn four_at(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

/// How many bytes are equal; `later` is the shorter one.
fn equal_bytes(earlier: &[u8], later: &[u8]) -> usize {
    let words = earlier.chunks_exact(8).zip(later.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + earlier[words..].iter().zip(&later[words..]).take_while(|(a, b)| a == b).count()
}

fn put_literal(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        0 => return,
        length @ ..=60 => out.push((length as u8 - 1) << 2),
        length @ ..=256 => out.extend([60 << 2, (length - 1) as u8]),
        length => {
            out.push(61 << 2);
            out.extend_from_slice(&((length - 1) as u16).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

fn put_copy(out: &mut Vec<u8>, distance: usize, mut length: usize) {
    while length > 0 {
        let part = length.min(COPY_BYTES_MAX);
        if (MATCH_BYTES_MIN..=11).contains(&part) && distance < 1 << 11 {
            out.extend([(distance >> 8 << 5 | (part - 4) << 2 | 1) as u8, distance as u8]);
        } else {
            out.push((part as u8 - 1) << 2 | 2);
            out.extend_from_slice(&(distance as u16).to_le_bytes());
        }
        length -= part;
    }
}
