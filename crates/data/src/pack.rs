//! Rows as they were read, in few bytes, for whoever may send the rows themselves: packed at one place, unpacked at another. Not a file
//! format: both ends know the columns.

use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use lzma_rust2::{XzOptions, XzReader, XzWriter};

use crate::read::XZ_MEMORY_KIB;
use crate::table::{Cells, Column, MISSING_WORD};
use crate::{DataError, DataSet, Matrix, Raw, ReadOptions, Table, parse_libsvm, write_libsvm};

/// More than this is packed as text alone.
const MOST_PIXELS: usize = 10_000_000;
/// What one machine packed may not unpack to more than this.
const MOST_UNPACKED: u64 = 4 << 30;
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
            let mut rows = Joined::like(like);
            packed.iter().try_for_each(|packed| rows.append(packed))?;
            Ok(Raw::Rows(rows.whole(like), *fixed))
        }
        Raw::Table(like) => {
            let mut table = like.select(&[]);
            packed.iter().try_for_each(|packed| append(&mut table, packed))?;
            Ok(Raw::Table(table))
        }
    }
}

fn compress(form: u8, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Vec<u8>> {
    // Numbers are written one by one.
    let mut packed = BufWriter::new(XzWriter::new(vec![form], XzOptions::with_preset(6))?);
    write(&mut packed)?;
    packed.into_inner().map_err(|error| error.into_error())?.finish()
}

/// What was packed, if it is of one of these forms.
fn decompress(packed: &[u8], forms: &[u8]) -> Result<(u8, Vec<u8>), DataError> {
    let (&form, packed) = packed.split_first().filter(|(form, _)| forms.contains(form)).ok_or_else(damaged)?;
    let mut bytes = Vec::new();
    let reader = XzReader::new_mem_limit(packed, false, XZ_MEMORY_KIB);
    reader.take(MOST_UNPACKED + 1).read_to_end(&mut bytes).map_err(|_| damaged())?;
    if bytes.len() as u64 > MOST_UNPACKED {
        return Err(DataError::file(Path::new("packed rows"), "they unpack to more than 4 GiB"));
    }
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

/// Rows of several machines, stored as those of one set are.
struct Joined {
    dim: usize,
    /// Where each row ends among the entries, and the columns of these; `None` where rows are dense.
    sparse: Option<(Vec<usize>, Vec<u32>)>,
    values: Vec<f64>,
    labels: Vec<f64>,
}

impl Joined {
    fn like(set: &DataSet) -> Self {
        let sparse = set.matrix.is_sparse().then(|| (vec![0], Vec::new()));
        Self { dim: set.dim(), sparse, values: Vec::new(), labels: Vec::new() }
    }

    fn append(&mut self, packed: &[u8]) -> Result<(), DataError> {
        match decompress(packed, &[TEXT, BYTES])? {
            (_, bytes) if bytes.is_empty() => {}
            (TEXT, text) => {
                let options = ReadOptions { dim: Some(self.dim), ..ReadOptions::default() };
                let rows = parse_libsvm(Path::new("packed rows"), &text, &options)?;
                rows.matrix.iter().zip(&rows.labels).for_each(|(row, &label)| self.push(row.entries(), label));
            }
            (_, bytes) => {
                if bytes.len() % (self.dim + 1) != 0 {
                    return Err(damaged());
                }
                let (pixels, labels) = bytes.split_at(bytes.len() / (self.dim + 1) * self.dim);
                for (row, &label) in pixels.chunks_exact(self.dim).zip(labels) {
                    self.push(row.iter().map(|&byte| f64::from(byte)).enumerate(), f64::from(label));
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, entries: impl Iterator<Item = (usize, f64)>, label: f64) {
        self.labels.push(label);
        match &mut self.sparse {
            Some((ends, columns)) => {
                for (column, value) in entries.filter(|entry| entry.1 != 0.0) {
                    columns.push(column as u32);
                    self.values.push(value);
                }
                ends.push(self.values.len());
            }
            None => {
                let first = self.values.len();
                self.values.resize(first + self.dim, 0.0);
                entries.for_each(|(column, value)| self.values[first + column] = value);
            }
        }
    }

    fn whole(self, like: &DataSet) -> DataSet {
        let matrix = match self.sparse {
            Some((ends, columns)) => Matrix::sparse(ends, columns, self.values, self.dim),
            None => Matrix::dense(self.values, self.dim),
        };
        DataSet::new(like.name.clone(), matrix, self.labels)
    }
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
                let known: HashMap<&String, u32> = words.iter().zip(0..).collect();
                let place = |word| known.get(word).copied().ok_or_else(damaged);
                let places: Vec<u32> = used.iter().map(place).collect::<Result<_, _>>()?;
                for _ in 0..count {
                    let line = lines.next().ok_or_else(damaged)?;
                    let place = || places.get(line.parse::<usize>().ok()?);
                    codes.push(if line.is_empty() { MISSING_WORD } else { *place().ok_or_else(damaged)? });
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
        assert!(many < 2 * row, "{many} bytes for 2000 rows, {row} for four");
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
