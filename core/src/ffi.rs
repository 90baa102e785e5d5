//! The C interface: what `ingest/core/library.py` loads. Every function returns a status, catches panics, and
//! takes pointers that are valid for the call.
#![allow(unsafe_code)] // pointers come from C

use crate::arrow::{ArrowArray, Batch, Rows, elements};
use crate::json_columns::{JsonColumns, Parsed};
use crate::parquet::Writer;
use crate::reorder::{Reordered, Texts, reorder};
use crate::tokens::{Limits, Reader};
use std::cell::{RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

/// Raised with every change of this interface; who loads another version than it knows does without.
const VERSION: u32 = 9;

/// What every function returns.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Done = 0,
    /// The arguments are not what the function takes.
    BadArguments = 1,
    /// Another thread is using the parser.
    Busy = 2,
    /// A defect of this library; the parser has forgotten everything and can be used again.
    Panicked = 3,
}

/// A parser as C sees it.
pub struct Handle {
    is_busy: AtomicBool,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    parser: JsonColumns,
    make: Box<dyn Fn() -> JsonColumns>,
    generation: u64,
    leaves: Vec<u32>,
    kinds: Vec<u32>,
    route: Vec<u8>,
}

/// What became of the records of a call. The arrays are the parser's until its next call.
#[repr(C)]
pub struct JsonResult {
    /// Records that are rows of the columns; all others are odd.
    rows: i64,
    columns: i64,
    /// A number for each column's route, and the bits of its kinds.
    leaves: *const u32,
    kinds: *const u32,
    /// Changes when leaves get other numbers.
    generation: u64,
}

/// Texts of `size` bytes, some of `rows` rows; offsets and validity as Arrow has them.
#[repr(C)]
pub struct TextsPart {
    rows: i64,
    offsets: *const i32,
    validity: *const u8,
    data: *const u8,
    size: i64,
}

/// Where a reordered array goes.
#[repr(C)]
pub struct ReorderedTexts {
    offsets: *mut i32,
    validity: *mut u8,
    data: *mut u8,
}

/// The version of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn firn_core_version() -> u32 {
    VERSION
}

/// Makes a parser. `odd_keys`: of which `odd_key_ends[i]` is the end of the key `i`, as records are given to
/// `firn_json_parse`; those keys at a record's top make it odd.
///
/// # Safety
/// `odd_keys` has so many bytes as the last of the `odd_key_count` ends says; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_json_new(
    depth_max: u32,
    odd_keys: *const u8,
    odd_key_ends: *const i64,
    odd_key_count: i64,
    out: *mut *mut Handle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let ends = unsafe { elements(odd_key_ends, odd_key_count) }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { elements(odd_keys, ends.last().copied().unwrap_or(0)) }?;
        let mut begin = 0;
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        for &end in ends {
            let end = usize::try_from(end).ok()?;
            keys.push(bytes.get(begin..end)?.into());
            begin = end;
        }
        let make = Box::new(move || JsonColumns::new(depth_max, keys.clone()));
        let inner = Inner {
            parser: make(),
            make,
            generation: 0,
            leaves: Vec::new(),
            kinds: Vec::new(),
            route: Vec::new(),
        };
        let handle = Box::new(Handle { is_busy: AtomicBool::new(false), inner: UnsafeCell::new(inner) });
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(handle)) };
        Some(())
    })
}

/// Frees a parser.
///
/// # Safety
/// `handle` is of `firn_json_new`, no call is using it, and none will.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_json_free(handle: *mut Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe { free(handle) }
}

/// Reads `count` records of `data`, which has `size` bytes: the first begins at `begin`, each ends at its place
/// of `ends`. `plain`, `odd`: `count` places each; get the numbers of the records that are rows, and of those
/// that are odd. `columns`: gets an Arrow struct array with a `utf8` field for each column.
///
/// # Safety
/// `handle` is of `firn_json_new`; the arrays are as long as said, and nobody writes to them meanwhile; what
/// `columns` and `result` point to can be written, and holds nothing that would have to be released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_json_parse(
    handle: *const Handle,
    data: *const u8,
    size: i64,
    begin: i64,
    ends: *const i64,
    count: i64,
    plain: *mut i32,
    odd: *mut i32,
    columns: *mut ArrowArray,
    result: *mut JsonResult,
) -> Status {
    // SAFETY: the caller's promise.
    let work = |inner: &mut Inner| unsafe {
        let (data, ends) = (elements(data, size)?, elements(ends, count)?);
        let (plain, odd) = (elements_mut(plain, count)?, elements_mut(odd, count)?);
        let parsed = inner.parser.parse(data, begin, ends, plain, odd)?;
        let (array, told) = inner.take(parsed);
        columns.write(array);
        result.write(told);
        Some(())
    };
    // SAFETY: the caller's promise.
    unsafe { alone(handle, work) }
}

