//! Data sets from files, cut into shards; nothing hostile gets through, and nothing here knows of optimisation.
//!
//! # Layout
//! - `read`: from a path to a data set: decompression within limits, and telling the formats apart.
//! - `libsvm`, `csv`, `idx`, `pictures`: bytes -> [`DataSet`] or [`Table`], one file a format.
//! - `table`: columns of numbers and words, what machines tell of them, and how they become a matrix.
//! - `matrix`: the rows, dense or sparse; `kernel`: their products, the inner loops of all training.
//! - `dataset`: rows with labels, and the relabellings that make a problem of them.
//! - `prepare`: labels, scaled features and an intercept, as a model wants them.
//! - `digits`: the bundled set.
//! - [`shard`]: which machine holds which rows.
//! - `catalogue`: data sets that are known by name; `fetch`: their downloads, a feature.
//! - `write`: a data set -> LIBSVM or CSV text; `pack`: rows -> few bytes, for whoever may send them.
//!
//! ```
//! let set = corewire_data::digits().unit_norm().parity()?;
//! assert_eq!((set.rows(), set.dim()), (1797, 64));
//! # Ok::<(), corewire_data::DataError>(())
//! ```

mod catalogue;
mod csv;
mod dataset;
mod digits;
mod error;
#[cfg(feature = "fetch")]
pub mod fetch;
mod idx;
mod kernel;
mod libsvm;
mod matrix;
mod number;
mod pack;
#[cfg(feature = "parquet")]
mod parquet;
mod pictures;
mod prepare;
mod read;
pub mod shard;
mod table;
mod text;
mod write;

pub use catalogue::{KnownSet, RemoteFile, known_set, known_sets};
pub use csv::{CsvLines, parse_csv, parse_table};
pub use dataset::DataSet;
pub use digits::digits;
pub use error::DataError;
pub use idx::parse_idx;
pub use libsvm::parse_libsvm;
pub use matrix::{Matrix, Row, Rows};
pub use pack::{pack, unpack};
pub use prepare::{Labels, Moments, Normalise, Preparation, Scaling};
pub use read::{Format, Raw, ReadOptions, csv_lines, load, read};
pub use table::{Cells, Column, ColumnOptions, ColumnRef, Missing, Part, Role, Schema, Survey, Table, Unknown};
pub use write::{write_csv, write_libsvm};

/// Property tests draw the same cases on every run.
#[cfg(test)]
fn fixed_cases() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    Config { rng_seed: RngSeed::Fixed(20), failure_persistence: None, ..Config::default() }
}
