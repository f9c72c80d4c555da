//! Parquet as the CSV that it stands for, so that everything that is true of columns of CSV is true of these: a column of text holds
//! categories, an empty cell is missing, a truth value is 0 or 1. Dates and other types keep their name, so that they are refused where
//! a number is wanted and can be dropped.

use std::cell::Cell;
use std::fmt::Write;
use std::fs::File;
use std::panic;
use std::path::Path;
use std::sync::Once;

use parquet::basic::{Compression, ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::{ColumnRef, DataError, ReadOptions};

/// Rows that are read at a time.
const BATCH: usize = 1024;

thread_local! {
    /// Whether this thread's panics are nobody's business.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// The text of a file, and how to read it. The library panics at some damaged files, which is an error like others.
pub(crate) fn to_csv(path: &Path, options: &ReadOptions) -> Result<(Vec<u8>, ReadOptions), DataError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !CAUGHT.get() {
                usual(about);
            }
        }));
    });
    CAUGHT.set(true);
    let read = panic::catch_unwind(|| unguarded(path, options));
    CAUGHT.set(false);
    read.unwrap_or_else(|_| Err(DataError::file(path, "the Parquet data is damaged")))
}

fn unguarded(path: &Path, options: &ReadOptions) -> Result<(Vec<u8>, ReadOptions), DataError> {
    let damaged = |error: ParquetError| DataError::file(path, format!("the Parquet data cannot be read ({error})"));
    let file = File::open(path).map_err(|error| DataError::io(path, error))?;
    let file = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let columns = schema.columns();
    if let Some(nested) = columns.iter().find(|column| column.path().parts().len() > 1 || column.max_rep_level() > 0) {
        let what = format!("column `{}` is nested; flatten it first", nested.path());
        return Err(DataError::file(path, what));
    }
    if columns.len() as u64 > options.column_limit() {
        return Err(DataError::file(
            path,
            format!("{} columns are beyond the limit of {}", columns.len(), options.max_dim),
        ));
    }
    let mut text = columns.iter().map(|column| quoted(column.name())).collect::<Vec<_>>().join(",") + "\n";
    let (mut left, mut cells) = (options.rows.unwrap_or(usize::MAX), vec![Vec::new(); columns.len()]);
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(damaged)?;
        let strange =
            |compression| matches!(compression, Compression::ZSTD(_) | Compression::BROTLI(_) | Compression::LZO);
        if group.metadata().columns().iter().any(|column| strange(column.compression())) {
            let what = "it is compressed with zstd, Brotli or LZO, which are not read: write it with snappy, gzip, lz4 or none";
            return Err(DataError::file(path, what));
        }
        let readers = (0..columns.len()).map(|column| group.get_column_reader(column));
        let mut readers = readers.collect::<Result<Vec<_>, _>>().map_err(damaged)?;
        let mut rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0).min(left);
        left -= rows;
        while rows > 0 {
            let count = rows.min(BATCH);
            for ((reader, column), cells) in readers.iter_mut().zip(columns).zip(&mut cells) {
                read(reader, column, count, cells).map_err(damaged)?;
                if cells.len() != count {
                    let what = format!("column `{}` has fewer cells than its file says", column.name());
                    return Err(DataError::file(path, what));
                }
            }
            for row in 0..count {
                for (place, column) in cells.iter().enumerate() {
                    text.push_str(if place > 0 { "," } else { "" });
                    text.push_str(&column[row]);
                }
                text.push('\n');
                if text.len() as u64 > options.max_bytes {
                    let most = options.max_bytes;
                    let what =
                        format!("more than {most} bytes when written as text; raise `limits.memory` if that is right");
                    return Err(DataError::file(path, what));
                }
            }
            rows -= count;
        }
    }
    let label = options.columns.label.clone().unwrap_or(ColumnRef::Place(columns.len()));
    let is_label = |place: usize| match &label {
        ColumnRef::Place(label) => *label == place + 1,
        ColumnRef::Name(label) => label == columns[place].name(),
    };
    let mut options = ReadOptions { header: Some(true), ..options.clone() };
    // Text is text, also where it looks like numbers; a label is what it looks like.
    let words = (0..columns.len()).filter(|&place| is_text(&columns[place]) && !is_label(place));
    options.columns.categorical.extend(words.map(|place| ColumnRef::Place(place + 1)));
    Ok((text.into_bytes(), options))
}

