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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_upper_bound_is_raised_at_the_last_place_that_can_be() {
        let fifteen = "ä".repeat(15);
        for (last, raised) in [("a", "b"), ("\u{D7FF}", "\u{E000}"), ("é", "ê")] {
            let value = format!("{fifteen}{last}and more");
            assert_eq!(lower(&value), format!("{fifteen}{last}"));
            assert_eq!(upper(&value).unwrap(), format!("{fifteen}{raised}"));
        }
        assert_eq!(upper(&format!("a{}", "\u{10FFFF}".repeat(16))).unwrap(), "b");
        assert_eq!(upper(&"\u{10FFFF}".repeat(17)), None);
        assert_eq!(upper(&fifteen).unwrap(), fifteen);
    }
}
