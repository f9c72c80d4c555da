//! From a data set to text that reads back with the same bits.

use std::io::{self, Write};

use lzma_rust2::{XzOptions, XzWriter};

use crate::table::Cells;
use crate::{DataSet, Raw, Row};

/// Writes LIBSVM text: indices count from 1, and zeros are left out.
///
/// The format does not record the dimension: trailing columns of zeros are found again only if the reader is told.
pub fn write_libsvm(set: &DataSet, out: &mut dyn Write) -> io::Result<()> {
    for (row, label) in set.matrix.iter().zip(&set.labels) {
        write!(out, "{label}")?;
        for (column, value) in row.entries().filter(|&(_, value)| value != 0.0) {
            write!(out, " {}:{value}", column + 1)?;
        }
        writeln!(out)?;
    }
    out.flush()
}

/// Writes CSV text with a header; the label is the last column.
pub fn write_csv(set: &DataSet, out: &mut dyn Write) -> io::Result<()> {
    for column in 0..set.dim() {
        write!(out, "x{},", column + 1)?;
    }
    writeln!(out, "label")?;
    let mut dense = vec![0.0; set.dim()];
    for (row, label) in set.matrix.iter().zip(&set.labels) {
        let values = match row {
            Row::Dense(values) => values,
            Row::Sparse(..) => {
                dense.fill(0.0);
                row.entries().for_each(|(column, value)| dense[column] = value);
                &dense
            }
        };
        for value in values {
            write!(out, "{value},")?;
        }
        writeln!(out, "{label}")?;
    }
    out.flush()
}

/// More than this is packed as text alone.
const MOST_PIXELS: usize = 10_000_000;

/// How many bytes the rows would take to be sent once, as they were read: as text, or as bytes where all numbers are such, compressed by
/// xz.
pub fn shipped_bytes(raw: &Raw) -> io::Result<u64> {
    let pack = |write: &dyn Fn(&mut XzWriter<Vec<u8>>) -> io::Result<()>| -> io::Result<u64> {
        let mut packed = XzWriter::new(Vec::new(), XzOptions::with_preset(6))?;
        write(&mut packed)?;
        Ok(packed.finish()?.len() as u64)
    };
    match raw {
        Raw::Rows(set, _) => {
            let text = pack(&|out| write_libsvm(set, out))?;
            // Pictures: indices of what is not zero cost more than the zeros.
            let is_byte = |value: f64| value == f64::from(value as u8);
            let exact = set.matrix.iter().all(|row| row.entries().all(|(_, value)| is_byte(value)));
            if !exact || !set.labels.iter().all(|&label| is_byte(label)) || set.rows() * set.dim() > MOST_PIXELS {
                return Ok(text);
            }
            let mut bytes = vec![0; set.rows() * set.dim()];
            for (row, pixels) in set.matrix.iter().zip(bytes.chunks_exact_mut(set.dim())) {
                row.entries().for_each(|(column, value)| pixels[column] = value as u8);
            }
            bytes.extend(set.labels.iter().map(|&label| label as u8));
            Ok(text.min(pack(&|out| out.write_all(&bytes))?))
        }
        Raw::Table(table) => pack(&|out| {
            table.columns.iter().try_for_each(|column| match &column.cells {
                Cells::Numbers(values) => values.iter().try_for_each(|value| writeln!(out, "{value}")),
                Cells::Words { words, codes } => codes
                    .iter()
                    .try_for_each(|&code| writeln!(out, "{}", words.get(code as usize).map_or("", String::as_str))),
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::{Matrix, ReadOptions, parse_csv, parse_libsvm};

    /// Finite numbers of every kind, zeros often, so that both forms of a matrix are met.
    fn number(zeros: u32) -> impl Strategy<Value = f64> {
        prop_oneof![
            zeros => Just(0.0),
            2 => (-9i8..10).prop_map(f64::from),
            1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL,
        ]
    }

    fn set() -> impl Strategy<Value = DataSet> {
        (1usize..8, 1usize..12, prop::sample::select(vec![0u32, 2, 20])).prop_flat_map(|(rows, dim, zeros)| {
            let values = prop::collection::vec(number(zeros), rows * dim);
            let labels = prop::collection::vec(number(1), rows);
            (values, labels)
                .prop_map(move |(values, labels)| DataSet::new("set", Matrix::dense(values, dim).compact(), labels))
        })
    }

    #[test]
    fn rows_are_packed_as_they_were_read() {
        let digits = crate::digits();
        let packed = shipped_bytes(&Raw::Rows(digits.clone(), true)).unwrap();
        // 64 numbers from 0 to 16 and a label per row: less than their characters as text.
        let bytes = packed as f64 / digits.rows() as f64;
        assert!(bytes < 32.0, "{bytes} bytes per row");
        let words = b"a,b,c\nred,1,yes\nblue,2,no\n";
        let table = crate::parse_table(Path::new("set.csv"), words, &ReadOptions::default()).unwrap();
        let row = shipped_bytes(&Raw::Table(table.clone())).unwrap();
        let many = shipped_bytes(&Raw::Table(table.select(&[0, 1].repeat(1000)))).unwrap();
        assert!(row < 120 && many < 2 * row, "{row} {many}");
    }

    proptest! {
        #![proptest_config(crate::fixed_cases())]

        #[test]
        fn what_is_written_as_libsvm_is_read_back(set in set()) {
            let mut text = Vec::new();
            write_libsvm(&set, &mut text).unwrap();
            let options = ReadOptions { dim: Some(set.dim()), ..Default::default() };
            prop_assert_eq!(parse_libsvm(Path::new("set"), &text, &options).unwrap(), set);
        }

        #[test]
        fn what_is_written_as_csv_is_read_back(set in set()) {
            let mut text = Vec::new();
            write_csv(&set, &mut text).unwrap();
            prop_assert_eq!(parse_csv(Path::new("set"), &text, &ReadOptions::default()).unwrap(), set);
        }
    }
}
