//! Columns leave and come by Arrow's C Data Interface
//! (<https://arrow.apache.org/docs/format/CDataInterface.html>).
#![allow(unsafe_code)] // its structures are read and released by somebody else's code

use crate::column::TextArray;
use std::ffi::c_void;
use std::{ptr, slice};

/// `struct ArrowArray` of the specification.
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// What an exported array owns until it is released.
#[derive(Default)]
struct Owned {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    _text: Option<TextArray>,
}

impl ArrowArray {
    /// A column of Arrow's type `utf8`.
    fn of_text(text: TextArray) -> Self {
        let (length, null_count) = (text.rows, text.nulls);
        // A vector's elements stay where they are when the vector itself moves.
        let buffers = vec![
            text.valid.as_ref().map_or(ptr::null(), |valid| valid.as_ptr().cast()),
            text.offsets.as_ptr().cast(),
            text.data.as_ptr().cast(),
        ];
        Self::new(length, null_count, Owned { buffers, _text: Some(text), ..Owned::default() })
    }

    /// A struct without nulls, of one field for each column.
    pub fn of_columns(rows: usize, columns: Vec<TextArray>) -> Self {
        let children = columns.into_iter().map(|text| Box::into_raw(Box::new(Self::of_text(text)))).collect();
        Self::new(rows, 0, Owned { buffers: vec![ptr::null()], children, ..Owned::default() })
    }

    /// Releases it, as its consumer would.
    ///
    /// # Safety
    /// The array is not released yet.
    #[cfg(test)]
    pub unsafe fn release_now(&mut self) {
        // SAFETY: the caller's promise; every array of ours has been made with a callback.
        unsafe { self.release.unwrap()(self) }
    }

    fn new(length: usize, null_count: usize, owned: Owned) -> Self {
        let mut owned = Box::new(owned);
        Self {
            length: length as i64,
            null_count: null_count as i64,
            offset: 0,
            n_buffers: owned.buffers.len() as i64,
            n_children: owned.children.len() as i64,
            buffers: owned.buffers.as_mut_ptr(),
            children: owned.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release),
            private_data: Box::into_raw(owned).cast(),
        }
    }
}

/// How the values of a column lie in memory that somebody else has filled.
#[derive(Clone, Copy)]
pub enum Form {
    /// So many bits each.
    Bits(usize),
    /// `utf8`: where each ends, and their bytes.
    Text,
    /// Of which only nulls are looked at.
    Nested,
}

/// Some rows of a batch: those from `first` on, or those with the numbers of `order`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    first: usize,
    pub count: usize,
    order: Option<&'a [u32]>,
    /// No row is at this number or behind it.
    end: usize,
}

impl<'a> Rows<'a> {
    /// None where there is no such number.
    pub fn from(first: usize, count: usize) -> Option<Self> {
        Some(Self { first, count, order: None, end: first.checked_add(count)? })
    }

    pub fn of(order: &'a [u32]) -> Self {
        let end = order.iter().max().map_or(0, |&last| last as usize + 1);
        Self { first: 0, count: order.len(), order: Some(order), end }
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let Self { first, order, .. } = *self;
        (0..self.count).map(move |at| first + order.map_or(at, |order| order[at] as usize))
    }
}

/// Rows of a column. They count from the beginning of its buffers.
pub struct Given<'a> {
    pub rows: Rows<'a>,
    valid: Option<&'a [u8]>,
    /// Bits or numbers.
    pub plain: &'a [u8],
    ends: &'a [i32],
    data: &'a [u8],
}

impl<'a> Given<'a> {
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1)
    }

    pub fn nulls(&self) -> usize {
        self.valid.map_or(0, |_| self.rows.iter().filter(|&row| !self.is_valid(row)).count())
    }

    /// A text; None where the offsets lead elsewhere.
    pub fn text(&self, row: usize) -> Option<&'a [u8]> {
        let [begin, end] = [self.ends[row], self.ends[row + 1]].map(usize::try_from);
        self.data.get(begin.ok()?..end.ok()?)
    }
}

/// A struct array that somebody else has made and keeps during 'a.
pub struct Batch<'a>(&'a ArrowArray);

impl<'a> Batch<'a> {
    /// # Safety
    /// The array is as the specification says, and its columns have the forms that they are asked for by.
    pub unsafe fn new(array: &'a ArrowArray) -> Self {
        Self(array)
    }

    pub fn columns(&self) -> usize {
        usize::try_from(self.0.n_children).unwrap_or(0)
    }

