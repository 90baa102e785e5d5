//! What a column's values have been, as bits; `ingest/core/json_columns.py` has the same.

/// A JSON string.
pub const TEXT: u32 = 1;
/// A number without fraction and exponent.
pub const INTEGER: u32 = 2;
/// A number with a fraction or an exponent.
pub const DECIMAL: u32 = 4;
/// `NaN`, `Infinity` or `-Infinity`, which Python and JavaScript write.
pub const NON_FINITE: u32 = 8;
/// `true` or `false`.
pub const BOOLEAN: u32 = 16;
/// An array, as its JSON text.
pub const ARRAY: u32 = 32;
/// An object without members, as `{}`.
pub const EMPTY_OBJECT: u32 = 64;
