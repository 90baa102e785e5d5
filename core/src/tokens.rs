//! The words and characters of text columns, for the filters of data files. `lake/token_filter/tokens.py` is the
//! definition, of which this is the part for texts of ASCII.

use std::mem::take;

/// A word is told from others by so many of its first bytes.
const HASHED_BYTES_MAX: usize = 64;
/// So many of the newest words and texts are known not to be new again: most of logs come back soon.
const RECENT: usize = 1 << 12;
/// Offsets that are looked at together: most texts of wide tables are not there.
const TOGETHER: usize = 8;
/// After so many bytes the characters are counted.
const COUNTED_BYTES: usize = 512;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

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

/// Reads columns, and keeps its memory for the next one: most are small, and to clear it would take longer than they
/// do.
pub struct Reader {
    /// What the column has that was read last.
    pub words: Words,
    recent: Recent,
}

/// The newest words and texts of a column, by their hashes. What has another number of a column is nothing.
struct Recent {
    column: u32,
    words: Vec<(u64, u32)>,
    texts: Vec<(Text, u32)>,
}

/// A text's place in its data.
#[derive(Clone, Copy, Default)]
struct Text {
    begin: u32,
    end: u32,
}

impl Default for Reader {
    fn default() -> Self {
        let recent =
            Recent { column: 0, words: vec![(0, 0); RECENT], texts: vec![(Text::default(), 0); RECENT] };
        Self { words: Words::default(), recent }
    }
}

impl Reader {
    /// Reads texts of `data`. `offsets`: where each begins, and the end of the last; None where these lead elsewhere.
    pub fn read(&mut self, data: &[u8], offsets: &[i32], limits: &Limits) -> Option<Result<(), Excess>> {
        self.recent.begin();
        let Words { mut hashes, mut others, .. } = take(&mut self.words);
        hashes.clear();
        others.clear();
        let (mut characters, mut are_few, mut uncounted) = ([false; 256], true, 0);
        let mut at = 0;
        while at + 1 < offsets.len() {
            if offsets.get(at + TOGETHER) == Some(&offsets[at]) {
                at += TOGETHER;
                continue;
            }
            let (number, text) = (at, Text::between(offsets[at], offsets[at + 1])?);
            let bytes = data.get(text.begin as usize..text.end as usize)?;
            at += 1;
            if bytes.is_empty() || self.recent.has_text(data, text, bytes) {
                continue;
            }
            if bytes.len() > limits.text {
                return Some(Err(Excess::Text));
            }
            if !bytes.is_ascii() {
                others.push(number as i64);
                are_few = false;
                continue;
            }
            if are_few {
                bytes.iter().for_each(|&byte| characters[usize::from(byte)] = true);
                uncounted += bytes.len();
                if uncounted > COUNTED_BYTES {
                    are_few = in_small_letters(&mut characters) <= limits.characters;
                    uncounted = 0;
                }
            }
            each_word(bytes, |begin, end| {
                let hash = hash(&data[text.begin as usize + begin..], end - begin);
                if !self.recent.has_word(hash) {
                    hashes.push(hash);
                }
            });
            if hashes.len() > 2 * limits.words {
                put_in_order(&mut hashes);
                if hashes.len() > limits.words {
                    return Some(Err(Excess::Words));
                }
            }
        }
        put_in_order(&mut hashes);
        if hashes.len() > limits.words {
            return Some(Err(Excess::Words));
        }
        are_few &= in_small_letters(&mut characters) <= limits.characters;
        let characters =
            characters[..128].iter().rev().fold(0, |bits, &is_there| bits << 1 | u128::from(is_there));
        self.words = Words { hashes, characters: are_few.then_some(characters), others };
        Some(Ok(()))
    }
}

impl Text {
    fn between(begin: i32, end: i32) -> Option<Self> {
        Some(Self { begin: begin.try_into().ok()?, end: end.try_into().ok()? })
    }
}

impl Recent {
    /// Knows nothing of the next column.
    fn begin(&mut self) {
        self.column = self.column.wrapping_add(1);
        if self.column == 0 {
            self.words.fill((0, 0));
            self.texts.fill((Text::default(), 0));
            self.column = 1;
        }
    }

    /// Whether a text is one of the newest; from now on it is.
    fn has_text(&mut self, data: &[u8], text: Text, bytes: &[u8]) -> bool {
        let length = bytes.len();
        let ends = eight(bytes, length) ^ eight(&bytes[length.saturating_sub(8)..], length).rotate_left(1);
        let (known, column) = &mut self.texts[mixed(ends ^ length as u64) as usize % RECENT];
        let is_known = *column == self.column && data[known.begin as usize..known.end as usize] == *bytes;
        (*known, *column) = (text, self.column);
        is_known
    }

    /// The same of a word.
    fn has_word(&mut self, hash: u64) -> bool {
        let known = &mut self.words[hash as usize % RECENT];
        let is_known = *known == (hash, self.column);
        *known = (hash, self.column);
        is_known
    }
}

/// Takes capitals for their small letters, and returns how many characters there are.
fn in_small_letters(characters: &mut [bool; 256]) -> usize {
    for capital in b'A'..=b'Z' {
        let is_there = take(&mut characters[usize::from(capital)]);
        characters[usize::from(capital.to_ascii_lowercase())] |= is_there;
    }
    characters.iter().filter(|&&is_there| is_there).count()
}

