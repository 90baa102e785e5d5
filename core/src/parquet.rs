//! Rows as a Parquet file of one row group with a page for each column
//! (<https://parquet.apache.org/docs/file-format/>), and what Iceberg's manifest says of it.

use crate::arrow::{Batch, Form, Given};
use crate::bounds;
use crate::snappy::Snappy;
use crate::thrift::{STRUCT, Struct, structure, varint, zigzag};
use std::ops::{Neg, Range};

const MAGIC: &[u8; 4] = b"PAR1";
const CREATED_BY: &[u8] = concat!("firn-core version ", env!("CARGO_PKG_VERSION")).as_bytes();
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const SNAPPY: i32 = 1; // 0: not compressed
/// Of all pages of a file, before compression; it keeps sizes within Parquet's 32 bits.
pub const PAGES_BYTES_MAX: usize = 1 << 28;
/// Avro's unions of null and something: the something.
const PRESENT: u8 = 2;

/// A column of the rows, as `ingest/core/parquet.py` describes it.
pub struct Field {
    physical: i32, // Parquet's type
    is_required: bool,
    /// Whether a file has it where all its rows are null.
    is_always: bool,
    /// A list of structs of optional texts; only nulls of it can be written.
    is_nested: bool,
    /// Of Parquet's schema, encoded, and how many.
    elements: Vec<u8>,
    element_count: usize,
    /// Its columns in Parquet: field id, path from the schema's root, encoded.
    leaves: Vec<(i32, Vec<u8>)>,
}

impl Field {
    /// Reads a layout, of which all numbers have four bytes: for each field type, flags, count and length of
    /// elements, these, count of leaves; for each of them id and length of its path, and this.
    pub fn read_all(mut told: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Vec::new();
        while !told.is_empty() {
            let [physical, flags, elements] = [(); 3].map(|()| number(&mut told));
            let (flags, element_count) = (flags?, usize::try_from(elements?).ok()?);
            let elements = bytes(&mut told)?;
            let leaves = (0..number(&mut told)?)
                .map(|_| Some((number(&mut told)?, bytes(&mut told)?)))
                .collect::<Option<_>>()?;
            let [is_required, is_always, is_nested] = [1, 2, 4].map(|bit| flags & bit != 0);
            fields.push(Self {
                physical: physical?,
                is_required,
                is_always,
                is_nested,
                elements,
                element_count,
                leaves,
            });
        }
        Some(fields)
    }

    pub fn form(&self) -> Form {
        match self.physical {
            _ if self.is_nested => Form::Nested,
            0 => Form::Bits(1),
            1 | 4 => Form::Bits(32),
            2 | 5 => Form::Bits(64),
            _ => Form::Text,
        }
    }
}

fn number(told: &mut &[u8]) -> Option<i32> {
    let (number, rest) = told.split_first_chunk()?;
    *told = rest;
    Some(i32::from_le_bytes(*number))
}

fn bytes(told: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(number(told)?).ok()?;
    let (bytes, rest) = told.split_at_checked(length)?;
    *told = rest;
    Some(bytes.to_vec())
}

/// Writes files, one after the other, into the same memory.
#[derive(Default)]
pub struct Writer {
    pub file: Vec<u8>,
    /// The manifest's maps of sizes, values, nulls, NaN, lower and upper bounds, as Avro.
    pub metrics: Vec<u8>,
    page: Vec<u8>,
    packed: Vec<u8>,
    snappy: Snappy,
}

/// A column of the file.
struct Leaf<'a> {
    physical: i32,
    id: i32,
    path: &'a [u8],
    codec: i32,
    rows: usize,
    nulls: usize,
    offset: usize,
    plain_bytes: usize,
    stored_bytes: usize,
    bounds: Option<Bounds>,
}

/// What no value is below or above; `upper` None: nothing so high can be written.
struct Bounds {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    are_exact: [bool; 2],
}

impl Writer {
    /// Writes the rows; None where a column is not as its field says, false where the pages take more than
    /// `bytes_max`. `as_given`: with all columns, not only those that have a value or are always there.
    pub fn write(
        &mut self,
        fields: &[Field],
        batch: &Batch,
        [first, count]: [usize; 2],
        as_given: bool,
        bytes_max: usize,
    ) -> Option<bool> {
        self.file.clear();
        self.file.extend_from_slice(MAGIC);
        let (mut there, mut leaves, mut pages_bytes) = (Vec::new(), Vec::new(), 0);
        for (at, field) in fields.iter().enumerate() {
            let given = batch.column(at)?;
            let rows = given.rows(first, count)?;
            let nulls = given.nulls(&rows);
            if nulls > 0 && field.is_required || nulls < count && field.is_nested {
                return None;
            }
            if nulls == count && !as_given && !field.is_always {
                continue;
            }
            there.push(field);
            let mut bounds = self.fill(field, &given, &rows, nulls)?;
            for (id, path) in &field.leaves {
                pages_bytes += self.page.len();
                if pages_bytes > bytes_max {
                    return Some(false);
                }
                leaves.push(self.put(field.physical, *id, path, [count, nulls], bounds.take()));
            }
        }
        self.end(&there, &leaves, count);
        self.tell_metrics(&leaves);
        Some(true)
    }

