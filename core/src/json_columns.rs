//! Records of JSON to columns of text, one per leaf route, in one pass.

use crate::column::{Column, TextArray};
use crate::key_tree::{KeyTree, NodeId, ROOT};
use crate::kinds;
use crate::scan;
use crate::text::append_text;

/// Levels of nesting that are followed; a setting can ask for no more.
pub const DEPTH_MAX: u32 = 200;
/// Records of one call.
pub const ROWS_MAX: usize = 65_536;
/// Records of one call, times columns: what bounds the memory of rows without a value, at 4.1 bytes a cell.
pub const CELLS_MAX: usize = 1 << 24;
const EMPTY_OBJECT: &[u8] = b"{}";

/// Reads records and keeps the keys that it has met for the next ones.
pub struct JsonColumns {
    pub tree: KeyTree,
    columns: Vec<Column>,
    depth_max: u32,
    call: u64,
    record: u64,
    row: usize,
    rows_max: usize,
    unreserved_bytes: usize,
}

/// What became of the records of a call.
pub struct Parsed {
    /// Rows of the columns, which is how many of the places are plain.
    pub rows: usize,
    /// Leaves and kinds of the columns, by leaf.
    pub leaves: Vec<u32>,
    pub kinds: Vec<u32>,
    pub columns: Vec<TextArray>,
    /// Whether nodes are other ones than in the call before.
    pub has_forgotten: bool,
}

impl JsonColumns {
    /// `odd_keys`: keys at a record's top that make it odd.
    pub fn new(depth_max: u32, odd_keys: Vec<Box<[u8]>>) -> Self {
        Self {
            tree: KeyTree::new(odd_keys),
            columns: Vec::new(),
            depth_max: depth_max.min(DEPTH_MAX),
            call: 0,
            record: 0,
            row: 0,
            rows_max: 0,
            unreserved_bytes: 0,
        }
    }

    /// Reads records that lie one behind the other: the first begins at `begin` of `data`, each ends at its
    /// place of `ends`. `plain`, `odd`: as long as `ends`; get the places of the records that are rows of the
    /// columns, and of those that are left to the exact path, in order.
    ///
    /// None where there are more than ROWS_MAX records, they hold 2 GiB, or `ends` does not ascend within
    /// `data`.
    pub fn parse(
        &mut self,
        data: &[u8],
        begin: i64,
        ends: &[i64],
        plain: &mut [i32],
        odd: &mut [i32],
    ) -> Option<Parsed> {
        let last = ends.last().map_or(begin, |&end| end);
        let size = usize::try_from(last.checked_sub(begin)?).ok()?;
        if ends.len() > ROWS_MAX || i32::try_from(size).is_err() {
            return None;
        }
        let has_forgotten = self.tree.forget_if_half_full();
        self.start(ends.len(), size);
        let (mut at, mut odds) = (usize::try_from(begin).ok()?, 0);
        for (place, &end) in (0..).zip(ends) {
            let end = usize::try_from(end).ok()?;
            let record = data.get(at..end)?;
            at = end;
            self.record += 1;
            if self.read(record).is_some() {
                plain[self.row] = place;
                self.row += 1;
            } else {
                self.columns.iter_mut().for_each(|column| column.take_back(self.row));
                odd[odds] = place;
                odds += 1;
            }
        }
        Some(self.finish(has_forgotten))
    }

    fn start(&mut self, rows: usize, bytes: usize) {
        self.columns.clear();
        self.call += 1;
        self.row = 0;
        self.rows_max = rows;
        self.unreserved_bytes = bytes;
    }

    fn finish(&mut self, has_forgotten: bool) -> Parsed {
        let mut columns = std::mem::take(&mut self.columns);
        columns.retain(|column| !column.is_empty());
        columns.sort_unstable_by_key(|column| column.leaf);
        for column in &columns {
            self.tree.nodes[column.leaf].row_bytes = column.data.len().div_ceil(self.row);
        }
        Parsed {
            rows: self.row,
            leaves: columns.iter().map(|column| column.leaf as u32).collect(),
            kinds: columns.iter().map(|column| column.kinds).collect(),
            columns: columns.into_iter().map(|column| column.finish(self.row)).collect(),
            has_forgotten,
        }
    }

