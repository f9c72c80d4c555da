//! Rows as they were read, in few bytes, for whoever may send the rows themselves: packed at one place, unpacked at another. Not a file
//! format: both ends know the columns.

use std::io::{self, Read, Write};
use std::path::Path;

use lzma_rust2::{XzOptions, XzReader, XzWriter};

use crate::read::XZ_MEMORY_KIB;
use crate::table::{Cells, Column, MISSING_WORD};
use crate::{DataError, DataSet, Matrix, Raw, ReadOptions, Table, parse_libsvm, write_libsvm};

/// More than this is packed as text alone.
const MOST_PIXELS: usize = 10_000_000;
/// Rows as LIBSVM text.
const TEXT: u8 = 0;
/// A byte for each number, then one for each label.
const BYTES: u8 = 1;
/// Column by column, a line for each cell.
const COLUMNS: u8 = 2;

/// The rows, as text, or as bytes where all numbers are such and that is shorter, compressed by xz. Law: [`unpack`] gives them back.
pub fn pack(raw: &Raw) -> io::Result<Vec<u8>> {
    match raw {
        Raw::Rows(set, _) => {
            let text = compress(TEXT, |out| write_libsvm(set, out))?;
            let Some(bytes) = as_bytes(set) else { return Ok(text) };
            let bytes = compress(BYTES, |out| out.write_all(&bytes))?;
            Ok(if bytes.len() < text.len() { bytes } else { text })
        }
        Raw::Table(table) => {
            compress(COLUMNS, |out| table.columns.iter().try_for_each(|column| write_cells(&column.cells, out)))
        }
    }
}

/// The rows of all that were packed, one after the other. `like` has the columns; its rows do not count.
pub fn unpack(packed: &[&[u8]], like: &Raw) -> Result<Raw, DataError> {
    match like {
        Raw::Rows(like, fixed) => {
            let parts: Vec<DataSet> = packed.iter().map(|packed| rows(packed, like)).collect::<Result<_, _>>()?;
            Ok(Raw::Rows(joined(&parts, like), *fixed))
        }
        Raw::Table(like) => {
            let mut table = like.select(&[]);
            packed.iter().try_for_each(|packed| append(&mut table, packed))?;
            Ok(Raw::Table(table))
        }
    }
}

fn compress(form: u8, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut packed = XzWriter::new(vec![form], XzOptions::with_preset(6))?;
    write(&mut packed)?;
    packed.finish()
}

/// What was packed, if it is of one of these forms.
fn decompress(packed: &[u8], forms: &[u8]) -> Result<(u8, Vec<u8>), DataError> {
    let (&form, packed) = packed.split_first().filter(|(form, _)| forms.contains(form)).ok_or_else(damaged)?;
    let mut bytes = Vec::new();
    XzReader::new_mem_limit(packed, false, XZ_MEMORY_KIB).read_to_end(&mut bytes).map_err(|_| damaged())?;
    Ok((form, bytes))
}

fn damaged() -> DataError {
    DataError::file(Path::new("packed rows"), "they are not what was packed")
}

/// Pictures: indices of what is not zero cost more than the zeros.
fn as_bytes(set: &DataSet) -> Option<Vec<u8>> {
    let is_byte = |value: f64| value == f64::from(value as u8);
    let exact = set.matrix.iter().all(|row| row.entries().all(|(_, value)| is_byte(value)));
    if !exact || !set.labels.iter().all(|&label| is_byte(label)) || set.rows() * set.dim() > MOST_PIXELS {
        return None;
    }
    let mut bytes = vec![0; set.rows() * set.dim()];
    for (row, pixels) in set.matrix.iter().zip(bytes.chunks_exact_mut(set.dim())) {
        row.entries().for_each(|(column, value)| pixels[column] = value as u8);
    }
    bytes.extend(set.labels.iter().map(|&label| label as u8));
    Some(bytes)
}