fn put_in_order(hashes: &mut Vec<u64>) {
    hashes.sort_unstable();
    hashes.dedup();
}

/// Gives where each maximal run of letters, digits and underscores of an ASCII text begins and ends.
#[inline]
fn each_word(text: &[u8], mut word: impl FnMut(usize, usize)) {
    let (mut begin, mut is_open) = (0, false);
    for (first, block) in (0..).step_by(64).zip(text.chunks(64)) {
        let of_word =
            block.chunks(8).rev().fold(0, |bits, eight_bytes| bits << 8 | of_word(eight(eight_bytes, 8)));
        // A bit for each byte that is of a word where the one before is not, or the other way round.
        let mut edges = of_word ^ (of_word << 1 | u64::from(is_open));
        while edges != 0 {
            let at = first + edges.trailing_zeros() as usize;
            if is_open {
                word(begin, at);
            } else {
                begin = at;
            }
            is_open = !is_open;
            edges &= edges - 1;
        }
    }
    if is_open {
        word(begin, text.len());
    }
}

/// Of eight bytes of ASCII, one bit for each that is of a word, the first one lowest.
#[inline]
fn of_word(bytes: u64) -> u64 {
    let letters = between(bytes | (ONES * 0x20), b'a', b'z');
    let underscores = !(bytes ^ (ONES * b'_' as u64)).wrapping_add(ONES * 0x7f) & HIGHS;
    let marks = letters | between(bytes, b'0', b'9') | underscores;
    (marks >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The highest bit of each of eight bytes of ASCII that lies between two, these included.
#[inline]
fn between(bytes: u64, first: u8, last: u8) -> u64 {
    bytes.wrapping_add(ONES * (0x80 - first) as u64)
        & !bytes.wrapping_add(ONES * (0x7f - last) as u64)
        & HIGHS
}

/// The first bytes, at most eight and `count`, the first one lowest; zero for those that are not there.
#[inline]
fn eight(bytes: &[u8], count: usize) -> u64 {
    let all = bytes.first_chunk().map_or_else(
        || bytes.iter().rev().fold(0, |eight, &byte| eight << 8 | u64::from(byte)),
        |first| u64::from_le_bytes(*first),
    );
    if count < 8 { all & ((1 << (8 * count)) - 1) } else { all }
}

/// Of a word in small letters, eight bytes at a time. `text` begins with the word, which has so many bytes.
#[inline]
fn hash(text: &[u8], length: usize) -> u64 {
    let length = length.min(HASHED_BYTES_MAX);
    (0..length).step_by(8).fold(0, |hash, at| {
        let part = eight(&text[at..], length - at);
        mixed(hash ^ (part | between(part, b'A', b'Z') >> 2))
    })
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
        let mut reader = Reader::default();
        reader.read(data, offsets, &LIMITS).unwrap().map(|()| reader.words)
    }

    #[test]
    fn words_are_found_once_in_any_case_and_end_with_their_text() {
        let found = words(b"GET /a_1 get ab", &[0, 13, 14, 14, 15]).unwrap_err();
        assert_eq!(found, Excess::Words);
        let found = words(b"GET /a_1 get a", &[0, 13, 14]).unwrap();
        let mut expected: Vec<_> = [&b"get"[..], b"a_1", b"a"].map(|word| hash(word, word.len())).to_vec();
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
        assert_eq!(hash(&long, 70), hash(&long, 64));
        assert_ne!(hash(&long, 64), hash(&long, 63));
    }

    #[test]
    fn words_end_where_no_byte_of_a_word_is() {
        let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        for byte in 0..128 {
            let expected = if is_of_word(byte) { 0b1110 } else { 0b1010 };
            assert_eq!(of_word(eight(&[b'!', b'Z', byte, b'0', b'/', 0, b'@', b'{'], 8)), expected, "{byte}");
        }
        // Some words, and blanks between them, lie across the bounds of blocks.
        for length in 0..200 {
            let text: Vec<u8> =
                (0..length).map(|at| if (at * at / 7) % 5 == 0 { b' ' } else { b'a' }).collect();
            let mut expected = Vec::new();
            let mut at = 0;
            for word in text.split(|&byte| !is_of_word(byte)) {
                expected.extend((!word.is_empty()).then_some((at, at + word.len())));
                at += word.len() + 1;
            }
            let mut found = Vec::new();
            each_word(&text, |begin, end| found.push((begin, end)));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn small_letters_are_those_of_ascii() {
        for byte in 0..128_u8 {
            let lower = byte.to_ascii_lowercase();
            assert_eq!(hash(&[byte], 1), hash(&[lower, byte], 1));
        }
        assert_eq!(hash(b"ABCdefghIJ", 10), hash(b"abcdefghij!", 10));
    }

    #[test]
    fn a_column_has_nothing_of_the_one_before() {
        let mut reader = Reader::default();
        for _ in 0..3 {
            for (text, offsets) in [(&b"one two"[..], [0, 7]), (b"two one", [0, 3])] {
                reader.read(text, &offsets, &LIMITS).unwrap().unwrap();
                let fresh = words(text, &offsets).unwrap();
                assert_eq!(
                    (&reader.words.hashes, reader.words.characters),
                    (&fresh.hashes, fresh.characters)
                );
            }
            reader.recent.column = u32::MAX - 1;
        }
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
            assert!(Reader::default().read(b"ab", &offsets, &LIMITS).is_none());
        }
    }
}
