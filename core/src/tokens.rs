//! The words of texts as numbers, for the filters of data files. `lake/token_filter/tokens.py` is the
//! definition, of which this is the part for texts of ASCII.

use std::ops::Range;

/// A word is told from others by so many of its first bytes.
const HASHED_BYTES_MAX: usize = 64;
/// Of the newest words, so many are known not to be new again: most words of logs come back soon.
const RECENT: usize = 1 << 12;

/// The hash of each word of texts of ASCII, once, in order. `offsets`: where each text begins, and the end of
/// the last. None where these lead elsewhere; empty and false where some byte is not of ASCII.
pub fn hashes(data: &[u8], offsets: &[i64]) -> Option<(Vec<u64>, bool)> {
    let mut found = Vec::new();
    let mut recent = vec![0; RECENT];
    recent[0] = 1; // where no word of this hash is looked for, and one of the hash 0 would seem to be known
    for ends in offsets.windows(2) {
        let text = data.get(usize::try_from(ends[0]).ok()?..usize::try_from(ends[1]).ok()?)?;
        if !text.is_ascii() {
            return Some((Vec::new(), false));
        }
        let mut at = 0;
        while let Some(word) = next_word(text, at) {
            at = word.end;
            let hash = hash(&text[word]);
            let place = &mut recent[hash as usize % RECENT];
            if *place != hash {
                *place = hash;
                found.push(hash);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Some((found, true))
}

/// Which bytes there are, by their numbers.
pub fn bytes_in(data: &[u8]) -> [bool; 256] {
    let mut seen = [false; 256];
    for &byte in data {
        seen[usize::from(byte)] = true;
    }
    seen
}

/// The next maximal run of letters, digits and underscores.
fn next_word(text: &[u8], from: usize) -> Option<Range<usize>> {
    let begin = from + text.get(from..)?.iter().position(|&byte| is_of_word(byte))?;
    let length = text[begin..].iter().position(|&byte| !is_of_word(byte));
    Some(begin..length.map_or(text.len(), |length| begin + length))
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Of a word in small letters, eight bytes at a time.
fn hash(word: &[u8]) -> u64 {
    let mut hash = 0;
    for part in word[..word.len().min(HASHED_BYTES_MAX)].chunks(8) {
        let mut eight = [0; 8];
        eight[..part.len()].copy_from_slice(part);
        eight.make_ascii_lowercase();
        hash = mixed(hash ^ u64::from_le_bytes(eight));
    }
    hash
}

/// Spreads every bit over all others, as MurmurHash3's finalizer does.
fn mixed(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_once_in_any_case_and_end_with_their_text() {
        let (found, is_ascii) = hashes(b"GET /a_1 get ab", &[0, 13, 14, 15]).unwrap();
        let mut expected: Vec<_> = [&b"get"[..], b"a_1", b"a", b"b"].map(hash).to_vec();
        expected.sort_unstable();
        assert_eq!((found, is_ascii), (expected, true));
    }

    #[test]
    fn a_word_whose_hash_is_zero_is_found() {
        assert_eq!(hashes(b"aur_3uvvhvzyrr9r", &[0, 16]), Some((vec![0], true)));
    }

    #[test]
    fn a_long_word_is_told_by_its_first_bytes() {
        let long = [b'x'; 70];
        assert_eq!(hash(&long), hash(&long[..64]));
        assert_ne!(hash(&long[..64]), hash(&long[..63]));
    }

    #[test]
    fn what_is_not_of_ascii_and_offsets_that_lead_elsewhere_are_told() {
        assert_eq!(hashes("µ a".as_bytes(), &[0, 4]), Some((Vec::new(), false)));
        assert_eq!(hashes(b"ab", &[0, 3]), None);
        assert_eq!(hashes(b"ab", &[2, 1]), None);
        assert_eq!(hashes(b"ab", &[-1, 1]), None);
    }
}
