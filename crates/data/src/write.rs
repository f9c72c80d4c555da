//! From a data set to text that reads back with the same bits.

use std::io::{self, Write};

use crate::{DataSet, Row};

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