    /// Makes the page of a field: levels, then values. Texts that are no UTF-8 are refused.
    fn fill(
        &mut self,
        field: &Field,
        given: &Given,
        rows: &Range<usize>,
        nulls: usize,
    ) -> Option<Option<Bounds>> {
        let page = &mut self.page;
        page.clear();
        if field.is_nested {
            levels(page, rows, |_| false, true); // each row begins a list
        }
        if !field.is_required {
            levels(page, rows, |row| given.is_valid(row), nulls == 0 || nulls == rows.len());
        }
        if nulls == rows.len() {
            return Some(None);
        }
        let (plain, valid) = (given.plain, rows.clone().filter(|&row| given.is_valid(row)));
        Some(match field.physical {
            0 => booleans(page, valid.map(|row| plain[row / 8] >> (row % 8) & 1 == 1)),
            1 => numbers(page, plain, valid, i32::from_le_bytes, i32::to_le_bytes),
            2 => numbers(page, plain, valid, i64::from_le_bytes, i64::to_le_bytes),
            4 => numbers(page, plain, valid, f32::from_le_bytes, f32::to_le_bytes),
            5 => numbers(page, plain, valid, f64::from_le_bytes, f64::to_le_bytes),
            _ => return texts(page, valid.map(|row| given.text(row))).map(Some),
        })
    }

    /// Adds the page to the file, compressed where that makes it smaller.
    fn put<'a>(
        &mut self,
        physical: i32,
        id: i32,
        path: &'a [u8],
        [rows, nulls]: [usize; 2],
        bounds: Option<Bounds>,
    ) -> Leaf<'a> {
        self.packed.clear();
        self.snappy.compress(&self.page, &mut self.packed);
        let (plain, is_packed) = (self.page.len(), self.packed.len() < self.page.len());
        let stored = if is_packed { &self.packed } else { &self.page };
        let offset = self.file.len();
        structure(&mut self.file, |header| {
            header.i32(1, 0); // a data page
            header.i32(2, plain as i32);
            header.i32(3, stored.len() as i32);
            header.nested(5, |data| {
                data.i32(1, rows as i32);
                data.i32(2, PLAIN);
                data.i32(3, RLE);
                data.i32(4, RLE);
            });
        });
        let plain_bytes = self.file.len() - offset + plain;
        self.file.extend_from_slice(stored);
        let stored_bytes = self.file.len() - offset;
        let codec = if is_packed { SNAPPY } else { 0 };
        Leaf { physical, id, path, codec, rows, nulls, offset, plain_bytes, stored_bytes, bounds }
    }

    /// Writes the footer.
    fn end(&mut self, fields: &[&Field], leaves: &[Leaf], rows: usize) {
        let begin = self.file.len();
        structure(&mut self.file, |footer| {
            footer.i32(1, 2); // version
            let elements = fields.iter().map(|field| field.element_count).sum::<usize>();
            let schema = footer.list(2, STRUCT, 1 + elements);
            structure(schema, |root| {
                root.i32(3, 0); // required
                root.binary(4, b"schema");
                root.i32(5, fields.len() as i32);
            });
            fields.iter().for_each(|field| schema.extend_from_slice(&field.elements));
            footer.i64(3, rows);
            footer.structures(4, &[()], |group, ()| {
                group.structures(1, leaves, |chunk, leaf| {
                    chunk.i64(2, 0);
                    chunk.nested(3, |told| leaf.tell(told));
                });
                group.i64(2, leaves.iter().map(|leaf| leaf.plain_bytes).sum());
                group.i64(3, rows);
                group.i64(5, MAGIC.len());
                group.i64(6, leaves.iter().map(|leaf| leaf.stored_bytes).sum());
            });
            footer.binary(6, CREATED_BY);
            footer.structures(7, leaves, |order, _| order.nested(1, |_| ())); // that of the type
        });
        let length = (self.file.len() - begin) as u32;
        self.file.extend_from_slice(&length.to_le_bytes());
        self.file.extend_from_slice(MAGIC);
    }

    fn tell_metrics(&mut self, leaves: &[Leaf]) {
        let out = &mut self.metrics;
        out.clear();
        for number in [|leaf: &Leaf| leaf.stored_bytes, |leaf: &Leaf| leaf.rows, |leaf: &Leaf| leaf.nulls] {
            map(out, leaves, |leaf| Some(number(leaf)), |out, number| zigzag(out, *number as i64));
        }
        zigzag(out, 0); // NaN are not counted
        map(out, leaves, |leaf| leaf.bounds.as_ref().map(|bounds| &bounds.lower), avro_bytes);
        map(out, leaves, |leaf| leaf.bounds.as_ref()?.upper.as_ref(), avro_bytes);
    }
}

