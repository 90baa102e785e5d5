//! The native core of Firn's ingestion: what reads every byte of every record, and writes small files.
//!
//! Its results equal those of the Python path (`ingest/decode`, `ingest/convert`), which is the definition;
//! what it does not decide exactly it names by row and leaves to that path. `README.md` lists both.
//!
//! The library is loaded with ctypes. `ffi` is its C interface, `arrow` how columns leave it, `consume` takes
//! messages from Kafka's client, and these alone hold `unsafe` code. Nothing here needs a crate beyond the standard library.

mod arrow;
mod bounds;
mod column;
mod consume;
mod ffi;
mod field;
mod grouping;
mod json_columns;
mod key_tree;
mod kinds;
mod parquet;
mod reorder;
mod scan;
mod snappy;
mod text;
mod thrift;
mod tokens;
