//! JSON strings decoded to UTF-8.

use crate::scan::{hexadecimal, text_stop};
use std::str;

/// Appends a text, from behind its opening quote on, and returns the place behind its closing one. None, and
/// anything appended, where it is broken or no UTF-8 can hold it: a lone surrogate.
#[inline]
pub fn append_text(record: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        let (stop, is_high) = text_stop(record, at)?;
        let piece = &record[at..stop];
        if is_high {
            str::from_utf8(piece).ok()?;
        }
        out.extend_from_slice(piece);
        if record[stop] == b'"' {
            return Some(stop + 1);
        }
        at = append_escaped(record, stop + 1, out)?;
    }
}

/// The same from behind a backslash to the end of what it escapes.
fn append_escaped(record: &[u8], at: usize, out: &mut Vec<u8>) -> Option<usize> {
    out.push(match *record.get(at)? {
        same @ (b'"' | b'\\' | b'/') => same,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => return append_unicode(record, at + 1, out),
        _ => return None,
    });
    Some(at + 1)
}

fn append_unicode(record: &[u8], at: usize, out: &mut Vec<u8>) -> Option<usize> {
    let (mut code, mut at) = hexadecimal(record, at)?;
    if (0xd800..0xdc00).contains(&code) && record.get(at..)?.starts_with(b"\\u") {
        let (low, end) = hexadecimal(record, at + 2)?;
        if (0xdc00..0xe000).contains(&low) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at = end;
        }
    }
    let character = char::from_u32(code)?; // None for a lone surrogate
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(spelled: &str) -> Option<String> {
        let mut out = Vec::new();
        let end = append_text(spelled.as_bytes(), 1, &mut out)?;
        assert_eq!(end, spelled.len());
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn escapes_become_what_they_name() {
        let all = r#""\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00\u0000é😀""#;
        assert_eq!(decoded(all).unwrap(), "\"\\/\u{8}\u{c}\n\r\tA\u{e9}\u{20ac}\u{1f600}\0é😀");
        assert_eq!(decoded("\"\t\u{1}\"").unwrap(), "\t\u{1}");
        assert_eq!(decoded("\"\"").unwrap(), "");
    }

    #[test]
    fn what_utf8_cannot_hold_and_what_is_broken_is_none() {
        for bad in [
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            r#""\ud83d\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\ud83d\n""#,
            r#""\u12g4""#,
            r#""\u+123""#,
            r#""\u12"#,
            r#""\x""#,
            r#""\"#,
            "\"open",
        ] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
        for bad in [
            &b"\"\xff\""[..],
            b"\"\xc0\xaf\"",
            b"\"\xed\xa0\x80\"",
            b"\"\xf4\x90\x80\x80\"",
            b"\"\xc3\\n\xa9\"",
        ] {
            assert_eq!(append_text(bad, 1, &mut Vec::new()), None, "{bad:?}");
        }
    }
}
