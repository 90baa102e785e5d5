//! Bounds of texts, as `lake/bounds.py` cuts them: a bound may lie beyond the values, never within them.

/// Iceberg's default metrics mode is truncate(16).
const CHARACTERS: usize = 16;

/// The beginning of a text, which is not above it.
pub fn lower(text: &str) -> &str {
    text.char_indices().nth(CHARACTERS).map_or(text, |(end, _)| &text[..end])
}

/// The beginning of a text, raised where it was cut; None where nothing above it can be written.
pub fn upper(text: &str) -> Option<String> {
    let cut = lower(text);
    if cut.len() == text.len() {
        return Some(text.to_owned());
    }
    cut.char_indices().rev().find_map(|(at, last)| {
        let following = match u32::from(last) + 1 {
            0xD800 => '\u{E000}', // no text has a surrogate
            code => char::from_u32(code)?,
        };
        Some(format!("{}{following}", &cut[..at]))
    })
}