impl Leaf<'_> {
    fn tell(&self, told: &mut Struct) {
        told.i32(1, self.physical);
        let encodings = told.list(2, 5, 2);
        zigzag(encodings, PLAIN.into());
        zigzag(encodings, RLE.into());
        told.field(3, 9).extend_from_slice(self.path); // a list
        told.i32(4, self.codec);
        told.i64(5, self.rows);
        told.i64(6, self.plain_bytes);
        told.i64(7, self.stored_bytes);
        told.i64(9, self.offset);
        told.nested(12, |statistics| {
            statistics.i64(3, self.nulls);
            // Readers take one bound without the other for none.
            if let Some(Bounds { lower, upper: Some(upper), are_exact }) = &self.bounds {
                statistics.binary(5, upper);
                statistics.binary(6, lower);
                statistics.boolean(7, are_exact[1]);
                statistics.boolean(8, are_exact[0]);
            }
        });
    }
}

/// Whether each row reaches a level, behind their length: as one run where all are equal, else as bits, of which
/// runs have eight each.
fn levels(page: &mut Vec<u8>, rows: &Range<usize>, reaches: impl Fn(usize) -> bool, are_equal: bool) {
    let begin = page.len();
    page.extend_from_slice(&[0; 4]);
    if are_equal {
        varint(page, (rows.len() as u64) << 1);
        page.push(reaches(rows.start).into());
    } else {
        varint(page, (rows.len().div_ceil(8) as u64) << 1 | 1);
        bits(page, rows.clone().map(reaches));
    }
    let length = (page.len() - begin - 4) as u32;
    page[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}

fn bits(out: &mut Vec<u8>, values: impl Iterator<Item = bool>) {
    for (at, value) in values.enumerate() {
        if at % 8 == 0 {
            out.push(0);
        }
        let last = out.len() - 1;
        out[last] |= u8::from(value) << (at % 8);
    }
}

fn booleans(page: &mut Vec<u8>, values: impl Iterator<Item = bool> + Clone) -> Option<Bounds> {
    bits(page, values.clone());
    let ends = [values.clone().min()?, values.max()?];
    Some(Bounds::exact(ends.map(|end| vec![end.into()])))
}

/// NaN is no bound. 0.0 and -0.0 are equal for those who ask, and two for those who compare bounds.
fn numbers<const WIDTH: usize, T: PartialOrd + Copy + Default + Neg<Output = T>>(
    page: &mut Vec<u8>,
    plain: &[u8],
    rows: impl Iterator<Item = usize>,
    read: fn([u8; WIDTH]) -> T,
    write: fn(T) -> [u8; WIDTH],
) -> Option<Bounds> {
    let mut ends: Option<[T; 2]> = None;
    for row in rows {
        let mut bytes = [0; WIDTH];
        bytes.copy_from_slice(&plain[row * WIDTH..(row + 1) * WIDTH]);
        page.extend_from_slice(&bytes);
        let value = read(bytes);
        if value.partial_cmp(&value).is_some() {
            let [least, most] = ends.unwrap_or([value; 2]);
            ends = Some([if value < least { value } else { least }, if value > most { value } else { most }]);
        }
    }
    let [least, most] = ends?;
    let zero = T::default();
    let ends = [if least == zero { -zero } else { least }, if most == zero { zero } else { most }];
    Some(Bounds::exact(ends.map(|end| write(end).to_vec())))
}

fn texts<'a>(page: &mut Vec<u8>, values: impl Iterator<Item = Option<&'a [u8]>>) -> Option<Bounds> {
    let mut ends: Option<[&[u8]; 2]> = None;
    for value in values {
        let value = value?;
        page.extend_from_slice(&(value.len() as u32).to_le_bytes());
        page.extend_from_slice(value);
        if page.len() > PAGES_BYTES_MAX {
            return None;
        }
        ends = Some(ends.map_or([value; 2], |[least, most]| [least.min(value), most.max(value)]));
    }
    let [least, most] = ends?.map(std::str::from_utf8);
    let (least, most) = (least.ok()?, most.ok()?);
    let (lower, upper) = (bounds::lower(least), bounds::upper(most));
    let are_exact = [lower == least, upper.as_deref() == Some(most)];
    Some(Bounds { lower: lower.into(), upper: upper.map(String::into), are_exact })
}

impl Bounds {
    fn exact([lower, upper]: [Vec<u8>; 2]) -> Self {
        Self { lower, upper: Some(upper), are_exact: [true; 2] }
    }
}

/// A map from field ids, as Iceberg spells it in Avro: null or an array of pairs.
fn map<'a, T>(
    out: &mut Vec<u8>,
    leaves: &'a [Leaf],
    value: impl Fn(&'a Leaf<'a>) -> Option<T>,
    put: impl Fn(&mut Vec<u8>, &T),
) {
    let pairs: Vec<_> = leaves.iter().filter_map(|leaf| Some((leaf.id, value(leaf)?))).collect();
    out.push(PRESENT);
    if !pairs.is_empty() {
        zigzag(out, pairs.len() as i64);
        for (id, value) in pairs {
            zigzag(out, id.into());
            put(out, &value);
        }
    }
    out.push(0);
}

fn avro_bytes(out: &mut Vec<u8>, bytes: &&Vec<u8>) {
    zigzag(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}
