//! Where the tokens of JSON end (RFC 8259, and the constants and control characters that Python's decoder
//! takes). Every function gets the record and the place of a token, and returns the place behind it, or None
//! where there is no such token.

use crate::kinds;
use std::str;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The place of the first byte that is no blank.
#[inline]
pub fn skip_blanks(record: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = record.get(at) {
        at += 1;
    }
    at
}

/// The place of the first quote or backslash, and whether a byte beyond ASCII stands before it.
#[inline]
pub fn text_stop(record: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut high = 0;
    // Eight bytes at a time. A byte equals the one that is looked for where the exclusive or is zero; what
    // `zeros` marks beyond the first such byte may be wrong, and nothing looks there.
    while let Some(block) = record.get(at..)?.first_chunk::<8>() {
        let word = u64::from_le_bytes(*block);
        let stops = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
        if stops != 0 {
            let before = (stops & stops.wrapping_neg()) - 1;
            high |= word & before & HIGHS;
            return Some((at + stops.trailing_zeros() as usize / 8, high != 0));
        }
        high |= word & HIGHS;
        at += 8;
    }
    let mut is_high = high != 0;
    for (place, &byte) in record.iter().enumerate().skip(at) {
        match byte {
            b'"' | b'\\' => return Some((place, is_high)),
            _ => is_high |= byte >= 0x80,
        }
    }
    None
}

#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// A literal such as `null`.
#[inline]
pub fn literal(record: &[u8], at: usize, spelled: &[u8]) -> Option<usize> {
    record.get(at..)?.starts_with(spelled).then_some(at + spelled.len())
}

/// A number or a literal other than `null`, with its kind.
#[inline]
pub fn scalar(record: &[u8], at: usize) -> Option<(usize, u32)> {
    match *record.get(at)? {
        b't' => Some((literal(record, at, b"true")?, kinds::BOOLEAN)),
        b'f' => Some((literal(record, at, b"false")?, kinds::BOOLEAN)),
        b'N' => Some((literal(record, at, b"NaN")?, kinds::NON_FINITE)),
        b'I' => Some((literal(record, at, b"Infinity")?, kinds::NON_FINITE)),
        b'-' if record.get(at + 1) == Some(&b'I') => {
            Some((literal(record, at, b"-Infinity")?, kinds::NON_FINITE))
        }
        _ => number(record, at),
    }
}

fn number(record: &[u8], mut at: usize) -> Option<(usize, u32)> {
    let mut kind = kinds::INTEGER;
    if record[at] == b'-' {
        at += 1;
    }
    at = match *record.get(at)? {
        b'0' => at + 1,
        _ => digits(record, at)?,
    };
    if record.get(at) == Some(&b'.') {
        kind = kinds::DECIMAL;
        at = digits(record, at + 1)?;
    }
    if let Some(b'e' | b'E') = record.get(at) {
        kind = kinds::DECIMAL;
        at += 1;
        if let Some(b'+' | b'-') = record.get(at) {
            at += 1;
        }
        at = digits(record, at)?;
    }
    Some((at, kind))
}

/// At least one digit.
fn digits(record: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin;
    while record.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    (at > begin).then_some(at)
}

