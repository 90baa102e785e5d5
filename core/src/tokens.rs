//! The words and characters of text columns, for the filters of data files. `lake/token_filter/tokens.py` is the
//! definition, of which this is the part for texts of ASCII.

use std::ops::Range;

/// A word is told from others by so many of its first bytes.
const HASHED_BYTES_MAX: usize = 64;
/// So many of the newest words and texts are known not to be new again: most of logs come back soon.
const RECENT: usize = 1 << 12;
/// Offsets that are looked at together: most texts of wide tables are not there.
const TOGETHER: usize = 8;

/// What is taken of a column.
pub struct Limits {
    /// Bytes of a text.
    pub text: usize,
    /// Words.
    pub words: usize,
    /// Characters, of those that `Words` has.
    pub characters: usize,
}

/// What a column has. `hashes`: of each word, once, in order; `characters`: which there are, in small letters, None
/// where they are too many or some are not of ASCII; `others`: the numbers of texts with such, each at least once.
#[derive(Default, Debug)]
pub struct Words {
    pub hashes: Vec<u64>,
    pub characters: Option<u128>,
    pub others: Vec<i64>,
}

/// What a column has too much of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    Text = -1,
    Words = -2,
}

/// Reads texts of `data`. `offsets`: where each begins, and the end of the last; None where these lead elsewhere.
pub fn read(data: &[u8], offsets: &[i32], limits: &Limits) -> Option<Result<Words, Excess>> {
    let mut hashes = Vec::new();
    let mut others = Vec::new();
    let (mut seen, mut are_few) = ([false; 128], true);
    let mut texts = vec![0..0; RECENT];
    let mut recent = vec![0; RECENT];
    recent[0] = 1; // where no word of this hash is looked for, and one of the hash 0 would seem to be known
    let mut at = 0;
    while at + 1 < offsets.len() {
        if offsets.get(at + TOGETHER) == Some(&offsets[at]) {
            at += TOGETHER;
            continue;
        }
        let [begin, end] = [offsets[at], offsets[at + 1]].map(usize::try_from);
        let (number, place) = (at, begin.ok()?..end.ok()?);
        let text = data.get(place.clone())?;
        at += 1;
        if text.is_empty() || is_known(data, &mut texts, place) {
            continue;
        }
        if text.len() > limits.text {
            return Some(Err(Excess::Text));
        }
        if !text.is_ascii() {
            others.push(number as i64);
            are_few = false;
            continue;
        }
        if are_few {
            text.iter().for_each(|byte| seen[usize::from(byte.to_ascii_lowercase())] = true);
            are_few = seen.iter().filter(|&&is_there| is_there).count() <= limits.characters;
        }
        add_words(text, &mut recent, &mut hashes);
        if hashes.len() > 2 * limits.words {
            put_in_order(&mut hashes);
            if hashes.len() > limits.words {
                return Some(Err(Excess::Words));
            }
        }
    }
    put_in_order(&mut hashes);
    let characters = seen.iter().rev().fold(0, |bits, &is_there| bits << 1 | u128::from(is_there));
    let characters = are_few.then_some(characters);
    Some(if hashes.len() > limits.words {
        Err(Excess::Words)
    } else {
        Ok(Words { hashes, characters, others })
    })
}

/// Whether a text is one of the newest; from now on it is.
fn is_known(data: &[u8], texts: &mut [Range<usize>], place: Range<usize>) -> bool {
    let text = &data[place.clone()];
    let ends = hash(&text[..text.len().min(8)]) ^ hash(&text[text.len().saturating_sub(8)..]).rotate_left(1);
    let known = &mut texts[(ends ^ text.len() as u64) as usize % RECENT];
    let is_known = data[known.clone()] == *text;
    *known = place;
    is_known
}

fn put_in_order(hashes: &mut Vec<u64>) {
    hashes.sort_unstable();
    hashes.dedup();
}

