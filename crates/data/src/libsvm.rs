//! LIBSVM text: a label, then `index:value` pairs with ascending indices from 1.

use std::path::Path;

use crate::error::shown;
use crate::{DataError, DataSet, Matrix, ReadOptions, number, text};

/// Reads LIBSVM text; `path` is only what errors and the data set are named after.
///
/// Labels may be any finite numbers. Blank lines, comments from `#`, trailing blanks and CRLF line ends are accepted.
pub fn parse_libsvm(path: &Path, text: &[u8], options: &ReadOptions) -> Result<DataSet, DataError> {
    let (mut labels, mut offsets) = (Vec::new(), vec![0]);
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    let first_index: u64 = if options.zero_based { 0 } else { 1 };
    let limit = options.column_limit();
    let mut dim = 0;
    for (line, content) in text::lines(text) {
        if options.rows.is_some_and(|rows| labels.len() >= rows) {
            break;
        }
        let wrong = |what: String| DataError::line(path, line, what);
        let content = content.split(|&byte| byte == b'#').next().unwrap_or_default();
        let tokens = content.split(|byte| byte.is_ascii_whitespace()).filter(|token| !token.is_empty());
        let mut tokens = tokens.peekable();
        let Some(&first) = tokens.peek() else { continue };
        let label = match (first.contains(&b':'), options.unlabelled) {
            (true, true) => b"0",
            (true, false) => {
                let what = "the label is missing before";
                return Err(wrong(format!("{what} `{}`; a line is LABEL INDEX:VALUE ...", shown(first))));
            }
            (false, _) => tokens.next().unwrap_or_default(),
        };
        labels.push(number::parse(label).map_err(|e| wrong(format!("label `{}` {}", shown(label), e.words())))?);
        // One more than the last index, so that zero means there is none yet.
        let mut next = first_index;
        for token in tokens {
            let Some(colon) = token.iter().position(|&byte| byte == b':') else {
                return Err(wrong(format!("`{}` is not of the form INDEX:VALUE", shown(token))));
            };
            let (name, value) = (&token[..colon], &token[colon + 1..]);
            let index = index(name).ok_or_else(|| wrong(format!("index `{}` is not a whole number", shown(name))))?;
            if index == 0 && first_index == 1 {
                return Err(wrong(
                    "index 0, but LIBSVM counts from 1; set `problem.zero_based` if the file counts from 0".into(),
                ));
            }
            if index < next {
                let what = if index + 1 == next { "appears twice" } else { "comes after a larger one" };
                return Err(wrong(format!("index {index} {what}; indices must ascend within a line")));
            }
            let column = index - first_index;
            if column >= limit {
                let what = match options.dim {
                    Some(dim) => format!("index {index} is beyond the {dim} columns that were asked for"),
                    None => {
                        format!("index {index} is beyond the limit of {limit} columns")
                    }
                };
                return Err(wrong(what));
            }
            let value = number::parse(value)
                .map_err(|e| wrong(format!("value `{}` of index {index} {}", shown(value), e.words())))?;
            next = index + 1;
            dim = dim.max(column + 1);
            if value != 0.0 {
                // Columns are below the limit, which fits in 32 bits.
                indices.push(column as u32);
                values.push(value);
            }
        }
        offsets.push(indices.len());
    }
    let dim = options.dim.unwrap_or(dim as usize);
    if dim as u64 > limit {
        return Err(DataError::file(
            path,
            format!("{dim} columns were asked for, but {limit} is the most there can be"),
        ));
    }
    if labels.is_empty() && !(options.allow_empty && dim > 0) {
        return Err(DataError::file(path, "it has no rows"));
    }
    if dim == 0 {
        return Err(DataError::file(path, "no row has a value; a line is LABEL INDEX:VALUE ..."));
    }
    let matrix = Matrix::sparse(offsets, indices, values, dim).compact();
    Ok(DataSet::new(crate::read::stem(path), matrix, labels))
}

/// A whole number; those beyond a u64 become its largest value, which every limit refuses.
fn index(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(text.iter().fold(0, add).min(u64::MAX - 1))
}