    /// Rows of a column; None where it has fewer, or fewer buffers than its form.
    pub fn column(&self, at: usize, form: Form, rows: Rows<'a>) -> Option<Given<'a>> {
        if at >= self.columns() || self.0.offset != 0 {
            return None;
        }
        // SAFETY: `new` was promised an array as specified: it has so many children, which live as long.
        let child = unsafe { (*self.0.children.add(at)).as_ref()? };
        let offset = usize::try_from(child.offset).ok()?;
        let end = offset.checked_add(rows.end)?;
        let (buffers, each) = match form {
            Form::Nested => (1, 0),
            Form::Bits(each) => (2, each),
            Form::Text => (3, 32),
        };
        if rows.end > usize::try_from(child.length).ok()? || child.n_buffers < buffers {
            return None;
        }
        // SAFETY: the child has so many buffers, and they are as long as its form says.
        unsafe {
            let buffer = |at| (*child.buffers.add(at)).cast::<u8>();
            let valid = if buffer(0).is_null() { None } else { Some(elements(buffer(0), end.div_ceil(8))?) };
            let rows = Rows { first: offset + rows.first, ..rows };
            let mut given = Given { rows, valid, plain: &[], ends: &[], data: &[] };
            if let Form::Text = form {
                given.ends = elements(buffer(1).cast(), end.checked_add(1)?)?;
                given.data = elements(buffer(2), given.ends[end])?;
            } else if buffers > 1 {
                given.plain = elements(buffer(1), end.checked_mul(each)?.div_ceil(8))?;
            }
            Some(given)
        }
    }
}

/// An array of C; None where it is nowhere, or where no such elements can lie.
///
/// # Safety
/// `first` has so many elements, or is null, and nobody writes to them during 'a.
pub unsafe fn elements<'a, T>(first: *const T, count: impl TryInto<usize>) -> Option<&'a [T]> {
    match count.try_into().ok()? {
        0 => Some(&[]),
        _ if first.is_null() || !first.is_aligned() => None,
        // SAFETY: the caller's promise.
        count => Some(unsafe { slice::from_raw_parts(first, count) }),
    }
}

/// The release callback: frees what an array owns, and its children that nobody has moved elsewhere.
///
/// # Safety
/// `array` is one that `ArrowArray::new` made, not released yet; the specification has its consumer call this
/// once at most.
unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: the caller's array is valid and not released, so its `private_data` is the box that `new` gave up.
    let owned = unsafe { Box::from_raw((*array).private_data.cast::<Owned>()) };
    for &child in &owned.children {
        // SAFETY: `of_columns` made each child by `Box::into_raw`; moving one out leaves its structure here
        // with `release` set to None, as the specification asks of who does.
        let mut child = unsafe { Box::from_raw(child) };
        if let Some(release) = child.release {
            // SAFETY: the child is not released, and is one of ours.
            unsafe { release(&raw mut *child) };
        }
    }
    // SAFETY: as above; a released array says so by having no callback.
    unsafe { (*array).release = None };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Column;

    fn columns() -> ArrowArray {
        let mut column = Column::new(0, 3, 0);
        column.begin(1);
        column.data.extend_from_slice(b"text");
        column.end(1, 1);
        ArrowArray::of_columns(3, vec![column.finish(3), Column::new(0, 3, 0).finish(3)])
    }

    #[test]
    fn an_array_is_laid_out_as_specified_and_released_with_its_children() {
        let mut array = columns();
        assert_eq!((array.length, array.n_buffers, array.n_children), (3, 1, 2));
        // SAFETY: the array has two children and each of them three buffers, until it is released.
        unsafe {
            let child = &**array.children;
            assert_eq!((child.length, child.null_count, child.n_buffers), (3, 2, 3));
            let offsets = (*child.buffers.add(1)).cast::<[i32; 4]>();
            assert_eq!(*offsets, [0, 0, 4, 4]);
            assert_eq!(&*(*child.buffers.add(2)).cast::<[u8; 4]>(), b"text");
            assert_eq!(*(*child.buffers).cast::<u8>(), 0b10);
            array.release_now();
        }
        assert!(array.release.is_none());
    }

    #[test]
    fn a_child_moved_away_outlives_its_parent() {
        let mut array = columns();
        // SAFETY: a child is moved as the specification says: by a copy, and its mark taken from the original.
        unsafe {
            let mut moved = ptr::read(*array.children);
            (**array.children).release = None;
            array.release_now();
            assert_eq!(&*(*moved.buffers.add(2)).cast::<[u8; 4]>(), b"text");
            moved.release_now();
            assert!(moved.release.is_none());
        }
    }
}
