//! Rows as a Parquet file of one row group with a page for each column
//! (<https://parquet.apache.org/docs/file-format/>), and what Iceberg's manifest says of it.

use crate::arrow::{Batch, Form, Given, Rows};
use crate::bounds;
use crate::snappy::Snappy;
use crate::thrift::{I32, LIST, STRUCT, Struct, structure, varint, zigzag};
use std::ops::Neg;

const MAGIC: &[u8; 4] = b"PAR1";
const CREATED_BY: &[u8] = concat!("firn-core version ", env!("CARGO_PKG_VERSION")).as_bytes();
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const SNAPPY: i32 = 1; // 0: not compressed
/// Of all pages of a file, before compression; it keeps sizes within Parquet's 32 bits.
const PAGES_BYTES_MAX: usize = 1 << 28;
/// Avro's unions of null and something: the something.
const PRESENT: u8 = 2;
/// What a column is: without nulls; in a file even where all its rows are null; a leaf of a list of structs of
/// texts, of which only nulls can be written.
const REQUIRED: i32 = 1;
const ALWAYS: i32 = 2;
const NESTED: i32 = 4;

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

/// A column of the file: what the layout says of it, and what it became.
#[derive(Default)]
struct Leaf<'a> {
    column: usize, // of the batch
    physical: i32, // Parquet's type
    flags: i32,
    id: i32,
    /// Of Parquet's schema, encoded, those that begin with this column; and its path from the root.
    element_count: usize,
    elements: &'a [u8],
    path: &'a [u8],
    nulls: usize,
    codec: i32,
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
    /// Writes the rows; None where a column is not as the layout says, or where the pages take more than
    /// `bytes_max`. `as_given`: with all columns, not only those that have a value or are always there.
    pub fn write(
        &mut self,
        mut layout: &[u8],
        batch: &Batch,
        rows: Rows,
        as_given: bool,
        bytes_max: usize,
    ) -> Option<()> {
        let (count, bytes_max) = (rows.count, bytes_max.min(PAGES_BYTES_MAX));
        self.file.clear();
        self.file.extend_from_slice(MAGIC);
        let (mut leaves, mut columns, mut pages_bytes) = (Vec::new(), 0, 0);
        while !layout.is_empty() {
            let mut leaf = Leaf::read(&mut layout)?;
            columns = leaf.column + 1;
            let given = batch.column(leaf.column, leaf.form(), rows)?;
            leaf.nulls = given.nulls();
            if leaf.is(REQUIRED) && leaf.nulls > 0 || leaf.is(NESTED) && leaf.nulls < count {
                return None;
            }
            if leaf.nulls == count && !as_given && !leaf.is(ALWAYS) {
                continue;
            }
            leaf.bounds = self.fill(&leaf, &given, bytes_max)?;
            pages_bytes += self.page.len();
            if pages_bytes > bytes_max {
                return None;
            }
            self.put(&mut leaf, count);
            leaves.push(leaf);
        }
        if columns != batch.columns() {
            return None;
        }
        self.end(&leaves, count);
        self.tell_metrics(&leaves, count);
        Some(())
    }

    /// Makes a page: levels, then values. None for texts that are no UTF-8, or too much.
    fn fill(&mut self, leaf: &Leaf, given: &Given, bytes_max: usize) -> Option<Option<Bounds>> {
        let (page, rows, plain) = (&mut self.page, &given.rows, given.plain);
        page.clear();
        if leaf.is(NESTED) {
            levels(page, rows, |_| false, true); // each row begins a list
        }
        if !leaf.is(REQUIRED) {
            levels(page, rows, |row| given.is_valid(row), leaf.nulls == 0 || leaf.nulls == rows.count);
        }
        if leaf.nulls == rows.count {
            return Some(None);
        }
        let valid = rows.iter().filter(|&row| given.is_valid(row));
        Some(match leaf.physical {
            0 => booleans(page, valid.map(|row| plain[row / 8] >> (row % 8) & 1 == 1)),
            1 => numbers(page, plain, valid, i32::from_le_bytes, i32::to_le_bytes),
            2 => numbers(page, plain, valid, i64::from_le_bytes, i64::to_le_bytes),
            4 => numbers(page, plain, valid, f32::from_le_bytes, f32::to_le_bytes),
            5 => numbers(page, plain, valid, f64::from_le_bytes, f64::to_le_bytes),
            _ => return texts(page, valid.map(|row| given.text(row)), bytes_max).map(Some),
        })
    }

    /// Adds the page to the file, compressed where that makes it smaller.
    fn put(&mut self, leaf: &mut Leaf, rows: usize) {
        self.packed.clear();
        self.snappy.compress(&self.page, &mut self.packed);
        let mut stored = &self.page;
        if self.packed.len() < stored.len() {
            (leaf.codec, stored) = (SNAPPY, &self.packed);
        }
        leaf.offset = self.file.len();
        structure(&mut self.file, |header| {
            header.i32(1, 0); // a data page
            header.i32(2, self.page.len() as i32);
            header.i32(3, stored.len() as i32);
            header.nested(5, |data| {
                data.i32(1, rows as i32);
                data.i32(2, PLAIN);
                data.i32(3, RLE);
                data.i32(4, RLE);
            });
        });
        leaf.plain_bytes = self.file.len() - leaf.offset + self.page.len();
        self.file.extend_from_slice(stored);
        leaf.stored_bytes = self.file.len() - leaf.offset;
    }

    /// Writes the footer.
    fn end(&mut self, leaves: &[Leaf], rows: usize) {
        let begin = self.file.len();
        structure(&mut self.file, |footer| {
            footer.i32(1, 2); // version
            let elements = leaves.iter().map(|leaf| leaf.element_count).sum::<usize>();
            let schema = footer.list(2, STRUCT, 1 + elements);
            structure(schema, |root| {
                root.i32(3, 0); // required
                root.binary(4, b"schema");
                root.i32(5, leaves.iter().filter(|leaf| leaf.element_count > 0).count() as i32);
            });
            leaves.iter().for_each(|leaf| schema.extend_from_slice(leaf.elements));
            footer.i64(3, rows);
            footer.structures(4, &[()], |group, ()| {
                group.structures(1, leaves, |chunk, leaf| {
                    chunk.i64(2, 0);
                    chunk.nested(3, |told| leaf.tell(told, rows));
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

    fn tell_metrics(&mut self, leaves: &[Leaf], rows: usize) {
        let out = &mut self.metrics;
        out.clear();
        let number = |out: &mut Vec<u8>, number| zigzag(out, number as i64);
        map(out, leaves, |leaf| Some(leaf.stored_bytes), number);
        map(out, leaves, |_| Some(rows), number);
        map(out, leaves, |leaf| Some(leaf.nulls), number);
        zigzag(out, 0); // NaN are not counted
        let bytes = |out: &mut Vec<u8>, bytes: &Vec<u8>| {
            zigzag(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        };
        map(out, leaves, |leaf| leaf.bounds.as_ref().map(|bounds| &bounds.lower), bytes);
        map(out, leaves, |leaf| leaf.bounds.as_ref()?.upper.as_ref(), bytes);
    }
}

impl<'a> Leaf<'a> {
    /// Reads one from a layout: five numbers, elements and path behind their lengths; numbers have four bytes.
    fn read(told: &mut &'a [u8]) -> Option<Self> {
        let [column, physical, flags, id, count] = [(); 5].map(|()| number(told));
        let (elements, path) = (bytes(told)?, bytes(told)?);
        let (column, element_count) = (usize::try_from(column?).ok()?, usize::try_from(count?).ok()?);
        let (physical, flags, id) = (physical?, flags?, id?);
        Some(Self { column, physical, flags, id, element_count, elements, path, ..Self::default() })
    }

    fn is(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn form(&self) -> Form {
        match self.physical {
            _ if self.is(NESTED) => Form::Nested,
            0 => Form::Bits(1),
            1 | 4 => Form::Bits(32),
            2 | 5 => Form::Bits(64),
            _ => Form::Text,
        }
    }

    fn tell(&self, told: &mut Struct, rows: usize) {
        told.i32(1, self.physical);
        let encodings = told.list(2, I32, 2);
        zigzag(encodings, PLAIN.into());
        zigzag(encodings, RLE.into());
        told.field(3, LIST).extend_from_slice(self.path);
        told.i32(4, self.codec);
        told.i64(5, rows);
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

fn number(told: &mut &[u8]) -> Option<i32> {
    let (number, rest) = told.split_first_chunk()?;
    *told = rest;
    Some(i32::from_le_bytes(*number))
}

fn bytes<'a>(told: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(told)?).ok()?;
    let (bytes, rest) = told.split_at_checked(length)?;
    *told = rest;
    Some(bytes)
}

/// Whether each row reaches a level, behind their length: as one run where all are equal, else as bits, of which
/// runs have eight each.
fn levels(page: &mut Vec<u8>, rows: &Rows, reaches: impl Fn(usize) -> bool, are_equal: bool) {
    let begin = page.len();
    page.extend_from_slice(&[0; 4]);
    if are_equal {
        varint(page, (rows.count as u64) << 1);
        page.push(rows.iter().next().is_some_and(reaches).into());
    } else {
        varint(page, (rows.count.div_ceil(8) as u64) << 1 | 1);
        bits(page, rows.iter().map(reaches));
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

fn texts<'a>(
    page: &mut Vec<u8>,
    values: impl Iterator<Item = Option<&'a [u8]>>,
    bytes_max: usize,
) -> Option<Bounds> {
    let mut ends: Option<[&[u8]; 2]> = None;
    for value in values {
        let value = value?;
        if page.len() + value.len() > bytes_max {
            return None; // a copy of what is too much would be kept
        }
        page.extend_from_slice(&(value.len() as u32).to_le_bytes());
        page.extend_from_slice(value);
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
    put: impl Fn(&mut Vec<u8>, T),
) {
    out.push(PRESENT);
    let count = leaves.iter().filter(|leaf| value(leaf).is_some()).count();
    if count > 0 {
        zigzag(out, count as i64);
    }
    for leaf in leaves {
        if let Some(value) = value(leaf) {
            zigzag(out, leaf.id.into());
            put(out, value);
        }
    }
    out.push(0);
}
