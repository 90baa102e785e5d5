//! A column of texts while rows are added to it.

use crate::key_tree::NodeId;

/// The values of one leaf, in Arrow's layout of `utf8`. Rows without a value are filled in when the next one
/// comes, or at the end, so a sparse column costs what it holds.
pub struct Column {
    pub leaf: NodeId,
    /// What its values have been (`kinds`).
    pub kinds: u32,
    /// Where a value is appended, between `begin` and `end`.
    pub data: Vec<u8>,
    offsets: Vec<i32>,
    valid: Vec<u8>,
    values: usize,
    kinds_before: u32,
}

/// A column that is complete: its buffers as Arrow's specification lays them out.
pub struct TextArray {
    pub rows: usize,
    pub nulls: usize,
    /// Bits of the rows that have a value; None where all have one.
    pub valid: Option<Vec<u8>>,
    pub offsets: Vec<i32>,
    pub data: Vec<u8>,
}

impl Column {
    /// A column of at most `rows` rows, with memory for so many bytes.
    pub fn new(leaf: NodeId, rows: usize, reserved_bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self {
            leaf,
            kinds: 0,
            data: Vec::with_capacity(reserved_bytes),
            offsets,
            valid: vec![0; rows.div_ceil(8)],
            values: 0,
            kinds_before: 0,
        }
    }

    /// Makes `row` the next one.
    #[inline]
    pub fn begin(&mut self, row: usize) {
        if self.offsets.len() <= row {
            self.offsets.resize(row + 1, self.data.len() as i32);
        }
    }

    /// Ends the value of `row`, which the end of `data` is now.
    #[inline]
    pub fn end(&mut self, row: usize, kind: u32) {
        self.offsets.push(self.data.len() as i32);
        self.valid[row / 8] |= 1 << (row % 8);
        self.values += 1;
        self.kinds_before = self.kinds;
        self.kinds |= kind;
    }

    /// Undoes what has been added to `row`, the last one, whole or not.
    pub fn take_back(&mut self, row: usize) {
        if self.offsets.len() > row + 1 {
            self.offsets.truncate(row + 1);
            self.valid[row / 8] &= !(1 << (row % 8));
            self.values -= 1;
            self.kinds = self.kinds_before;
        }
        let end = self.offsets.last().map_or(0, |&end| end as usize);
        self.data.truncate(end);
    }

    /// Whether no row has a value.
    pub fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// The column with so many rows.
    pub fn finish(mut self, rows: usize) -> TextArray {
        self.begin(rows);
        self.data.shrink_to_fit();
        self.valid.truncate(rows.div_ceil(8));
        let nulls = rows - self.values;
        TextArray {
            rows,
            nulls,
            valid: (nulls > 0).then_some(self.valid),
            offsets: self.offsets,
            data: self.data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{INTEGER, TEXT};

    fn put(column: &mut Column, row: usize, value: &[u8], kind: u32) {
        column.begin(row);
        column.data.extend_from_slice(value);
        column.end(row, kind);
    }

    #[test]
    fn rows_without_a_value_are_filled_in() {
        let mut column = Column::new(1, 10, 0);
        put(&mut column, 1, b"ab", TEXT);
        put(&mut column, 2, b"", TEXT);
        put(&mut column, 8, b"c", INTEGER);
        let array = column.finish(10);
        assert_eq!(array.offsets, [0, 0, 2, 2, 2, 2, 2, 2, 2, 3, 3]);
        assert_eq!((array.data.as_slice(), array.nulls), (&b"abc"[..], 7));
        assert_eq!(array.valid.unwrap(), [0b110, 0b1]);
    }

    #[test]
    fn a_row_taken_back_leaves_nothing() {
        let mut column = Column::new(1, 4, 0);
        put(&mut column, 0, b"ab", TEXT);
        put(&mut column, 1, b"12", INTEGER);
        column.take_back(1);
        column.begin(1);
        column.data.extend_from_slice(b"half of a val");
        column.take_back(1);
        assert_eq!(column.kinds, TEXT);
        put(&mut column, 1, b"cd", TEXT);
        let array = column.finish(2);
        assert_eq!((array.data.as_slice(), array.offsets.as_slice()), (&b"abcd"[..], &[0, 2, 4][..]));
        assert_eq!((array.nulls, array.valid), (0, None));
    }
}