/// Adds the hash of each maximal run of letters, digits and underscores that is not one of the newest.
fn add_words(text: &[u8], recent: &mut [u64], hashes: &mut Vec<u64>) {
    let mut at = 0;
    while let Some(begin) =
        text[at..].iter().position(|&byte| OF_WORD[usize::from(byte)]).map(|skipped| at + skipped)
    {
        at = text[begin..]
            .iter()
            .position(|&byte| !OF_WORD[usize::from(byte)])
            .map_or(text.len(), |length| begin + length);
        let hash = hash(&text[begin..at]);
        let place = &mut recent[hash as usize % RECENT];
        if *place != hash {
            *place = hash;
            hashes.push(hash);
        }
    }
}

/// By byte, whether it is of a word.
const OF_WORD: [bool; 256] = {
    let mut of_word = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        of_word[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_';
        byte += 1;
    }
    of_word
};

/// Of a word in small letters, eight bytes at a time.
fn hash(word: &[u8]) -> u64 {
    let parts = word[..word.len().min(HASHED_BYTES_MAX)].chunks_exact(8);
    let rest = parts.remainder().iter().rev();
    let mut hash = 0;
    for part in parts {
        let mut eight = [0; 8];
        eight.copy_from_slice(part);
        eight.make_ascii_lowercase();
        hash = mixed(hash ^ u64::from_le_bytes(eight));
    }
    if rest.len() == 0 {
        return hash;
    }
    mixed(hash ^ rest.fold(0, |eight, byte| eight << 8 | u64::from(byte.to_ascii_lowercase())))
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

    const LIMITS: Limits = Limits { text: 99, words: 3, characters: 9 };

    fn words(data: &[u8], offsets: &[i32]) -> Result<Words, Excess> {
        read(data, offsets, &LIMITS).unwrap()
    }

    #[test]
    fn words_are_found_once_in_any_case_and_end_with_their_text() {
        let found = words(b"GET /a_1 get ab", &[0, 13, 14, 14, 15]).unwrap_err();
        assert_eq!(found, Excess::Words);
        let found = words(b"GET /a_1 get a", &[0, 13, 14]).unwrap();
        let mut expected: Vec<_> = [&b"get"[..], b"a_1", b"a"].map(hash).to_vec();
        expected.sort_unstable();
        assert_eq!((found.hashes, found.others), (expected, vec![]));
        let characters = b"get /a_1".iter().fold(0, |known, byte| known | 1_u128 << byte);
        assert_eq!(found.characters, Some(characters));
    }

    #[test]
    fn a_word_whose_hash_is_zero_is_found() {
        assert_eq!(words(b"aur_3uvvhvzyrr9r", &[0, 16]).unwrap().hashes, vec![0]);
    }

    #[test]
    fn a_long_word_is_told_by_its_first_bytes() {
        let long = [b'x'; 70];
        assert_eq!(hash(&long), hash(&long[..64]));
        assert_ne!(hash(&long[..64]), hash(&long[..63]));
    }

    #[test]
    fn texts_beyond_ascii_and_of_many_characters_are_told() {
        let found = words("aµbµ".as_bytes(), &[0, 1, 3, 4, 6]).unwrap();
        assert_eq!((found.characters, found.others), (None, vec![1]));
        assert_eq!(words(b"0123456789", &[0, 10]).unwrap().characters, None);
        assert_eq!(words(&[b' '; 100], &[0, 100]).map(drop), Err(Excess::Text));
    }

    #[test]
    fn texts_behind_many_empty_ones_are_found() {
        for empty in 0..20 {
            let mut offsets = vec![0; empty + 1];
            offsets.extend([1, 2]);
            assert_eq!(words(b"ab", &offsets).unwrap().hashes.len(), 2);
        }
    }

    #[test]
    fn offsets_that_lead_elsewhere_are_told() {
        for offsets in [[0, 3], [2, 1], [-1, 1]] {
            assert!(read(b"ab", &offsets, &LIMITS).is_none());
        }
    }
}
