//! Texts of a column that most rows lack, in another order of the rows: Arrow's `take` looks at every row.

/// An Arrow array of texts, which is a part of a column: its validity says which rows have one, and `places` where
/// each row goes.
pub struct Texts<'a> {
    pub offsets: &'a [i32],
    pub validity: &'a [u8],
    pub data: &'a [u8],
    pub places: &'a [u32],
}

/// Where the reordered array goes; offsets, validity and data are zero before.
pub struct Reordered<'a> {
    pub offsets: &'a mut [i32],
    pub validity: &'a mut [u8],
    pub data: &'a mut [u8],
}

/// Puts the text of each row where `places` says that the row goes. None where any of it lies outside its array.
pub fn reorder(parts: &[Texts], out: &mut Reordered) -> Option<()> {
    for texts in parts {
        for row in rows(texts.validity, texts.places.len()) {
            let place = texts.places[row] as usize;
            let length = texts.offsets.get(row + 1)?.checked_sub(texts.offsets[row])?;
            *out.offsets.get_mut(place + 1)? = (length >= 0).then_some(length)?;
            *out.validity.get_mut(place / 8)? |= 1 << (place % 8);
        }
    }
    let mut end = 0_i32;
    for offset in out.offsets.iter_mut() {
        end = end.checked_add(*offset)?;
        *offset = end;
    }
    for texts in parts {
        for row in rows(texts.validity, texts.places.len()) {
            let [from, to] = [texts.offsets[row], texts.offsets[row + 1]].map(|offset| offset as usize);
            let at = out.offsets[texts.places[row] as usize] as usize;
            let text = texts.data.get(from..to)?;
            out.data.get_mut(at..at + text.len())?.copy_from_slice(text);
        }
    }
    Some(())
}

/// The rows that have a value.
fn rows(validity: &[u8], count: usize) -> impl Iterator<Item = usize> {
    let words = validity.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    });
    words
        .enumerate()
        .flat_map(|(at, word)| Bits(word).map(move |bit| at * 64 + bit))
        .take_while(move |row| *row < count)
}

/// The positions of the bits that are set.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reordered(offsets: &[i32], validity: &[u8], places: &[u32]) -> Option<(Vec<i32>, Vec<u8>, Vec<u8>)> {
        let (mut ends, mut bits, mut data) = (vec![0; places.len() + 1], vec![0; 1], vec![0; 6]);
        let texts = [Texts { offsets, validity, data: b"abcdef", places }];
        let mut out = Reordered { offsets: &mut ends, validity: &mut bits, data: &mut data };
        reorder(&texts, &mut out)?;
        Some((ends, bits, data))
    }

    #[test]
    fn texts_go_with_their_rows() {
        let found = reordered(&[0, 3, 3, 3, 6], &[0b1_1011], &[2, 3, 0, 1]).unwrap();
        assert_eq!(found, (vec![0, 0, 3, 6, 6], vec![0b1110], b"defabc".to_vec()));
    }

    #[test]
    fn parts_of_a_column_become_one() {
        let parts = [
            Texts { offsets: &[0, 2, 2], validity: &[0b01], data: b"ab", places: &[2, 0] },
            Texts { offsets: &[0, 1], validity: &[0b1], data: b"c", places: &[1] },
        ];
        let (mut offsets, mut bits, mut data) = ([0; 4], [0; 1], [0; 3]);
        let mut out = Reordered { offsets: &mut offsets, validity: &mut bits, data: &mut data };
        reorder(&parts, &mut out).unwrap();
        assert_eq!((offsets, bits, &data), ([0, 0, 1, 3], [0b110], b"cab"));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        assert!(reordered(&[0, 3, 6], &[0b11], &[0, 7]).is_none());
        assert!(reordered(&[0, 3], &[0b11], &[0, 1]).is_none());
        assert!(reordered(&[0, 3, 9], &[0b11], &[0, 1]).is_none());
        assert!(reordered(&[0, 3, 1], &[0b11], &[0, 1]).is_none());
        assert!(reordered(&[-3, 3, 4], &[0b11], &[0, 1]).is_none());
    }
}