    /// Adds a record's values to the columns. None, with a part of them added, where it is odd.
    fn read(&mut self, record: &[u8]) -> Option<()> {
        let levels = self.depth_max.checked_sub(1)?;
        let begin = scan::skip_blanks(record, scan::literal(record, 0, b"{")?);
        let end = match record.get(begin)? {
            b'}' => begin + 1,
            _ => self.members(record, begin, ROOT, levels)?,
        };
        (scan::skip_blanks(record, end) == record.len()).then_some(())
    }

    /// The members of an object that has some. `levels`: how many objects and arrays may be open within it.
    fn members(&mut self, record: &[u8], mut at: usize, object: NodeId, levels: u32) -> Option<usize> {
        let mut previous = ROOT;
        loop {
            let (node, end) = self.tree.key(record, at, object, previous)?;
            let known = &mut self.tree.nodes[node];
            if known.record == self.record || known.is_odd {
                return None; // the same key again
            }
            known.record = self.record;
            at = self.value(record, scan::skip_blanks(record, end), node, levels)?;
            at = scan::skip_blanks(record, at);
            match *record.get(at)? {
                b',' => at = scan::skip_blanks(record, at + 1),
                b'}' => return Some(at + 1),
                _ => return None,
            }
            previous = node;
        }
    }

    fn value(&mut self, record: &[u8], at: usize, node: NodeId, levels: u32) -> Option<usize> {
        match *record.get(at)? {
            b'"' => {
                let row = self.row;
                let column = self.column(node)?;
                let end = append_text(record, at + 1, &mut column.data)?;
                column.end(row, kinds::TEXT);
                Some(end)
            }
            b'{' => {
                let levels = levels.checked_sub(1)?;
                let begin = scan::skip_blanks(record, at + 1);
                if *record.get(begin)? == b'}' {
                    self.put(node, EMPTY_OBJECT, kinds::EMPTY_OBJECT)?;
                    return Some(begin + 1);
                }
                self.members(record, begin, node, levels)
            }
            b'n' => scan::literal(record, at, b"null"),
            b'[' => {
                let end = scan::array(record, at + 1, levels)?;
                self.put(node, &record[at..end], kinds::ARRAY)?;
                Some(end)
            }
            _ => {
                let (end, kind) = scan::scalar(record, at)?;
                self.put(node, &record[at..end], kind)?;
                Some(end)
            }
        }
    }

    fn put(&mut self, node: NodeId, value: &[u8], kind: u32) -> Option<()> {
        let row = self.row;
        let column = self.column(node)?;
        column.data.extend_from_slice(value);
        column.end(row, kind);
        Some(())
    }

    /// The column of a leaf, ready for this row's value. None where the call has too many columns for its
    /// rows.
    #[inline]
    fn column(&mut self, node: NodeId) -> Option<&mut Column> {
        if self.tree.nodes[node].call != self.call {
            self.add_column(node)?;
        }
        let column = &mut self.columns[self.tree.nodes[node].column];
        column.begin(self.row);
        Some(column)
    }

