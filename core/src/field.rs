//! The text of one field of a record.

use crate::scan::{literal, skip_blanks, value};
use crate::text::append_text;

/// As deep as `ingest/route/router.py` looks.
const LEVELS_MAX: u32 = 200;

/// The text that a field at the top of an object has. None where it has none or twice, where the record is no
/// JSON object to the letter, and where it has one of the `odd` keys at its top.
pub fn field_text(record: &[u8], field: &[u8], odd: &[Box<[u8]>]) -> Option<Vec<u8>> {
    let (mut key, mut found) = (Vec::new(), None);
    let mut at = literal(record, 0, b"{")?;
    loop {
        at = skip_blanks(record, at);
        key.clear();
        at = append_text(record, literal(record, at, b"\"")?, &mut key)?;
        at = skip_blanks(record, literal(record, skip_blanks(record, at), b":")?);
        if key == field {
            let mut text = Vec::new();
            at = append_text(record, literal(record, at, b"\"")?, &mut text)?;
            if found.replace(text).is_some() {
                return None;
            }
        } else if odd.iter().any(|odd| key == odd[..]) {
            return None;
        } else {
            at = value(record, at, LEVELS_MAX - 1)?;
        }
        at = skip_blanks(record, at);
        match *record.get(at)? {
            b',' => at += 1,
            b'}' if skip_blanks(record, at + 1) == record.len() => return found,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(record: &str) -> Option<String> {
        let text = field_text(record.as_bytes(), b"t\xc3\xa9", &[b"odd"[..].into()])?;
        Some(String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_text_at_the_top_is_found_and_its_escapes_are_read() {
        assert_eq!(found(r#"{"a":{"té":"no"},"té":"yes"}"#).unwrap(), "yes");
        assert_eq!(found(r#"{ "t\u00e9" : "\ud83d\ude00" , "b":[{"odd":NaN}] } "#).unwrap(), "\u{1f600}");
        assert_eq!(found(r#"{"té":""}"#).unwrap(), "");
    }

    #[test]
    fn what_is_not_one_text_is_none() {
        for none in [
            "",
            "{}",
            "[]",
            r#"{"a":"b"}"#,
            r#"{"té":1}"#,
            r#"{"té":"a","té":"a"}"#,
            r#"{"odd":1,"té":"a"}"#,
            r#"{"té":"a"}}"#,
            r#" {"té":"a"}"#,
            r#"{"té":"a",}"#,
            r#"{"té":"a"} {"té":"a"}"#,
            r#"{"té":"\ud800"}"#,
            r#"{"té":"a","b":01}"#,
        ] {
            assert_eq!(found(none), None, "{none}");
        }
        let deep = format!(r#"{{"té":"a","b":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        assert_eq!(found(&deep), None);
    }
}