fn is_text(column: &ColumnDescriptor) -> bool {
    matches!(column.converted_type(), ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON)
        || matches!(column.logical_type_ref(), Some(LogicalType::String))
}

/// A field of CSV. Its lines end where its rows do.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace(['\n', '\r', '\t'], " ").replace('"', "\"\""))
}

/// Reads so many cells of a column as fields of CSV.
fn read(
    reader: &mut ColumnReader,
    column: &ColumnDescriptor,
    count: usize,
    cells: &mut Vec<String>,
) -> Result<(), ParquetError> {
    let kind = column.converted_type();
    let whole = !matches!(
        kind,
        ConvertedType::DATE
            | ConvertedType::TIME_MILLIS
            | ConvertedType::TIME_MICROS
            | ConvertedType::TIMESTAMP_MILLIS
            | ConvertedType::TIMESTAMP_MICROS
            | ConvertedType::DECIMAL
    ) && (kind != ConvertedType::NONE || column.logical_type_ref().is_none());
    let named = |out: &mut String, value: &dyn std::fmt::Debug| write!(out, "\"{value:?} {}\"", column.physical_type());
    cells.clear();
    match reader {
        ColumnReader::BoolColumnReader(reader) => {
            fields(reader, count, cells, |v, out| write!(out, "{}", u8::from(*v)))
        }
        ColumnReader::Int32ColumnReader(reader) if whole => fields(reader, count, cells, |&v, out| match kind {
            ConvertedType::UINT_32 => write!(out, "{}", v as u32),
            _ => write!(out, "{v}"),
        }),
        ColumnReader::Int64ColumnReader(reader) if whole => fields(reader, count, cells, |&v, out| match kind {
            ConvertedType::UINT_64 => write!(out, "{}", v as u64),
            _ => write!(out, "{v}"),
        }),
        ColumnReader::FloatColumnReader(reader) => {
            fields(reader, count, cells, |v, out| write!(out, "{}", f64::from(*v)))
        }
        ColumnReader::DoubleColumnReader(reader) => fields(reader, count, cells, |v, out| write!(out, "{v}")),
        ColumnReader::ByteArrayColumnReader(reader) => fields(reader, count, cells, |v, out| match v.as_utf8() {
            Ok(text) => write!(out, "{}", quoted(text)),
            Err(_) => named(out, &0),
        }),
        ColumnReader::Int32ColumnReader(reader) => fields(reader, count, cells, |v, out| named(out, v)),
        ColumnReader::Int64ColumnReader(reader) => fields(reader, count, cells, |v, out| named(out, v)),
        ColumnReader::Int96ColumnReader(reader) => fields(reader, count, cells, |_, out| named(out, &0)),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => fields(reader, count, cells, |_, out| named(out, &0)),
    }
}

fn fields<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    cells: &mut Vec<String>,
    field: impl Fn(&T::T, &mut String) -> std::fmt::Result,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (records, ..) = reader.read_records(count, Some(&mut levels), None, &mut values)?;
    let mut values = values.iter();
    // A column that cannot be empty has no levels.
    let present = |record: usize| levels.get(record).is_none_or(|level| *level > 0);
    for record in 0..records {
        let mut cell = String::new();
        if let Some(value) = present(record).then(|| values.next()).flatten() {
            field(value, &mut cell).expect("a text can always be written");
        }
        cells.push(cell);
    }
    Ok(())
}
