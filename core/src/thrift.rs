//! Thrift's compact protocol, as far as Parquet's metadata takes it
//! (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).

pub const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
pub const LIST: u8 = 9;
pub const STRUCT: u8 = 12;

/// Seven bits a byte, the lowest first.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A signed number, small where its distance from zero is; Avro has the same.
pub fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, (value << 1) as u64 ^ (value >> 63) as u64);
}

/// A struct while its fields are written, by ascending numbers.
pub struct Struct<'a> {
    out: &'a mut Vec<u8>,
    last: u8,
}

/// Writes a struct whole.
pub fn structure(out: &mut Vec<u8>, fields: impl FnOnce(&mut Struct)) {
    fields(&mut Struct { out, last: 0 });
    out.push(0);
}

impl Struct<'_> {
    /// Begins a field; of a boolean that is all.
    pub fn field(&mut self, number: u8, kind: u8) -> &mut Vec<u8> {
        self.out.push((number - self.last) << 4 | kind); // no two of Parquet's numbers are 16 apart
        self.last = number;
        self.out
    }

    pub fn i32(&mut self, number: u8, value: i32) {
        zigzag(self.field(number, I32), value.into());
    }

    pub fn i64(&mut self, number: u8, value: usize) {
        zigzag(self.field(number, I64), value as i64);
    }

    pub fn boolean(&mut self, number: u8, value: bool) {
        self.field(number, if value { 1 } else { 2 });
    }

    pub fn binary(&mut self, number: u8, value: &[u8]) {
        let out = self.field(number, BINARY);
        varint(out, value.len() as u64);
        out.extend_from_slice(value);
    }

    pub fn nested(&mut self, number: u8, fields: impl FnOnce(&mut Struct)) {
        structure(self.field(number, STRUCT), fields);
    }

    /// Begins a list, of which the elements follow.
    pub fn list(&mut self, number: u8, kind: u8, count: usize) -> &mut Vec<u8> {
        let out = self.field(number, LIST);
        out.push((count.min(15) as u8) << 4 | kind);
        if count >= 15 {
            varint(out, count as u64);
        }
        out
    }

    pub fn structures<T>(&mut self, number: u8, items: &[T], fields: impl Fn(&mut Struct, &T)) {
        let out = self.list(number, STRUCT, items.len());
        items.iter().for_each(|item| structure(out, |each| fields(each, item)));
    }
}