/// The route of a leaf: its keys, the outermost first, each as its length (four bytes, the lowest first) and its
/// bytes. `out`, `size`: get where they lie until the parser's next call, and how many bytes they are.
///
/// # Safety
/// `handle` is of `firn_json_new`; `out` and `size` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_json_route(
    handle: *const Handle,
    leaf: u32,
    out: *mut *const u8,
    size: *mut i64,
) -> Status {
    // SAFETY: the caller's promise.
    let work = |inner: &mut Inner| unsafe {
        let leaf = leaf as usize;
        inner.parser.tree.nodes.get(leaf)?;
        inner.route.clear();
        inner.parser.tree.append_route(leaf, &mut inner.route);
        out.write(inner.route.as_ptr());
        size.write(inner.route.len() as i64);
        Some(())
    };
    // SAFETY: the caller's promise.
    unsafe { alone(handle, work) }
}

/// A file and what a manifest says of it, the thread's until its next call.
#[repr(C)]
pub struct FileResult {
    file: *const u8,
    file_size: i64,
    metrics: *const u8,
    metrics_size: i64,
}

thread_local! {
    static WRITER: RefCell<Writer> = RefCell::default();
}

/// Writes `count` rows from `first` on, or those that `order` names, as a file of at most `bytes_max` bytes before compression; more are bad
/// arguments, and so are values that no file of the core can have. `layout`: the
/// file's columns, as `parquet::Leaf` reads them. `as_given`: with all columns, not only those with a value and
/// those that are always there.
///
/// # Safety
/// `layout` has so many bytes; `rows` is a struct array with the columns that the layout names; `order` is null or has
/// `count` numbers; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_parquet_write(
    layout: *const u8,
    layout_size: i64,
    rows: *const ArrowArray,
    order: *const u32,
    first: i64,
    count: i64,
    as_given: bool,
    bytes_max: i64,
    out: *mut FileResult,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (layout, batch) = unsafe { (elements(layout, layout_size)?, Batch::new(rows.as_ref()?)) };
        let rows = if order.is_null() {
            Rows::from(usize::try_from(first).ok()?, usize::try_from(count).ok()?)?
        } else {
            // SAFETY: the caller's promise.
            Rows::of(unsafe { elements(order, count)? })
        };
        WRITER.with_borrow_mut(|writer| {
            writer.write(layout, &batch, rows, as_given, usize::try_from(bytes_max).ok()?)?;
            let result = FileResult {
                file: writer.file.as_ptr(),
                file_size: writer.file.len() as i64,
                metrics: writer.metrics.as_ptr(),
                metrics_size: writer.metrics.len() as i64,
            };
            // SAFETY: the caller's promise.
            unsafe { out.write(result) };
            Some(())
        })
    })
}

impl Inner {
    fn take(&mut self, parsed: Parsed) -> (ArrowArray, JsonResult) {
        self.generation += u64::from(parsed.has_forgotten);
        (self.leaves, self.kinds) = (parsed.leaves, parsed.kinds);
        let result = JsonResult {
            rows: parsed.rows as i64,
            columns: self.leaves.len() as i64,
            leaves: self.leaves.as_ptr(),
            kinds: self.kinds.as_ptr(),
            generation: self.generation,
        };
        (ArrowArray::of_columns(parsed.rows, parsed.columns), result)
    }
}

/// Does work with a parser that no other thread is using; after a panic the parser is a new one.
///
/// # Safety
/// `handle` is of `firn_json_new`.
unsafe fn alone(handle: *const Handle, work: impl FnOnce(&mut Inner) -> Option<()>) -> Status {
    // SAFETY: the caller's promise; nothing but `firn_json_free` takes a handle mutably.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return Status::BadArguments;
    };
    if handle.is_busy.swap(true, Ordering::Acquire) {
        return Status::Busy;
    }
    // SAFETY: the mark just set keeps all others away from the parser until it is taken off below.
    let inner = unsafe { &mut *handle.inner.get() };
    let status = guarded(|| work(inner));
    if status == Status::Panicked {
        inner.parser = (inner.make)();
        inner.generation += 1;
    }
    handle.is_busy.store(false, Ordering::Release);
    status
}