/// An array, from behind its bracket on. `levels`: how many arrays and objects may be open at once, this one
/// counted.
pub fn array(record: &[u8], at: usize, levels: u32) -> Option<usize> {
    let levels = levels.checked_sub(1)?;
    let mut at = skip_blanks(record, at);
    if *record.get(at)? == b']' {
        return Some(at + 1);
    }
    loop {
        at = skip_blanks(record, value(record, at, levels)?);
        match *record.get(at)? {
            b',' => at = skip_blanks(record, at + 1),
            b']' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// An object within an array; keys may stand twice there, as all of it stays text.
fn object(record: &[u8], at: usize, levels: u32) -> Option<usize> {
    let levels = levels.checked_sub(1)?;
    let mut at = skip_blanks(record, at);
    if *record.get(at)? == b'}' {
        return Some(at + 1);
    }
    loop {
        at = skip_blanks(record, text(record, literal(record, at, b"\"")?)?);
        at = skip_blanks(record, literal(record, at, b":")?);
        at = skip_blanks(record, value(record, at, levels)?);
        match *record.get(at)? {
            b',' => at = skip_blanks(record, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Any value; nothing of it is kept.
pub fn value(record: &[u8], at: usize, levels: u32) -> Option<usize> {
    match *record.get(at)? {
        b'"' => text(record, at + 1),
        b'[' => array(record, at + 1, levels),
        b'{' => object(record, at + 1, levels),
        b'n' => literal(record, at, b"null"),
        _ => Some(scalar(record, at)?.0),
    }
}

/// A text that stays as it is spelled, from behind its opening quote on; a lone surrogate may be escaped in it.
fn text(record: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let (stop, is_high) = text_stop(record, at)?;
        if is_high {
            str::from_utf8(&record[at..stop]).ok()?;
        }
        if record[stop] == b'"' {
            return Some(stop + 1);
        }
        at = match *record.get(stop + 1)? {
            b'u' => hexadecimal(record, stop + 2)?.1,
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => stop + 2,
            _ => return None,
        };
    }
}

/// Four hexadecimal digits as a number, and the place behind them.
pub fn hexadecimal(record: &[u8], at: usize) -> Option<(u32, usize)> {
    let digits = record.get(at..at + 4)?;
    let number = digits.iter().try_fold(0, |sum, &digit| Some(sum << 4 | char::from(digit).to_digit(16)?))?;
    Some((number, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stops_at_its_first_quote_or_backslash_wherever_it_stands() {
        for length in 0..40 {
            for stop in [b'"', b'\\'] {
                for high in [None, Some(0), Some(length / 2), Some(length + 1)] {
                    let mut record = vec![b'a'; length];
                    record.push(stop);
                    record.extend(b"z\"\\\xc3".repeat(3));
                    if let Some(place) = high {
                        if place != length {
                            record[place] = 0xe9;
                        }
                    }
                    let before = high.is_some_and(|place| place < length);
                    assert_eq!(text_stop(&record, 0), Some((length, before)), "{record:?}");
                }
            }
            assert_eq!(text_stop(&vec![b'!'; length], 0), None);
        }
        assert_eq!(text_stop(b"\"", 1), None);
        assert_eq!(text_stop(b"\"", 2), None);
    }

    #[test]
    fn numbers_end_where_pythons_do() {
        let good: [(&[u8], usize, u32); 12] = [
            (b"0", 1, kinds::INTEGER),
            (b"-0", 2, kinds::INTEGER),
            (b"01", 1, kinds::INTEGER),
            (b"1234567890123456789012,", 22, kinds::INTEGER),
            (b"1.50", 4, kinds::DECIMAL),
            (b"1E5", 3, kinds::DECIMAL),
            (b"-1.0e-10]", 8, kinds::DECIMAL),
            (b"1e+5", 4, kinds::DECIMAL),
            (b"NaN", 3, kinds::NON_FINITE),
            (b"-Infinity", 9, kinds::NON_FINITE),
            (b"Infinity", 8, kinds::NON_FINITE),
            (b"false", 5, kinds::BOOLEAN),
        ];
        for (text, end, kind) in good {
            assert_eq!(scalar(text, 0), Some((end, kind)), "{text:?}");
        }
        for bad in
            [&b"-"[..], b".5", b"1.", b"1.e", b"1e", b"1e+", b"+1", b"-NaN", b"-Inf", b"tru", b"", b"]"]
        {
            assert_eq!(scalar(bad, 0), None, "{bad:?}");
        }
    }

    #[test]
    fn arrays_are_checked_to_their_end_and_their_depth() {
        let deep = br#"[1, "a\u00e9\ud800\"]", {"k": [null, true], "k": {}}, [ ] ]x"#;
        assert_eq!(array(deep, 1, 3), Some(deep.len() - 1));
        assert_eq!(array(deep, 1, 2), None);
        assert_eq!(array(b"[]", 1, 1), Some(2));
        assert_eq!(array(b"[]", 1, 0), None);
        for bad in [
            &b"[1,]"[..],
            b"[,1]",
            b"[1 2]",
            b"[",
            b"[1",
            b"[\"\\x\"]",
            b"[\"\\u12\"]",
            b"[\"\xff\"]",
            b"[{1:2}]",
            b"[{\"a\" 2}]",
            b"[{\"a\":2,}]",
            b"[nul]",
        ] {
            assert_eq!(array(bad, 1, 9), None, "{bad:?}");
        }
    }
}