    fn add_column(&mut self, node: NodeId) -> Option<()> {
        if (self.columns.len() + 1) * (self.rows_max + 1) > CELLS_MAX {
            return None;
        }
        let known = &mut self.tree.nodes[node];
        let reserved = (known.row_bytes * self.rows_max).min(self.unreserved_bytes);
        self.unreserved_bytes -= reserved;
        known.call = self.call;
        known.column = self.columns.len();
        self.columns.push(Column::new(node, self.rows_max, reserved));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Row = BTreeMap<String, String>;

    struct Read {
        plain: Vec<i32>,
        odd: Vec<i32>,
        rows: Vec<Row>,
        kinds: BTreeMap<String, u32>,
    }

    fn route(parser: &JsonColumns, leaf: u32) -> String {
        let (mut bytes, mut keys) = (Vec::new(), Vec::new());
        parser.tree.append_route(leaf as usize, &mut bytes);
        let mut rest = bytes.as_slice();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (key, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            keys.push(String::from_utf8(key.to_vec()).unwrap());
            rest = behind;
        }
        keys.join("/")
    }

    fn read_with(parser: &mut JsonColumns, records: &[&str]) -> Read {
        let data = records.concat().into_bytes();
        let ends: Vec<i64> = records
            .iter()
            .scan(0, |end, record| {
                *end += record.len() as i64;
                Some(*end)
            })
            .collect();
        let (mut plain, mut odd) = (vec![-1; ends.len()], vec![-1; ends.len()]);
        let parsed = parser.parse(&data, 0, &ends, &mut plain, &mut odd).unwrap();
        plain.truncate(parsed.rows);
        odd.truncate(records.len() - parsed.rows);
        let mut rows = vec![Row::new(); parsed.rows];
        let mut kinds = BTreeMap::new();
        for ((&leaf, &kind), column) in parsed.leaves.iter().zip(&parsed.kinds).zip(&parsed.columns) {
            let name = route(parser, leaf);
            kinds.insert(name.clone(), kind);
            for (at, row) in rows.iter_mut().enumerate() {
                if column.valid.as_ref().is_none_or(|bits| bits[at / 8] >> (at % 8) & 1 == 1) {
                    let value = &column.data[column.offsets[at] as usize..column.offsets[at + 1] as usize];
                    row.insert(name.clone(), String::from_utf8(value.to_vec()).unwrap());
                }
            }
        }
        Read { plain, odd, rows, kinds }
    }

    fn parser() -> JsonColumns {
        JsonColumns::new(5, vec![Box::from(&b"resourceLogs"[..])])
    }

    fn row(values: &[(&str, &str)]) -> Row {
        values.iter().map(|&(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn values_stand_under_their_route_as_they_are_spelled() {
        let read = read_with(
            &mut parser(),
            &[
                r#"{"a":1,"b":{"c":"x\ny","d":{"e":1.50}},"f":[1, {"g":"\u00e9"}],"h":{ },"i":null}"#,
                r#"{ "f" : true , "a" : "text", "new": -0, "n": NaN }"#,
                "{\"b\":{\"c\":null}} \n",
                "{}",
                r#"{"a":{"a":"as an object"}}"#,
            ],
        );
        assert_eq!(read.odd, []);
        assert_eq!(read.plain, [0, 1, 2, 3, 4]);
        let spelled = r#"[1, {"g":"\u00e9"}]"#;
        assert_eq!(
            read.rows[0],
            row(&[("a", "1"), ("b/c", "x\ny"), ("b/d/e", "1.50"), ("f", spelled), ("h", "{}")])
        );
        assert_eq!(read.rows[1], row(&[("a", "text"), ("f", "true"), ("n", "NaN"), ("new", "-0")]));
        assert_eq!((&read.rows[2], &read.rows[3]), (&Row::new(), &Row::new()));
        assert_eq!(read.rows[4], row(&[("a/a", "as an object")]));
        assert_eq!(read.kinds["a"], kinds::INTEGER | kinds::TEXT);
        assert_eq!(read.kinds["f"], kinds::ARRAY | kinds::BOOLEAN);
        assert_eq!(read.kinds["b/d/e"], kinds::DECIMAL);
        assert_eq!(read.kinds["h"], kinds::EMPTY_OBJECT);
        assert_eq!(read.kinds["n"], kinds::NON_FINITE);
    }

    #[test]
    fn odd_rows_leave_nothing_in_the_columns() {
        let odd = [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":null,"a":2}"#,
            r#"{"a":{"b":1},"a":{"c":1}}"#,
            r#"{"x":1,"resourceLogs":[]}"#,
            r#"{"x":"\ud800"}"#,
            r#"{"a":"x""#,
            r#"{"a":"x"}}"#,
            r#"{"a":"x"} y"#,
            r#" {"a":"x"}"#,
            r#"{"a":"x",}"#,
            r#"{"a":01}"#,
            r#"{"a":}"#,
            "[]",
            "",
        ];
        let good = r#"{"a":"x","c":{"resourceLogs":[[[]]]}}"#;
        let mut records = Vec::new();
        for each in odd {
            records.extend([good, each]);
        }
        let read = read_with(&mut parser(), &records);
        assert_eq!(read.odd, (0..odd.len() as i32).map(|at| 2 * at + 1).collect::<Vec<_>>());
        assert_eq!(read.rows, vec![row(&[("a", "x"), ("c/resourceLogs", "[[[]]]")]); odd.len()]);
        assert_eq!(read.kinds["a"], kinds::TEXT);
        assert_eq!(read.kinds.len(), 2);
    }

    #[test]
    fn levels_are_counted_as_python_counts_them() {
        let fit =
            [r#"{"a":{"a":{"a":{"a":{"a":1}}}}}"#, r#"{"a":{"a":{"a":{"a":{}}}}}"#, r#"{"a":[[[{}]]]}"#];
        let too_deep = [
            r#"{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}"#,
            r#"{"a":{"a":{"a":{"a":{"a":{}}}}}}"#,
            r#"{"a":[[[{"a":[]}]]]}"#,
        ];
        assert_eq!(read_with(&mut parser(), &[fit, too_deep].concat()).odd, [3, 4, 5]);
        assert_eq!(read_with(&mut JsonColumns::new(0, vec![]), &["{}"]).odd, [0]);
    }

    #[test]
    fn a_parser_goes_on_with_what_it_knows() {
        let mut parser = parser();
        for _ in 0..3 {
            let read = read_with(&mut parser, &[r#"{"a":"1","b":2}"#, r#"{"b":3}"#]);
            assert_eq!(read.rows, [row(&[("a", "1"), ("b", "2")]), row(&[("b", "3")])]);
        }
        let read = read_with(&mut parser, &[r#"{"c":3}"#]);
        assert_eq!(read.rows, [row(&[("c", "3")])]);
        assert_eq!(read.kinds.len(), 1);
        assert_eq!(read_with(&mut parser, &[]).rows, []);
    }

    #[test]
    fn too_many_columns_for_the_rows_make_records_odd() {
        let members: Vec<_> = (0..CELLS_MAX / ROWS_MAX).map(|key| format!("\"{key}\":1")).collect();
        let wide = format!("{{{}}}", members.join(","));
        assert_eq!(read_with(&mut parser(), &[wide.as_str(); 100]).odd, []);
        let mut records = vec!["{}"; ROWS_MAX];
        records[1] = &wide;
        records[2] = r#"{"1":2}"#;
        let read = read_with(&mut parser(), &records);
        assert_eq!((read.odd, read.kinds.len()), (vec![1], 1));
        assert_eq!(read.rows[1], row(&[("1", "2")]));
    }

    #[test]
    fn ends_that_are_none_are_refused() {
        let (mut plain, mut odd) = ([0; 2], [0; 2]);
        for (begin, ends) in
            [(0, [2, 1]), (0, [2, 9]), (-1, [1, 2]), (0, [-1, 2]), (3, [2, 4]), (0, [i64::MIN, i64::MAX])]
        {
            assert!(
                parser().parse(b"{}{}", begin, &ends, &mut plain, &mut odd).is_none(),
                "{begin} {ends:?}"
            );
        }
        let parsed = parser().parse(b"xx{}xx", 2, &[4], &mut plain, &mut odd).unwrap();
        assert_eq!(parsed.rows, 1);
        let many = vec![0; ROWS_MAX + 1];
        assert!(parser().parse(b"", 0, &many, &mut plain, &mut odd).is_none());
    }
}