/// Frees what was handed out.
///
/// # Safety
/// It was made by `Box::into_raw`, nobody is using it, and nobody will.
pub unsafe fn free<T>(handle: *mut T) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
        Some(())
    })
}

/// What a text column has, the thread's until its next call.
#[repr(C)]
pub struct WordsResult {
    hashes: *const u64,
    /// How many; below zero what there is too much of, as `tokens::Excess`.
    hash_count: i64,
    others: *const i64,
    other_count: i64,
    /// One bit for each character of ASCII, the lowest first.
    characters: [u64; 2],
    has_characters: bool,
}

thread_local! {
    static READER: RefCell<Reader> = RefCell::default();
}

/// Reads texts of `data`, which has `size` bytes. `offsets`: where each begins, and the end of the last.
///
/// # Safety
/// The arrays are as long as said, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_words(
    data: *const u8,
    size: i64,
    offsets: *const i32,
    offset_count: i64,
    limits: *const [i64; 3],
    out: *mut WordsResult,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (data, offsets) = unsafe { (elements(data, size)?, elements(offsets, offset_count)?) };
        // SAFETY: the caller's promise.
        let [text, words, characters] = unsafe { limits.as_ref()? }.map(usize::try_from);
        let limits = Limits { text: text.ok()?, words: words.ok()?, characters: characters.ok()? };
        READER.with_borrow_mut(|reader| {
            let excess = reader.read(data, offsets, &limits)?.err();
            let words = &reader.words;
            let characters = words.characters.unwrap_or_default();
            let result = WordsResult {
                hashes: words.hashes.as_ptr(),
                hash_count: excess.map_or(words.hashes.len() as i64, |excess| excess as i64),
                others: words.others.as_ptr(),
                other_count: words.others.len() as i64,
                characters: [characters as u64, (characters >> 64) as u64],
                has_characters: words.characters.is_some(),
            };
            // SAFETY: the caller's promise.
            unsafe { out.write(result) };
            Some(())
        })
    })
}

/// Puts the texts of `rows` rows, which lie in several parts, where `places` says that their rows go. The arrays of
/// `out` are as large as those of all parts together, and zero.
///
/// # Safety
/// The arrays are as long as said, and nobody else reads or writes those of `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_reorder(
    parts: *const TextsPart,
    part_count: i64,
    places: *const u32,
    rows: i64,
    out: *const ReorderedTexts,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let parts = elements(parts, part_count)?;
            let size = parts.iter().try_fold(0_i64, |sum, part| sum.checked_add(part.size))?;
            let mut places = elements(places, rows)?;
            let mut texts = Vec::with_capacity(parts.len());
            for part in parts {
                let (own, others) = places.split_at_checked(usize::try_from(part.rows).ok()?)?;
                texts.push(part.texts(own)?);
                places = others;
            }
            let out = out.as_ref()?;
            let mut out = Reordered {
                offsets: elements_mut(out.offsets, rows.checked_add(1)?)?,
                validity: elements_mut(out.validity, rows.checked_add(7)? / 8)?,
                data: elements_mut(out.data, size)?,
            };
            reorder(&texts, &mut out)
        }
    })
}

impl TextsPart {
    /// The arrays.
    ///
    /// # Safety
    /// They are as long as said, and nobody writes to them.
    unsafe fn texts<'a>(&self, places: &'a [u32]) -> Option<Texts<'a>> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Texts {
                offsets: elements(self.offsets, self.rows.checked_add(1)?)?,
                validity: elements(self.validity, self.rows.checked_add(7)? / 8)?,
                data: elements(self.data, self.size)?,
                places,
            })
        }
    }
}

/// What work gave, or that it panicked, as a status.
pub fn guarded(work: impl FnOnce() -> Option<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Some(())) => Status::Done,
        Ok(None) => Status::BadArguments,
        Err(_) => Status::Panicked,
    }
}