fn rows(packed: &[u8], like: &DataSet) -> Result<DataSet, DataError> {
    let dim = like.dim();
    match decompress(packed, &[TEXT, BYTES])? {
        (_, bytes) if bytes.is_empty() => Ok(like.select(&[])),
        (TEXT, text) => {
            let options = ReadOptions { dim: Some(dim), ..ReadOptions::default() };
            parse_libsvm(Path::new("packed rows"), &text, &options)
        }
        (_, bytes) => {
            if bytes.len() % (dim + 1) != 0 {
                return Err(damaged());
            }
            let (pixels, labels) = bytes.split_at(bytes.len() / (dim + 1) * dim);
            let numbers = |bytes: &[u8]| bytes.iter().map(|&byte| f64::from(byte)).collect::<Vec<_>>();
            Ok(DataSet::new("packed rows", Matrix::dense(numbers(pixels), dim), numbers(labels)))
        }
    }
}

/// All rows in one set, stored as those of `like` are.
fn joined(parts: &[DataSet], like: &DataSet) -> DataSet {
    let labels = parts.iter().flat_map(|part| part.labels.iter().copied()).collect();
    let all = || parts.iter().flat_map(|part| part.matrix.iter());
    let matrix = if like.matrix.is_sparse() {
        let (mut offsets, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in all() {
            for (column, value) in row.entries().filter(|entry| entry.1 != 0.0) {
                indices.push(column as u32);
                values.push(value);
            }
            offsets.push(values.len());
        }
        Matrix::sparse(offsets, indices, values, like.dim())
    } else {
        let mut values = vec![0.0; all().count() * like.dim()];
        for (row, out) in all().zip(values.chunks_exact_mut(like.dim())) {
            row.entries().for_each(|(column, value)| out[column] = value);
        }
        Matrix::dense(values, like.dim())
    };
    DataSet::new(like.name.clone(), matrix, labels)
}

/// A line with the number of cells, then numbers as text; or a line with the words that occur, as JSON, then places among them. What is
/// missing is an empty line.
fn write_cells(cells: &Cells, out: &mut dyn Write) -> io::Result<()> {
    match cells {
        Cells::Numbers(values) => {
            writeln!(out, "{}", values.len())?;
            values.iter().try_for_each(|value| if value.is_nan() { writeln!(out) } else { writeln!(out, "{value}") })
        }
        Cells::Words { words, codes } => {
            writeln!(out, "{}", codes.len())?;
            let mut places = vec![None; words.len()];
            let mut used = Vec::new();
            for &code in codes.iter().filter(|&&code| code != MISSING_WORD) {
                places[code as usize].get_or_insert_with(|| {
                    used.push(&words[code as usize]);
                    used.len() - 1
                });
            }
            writeln!(out, "{}", serde_json::to_string(&used)?)?;
            codes.iter().try_for_each(|&code| match places.get(code as usize).copied().flatten() {
                Some(place) => writeln!(out, "{place}"),
                None => writeln!(out),
            })
        }
    }
}

/// Appends packed rows to a table with the same columns.
fn append(table: &mut Table, packed: &[u8]) -> Result<(), DataError> {
    let (_, text) = decompress(packed, &[COLUMNS])?;
    let text = String::from_utf8(text).map_err(|_| damaged())?;
    let mut lines = text.lines();
    let mut rows = 0;
    for Column { cells, .. } in &mut table.columns {
        let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or_else(damaged)?;
        rows = rows.max(count);
        match cells {
            Cells::Numbers(values) => {
                for _ in 0..count {
                    let line = lines.next().ok_or_else(damaged)?;
                    values.push(if line.is_empty() { f64::NAN } else { line.parse().map_err(|_| damaged())? });
                }
            }
            Cells::Words { words, codes } => {
                let line = lines.next().ok_or_else(damaged)?;
                let used: Vec<String> = serde_json::from_str(line).map_err(|_| damaged())?;
                let place = |word: &String| words.iter().position(|known| known == word).ok_or_else(damaged);
                let places: Vec<usize> = used.iter().map(place).collect::<Result<_, _>>()?;
                for _ in 0..count {
                    let line = lines.next().ok_or_else(damaged)?;
                    let place = || places.get(line.parse::<usize>().ok()?);
                    codes.push(if line.is_empty() { MISSING_WORD } else { *place().ok_or_else(damaged)? as u32 });
                }
            }
        }
    }
    table.rows += rows;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnOptions, Missing, parse_table};

    /// Packed in two parts and unpacked together.
    fn there_and_back(raw: &Raw, cut: usize) -> Raw {
        let part = |rows: std::ops::Range<usize>| pack(&raw.select(&rows.collect::<Vec<_>>())).unwrap();
        let parts = [part(0..cut), part(cut..raw.rows())];
        unpack(&[&parts[0], &parts[1]], &raw.select(&[])).unwrap()
    }

    fn words() -> Raw {
        let text = b"a,b,c\nred,1,yes\n\"deep, \"\"blue\"\"\",,no\n,2.5,no\nred,-1e-7,yes\n";
        let columns = ColumnOptions { missing: Missing::Mean, ..Default::default() };
        Raw::Table(parse_table(Path::new("words"), text, &ReadOptions { columns, ..Default::default() }).unwrap())
    }

    /// Missing numbers are NaN, which equals nothing: text tells them.
    fn shown(raw: &Raw) -> String {
        format!("{raw:?}")
    }

    #[test]
    fn rows_come_back_as_they_were_read() {
        let digits = crate::digits();
        // Numbers that are no bytes, with many zeros, and rows without any entry.
        let sparse = Matrix::sparse(vec![0, 2, 2, 3], vec![1, 4, 0], vec![0.1, -2.5e-9, 300.0], 6);
        let sparse = DataSet::new("sparse", sparse, vec![-1.0, 1.0, 0.25]);
        for raw in [Raw::Rows(digits, true), Raw::Rows(sparse, false), words()] {
            for cut in [0, 1, raw.rows()] {
                assert_eq!(shown(&there_and_back(&raw, cut)), shown(&raw));
            }
        }
    }

    #[test]
    fn pictures_are_packed_as_bytes_and_repeated_words_cost_nothing() {
        let digits = crate::digits();
        let packed = pack(&Raw::Rows(digits.clone(), true)).unwrap();
        assert_eq!(packed[0], BYTES);
        // 64 numbers from 0 to 16 and a label per row: less than their characters as text.
        let bytes = packed.len() as f64 / digits.rows() as f64;
        assert!(bytes < 32.0, "{bytes} bytes per row");
        let Raw::Table(table) = words() else { unreachable!("it is a table") };
        let row = pack(&Raw::Table(table.clone())).unwrap().len();
        let many = pack(&Raw::Table(table.select(&[0, 1].repeat(1000)))).unwrap().len();
        assert!(many < 10 * row, "{many} bytes for 2000 rows, {row} for four");
    }

    #[test]
    fn what_was_damaged_is_refused() {
        for raw in [Raw::Rows(crate::digits(), true), words()] {
            let (packed, like) = (pack(&raw).unwrap(), raw.select(&[]));
            for cut in [0, 1, 2, packed.len() / 2, packed.len() - 1] {
                assert!(unpack(&[&packed[..cut]], &like).is_err(), "{cut} bytes of {}", packed.len());
            }
            let mut other = packed.clone();
            other[0] ^= 2;
            assert!(unpack(&[&other], &like).is_err());
        }
        // Pictures of another size.
        let packed = pack(&Raw::Rows(crate::digits().first_rows(3), true)).unwrap();
        let wider = Raw::Rows(DataSet::new("wider", Matrix::dense(Vec::new(), 70), Vec::new()), true);
        assert!(unpack(&[&packed], &wider).is_err());
    }
}