/// An array of C that is written to; None where its length is none or its place is nowhere.
///
/// # Safety
/// As of `arrow::elements`, and nobody reads them either.
unsafe fn elements_mut<'a, T>(first: *mut T, count: i64) -> Option<&'a mut [T]> {
    match usize::try_from(count).ok()? {
        0 => Some(&mut []),
        _ if first.is_null() => None,
        // SAFETY: the caller's promise.
        count => Some(unsafe { slice::from_raw_parts_mut(first, count) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;
    use std::ptr;

    fn new_handle() -> *mut Handle {
        let mut handle = ptr::null_mut();
        // SAFETY: the keys have as many bytes as the last end says.
        let status = unsafe { firn_json_new(9, b"oddtoo".as_ptr(), [3, 6].as_ptr(), 2, &raw mut handle) };
        assert_eq!(status, Status::Done);
        handle
    }

    fn parse(handle: *const Handle, data: &[u8], ends: &[i64]) -> Result<(i64, Vec<u32>, u64), Status> {
        let mut places = vec![0; 2 * ends.len()];
        let (plain, odd) = places.split_at_mut(ends.len());
        let (mut array, mut result) = (MaybeUninit::uninit(), MaybeUninit::<JsonResult>::uninit());
        // SAFETY: all arrays are as long as said; what was written is read where the status says so alone.
        unsafe {
            let status = firn_json_parse(
                handle,
                data.as_ptr(),
                data.len() as i64,
                0,
                ends.as_ptr(),
                ends.len() as i64,
                plain.as_mut_ptr(),
                odd.as_mut_ptr(),
                array.as_mut_ptr(),
                result.as_mut_ptr(),
            );
            if status != Status::Done {
                return Err(status);
            }
            drop_array(array.assume_init_mut());
            let result = result.assume_init();
            let leaves = elements(result.leaves, result.columns).unwrap().to_vec();
            Ok((result.rows, leaves, result.generation))
        }
    }

    fn drop_array(array: &mut ArrowArray) {
        // SAFETY: an array that was just made, which nobody else has.
        unsafe { array.release_now() };
    }

    #[test]
    fn a_caller_gets_rows_columns_and_routes() {
        let handle = new_handle();
        let (rows, leaves, generation) =
            parse(handle, br#"{"a":{"bc":1}}{"odd":1}{"too":1}"#, &[14, 23, 32]).unwrap();
        assert_eq!((rows, leaves.len(), generation), (1, 1, 0));
        let (mut place, mut size) = (ptr::null(), 0);
        // SAFETY: the handle is alive, and the route is read before its next call.
        unsafe {
            assert_eq!(firn_json_route(handle, leaves[0], &raw mut place, &raw mut size), Status::Done);
            assert_eq!(elements(place, size).unwrap(), b"\x01\0\0\0a\x02\0\0\0bc");
            assert_eq!(firn_json_route(handle, 999, &raw mut place, &raw mut size), Status::BadArguments);
            assert_eq!(firn_json_free(handle), Status::Done);
        }
    }

    #[test]
    fn arguments_that_are_none_are_refused() {
        let handle = new_handle();
        assert_eq!(parse(handle, b"{}", &[3]), Err(Status::BadArguments));
        assert_eq!(parse(ptr::null(), b"{}", &[2]), Err(Status::BadArguments));
        // SAFETY: nothing is read where a length is none, and null is asked for.
        unsafe {
            assert!(elements::<u8>(ptr::null(), 1).is_none());
            assert!(elements::<u8>(ptr::null(), -1).is_none());
            assert_eq!(elements::<u8>(ptr::null(), 0), Some(&[][..]));
            assert!(elements_mut::<u8>(ptr::null_mut(), 1).is_none());
            assert_eq!(firn_json_free(handle), Status::Done);
        }
    }

    #[test]
    fn a_panic_becomes_a_status_and_the_parser_a_new_one() {
        let handle = new_handle();
        parse(handle, br#"{"a":1,"b":2}"#, &[13]).unwrap();
        // SAFETY: the handle is alive.
        unsafe {
            assert_eq!(alone(handle, |_| panic!("a defect")), Status::Panicked);
            (*handle).is_busy.store(true, Ordering::Release);
            assert_eq!(alone(handle, |_| Some(())), Status::Busy);
            (*handle).is_busy.store(false, Ordering::Release);
        }
        assert_eq!(parse(handle, br#"{"b":2}"#, &[7]).unwrap(), (1, vec![1], 1));
        // SAFETY: as above, and for the last time.
        assert_eq!(unsafe { firn_json_free(handle) }, Status::Done);
    }
}
