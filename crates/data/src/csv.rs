//! Comma-separated values: one row per line, numbers only, one column the label.

use std::path::Path;

use crate::error::shown;
use crate::read::LabelColumn;
use crate::{DataError, DataSet, Matrix, ReadOptions, number, text};

/// Reads CSV text; `path` is only what errors and the data set are named after.
///
/// The separator (tab, comma or semicolon) is the first of these in the first line; a first line without a single
/// number is a header. Numbers may stand in double quotes. Blank lines and comments (lines from `#`) are skipped.
pub fn parse_csv(path: &Path, text: &[u8], options: &ReadOptions) -> Result<DataSet, DataError> {
    let mut lines =
        text::lines(text).filter(|(_, content)| !matches!(content.trim_ascii(), [] | [b'#', ..])).peekable();
    let Some(&(first_line, first)) = lines.peek() else {
        return Err(DataError::file(path, "it has no rows"));
    };
    let separator = [b'\t', b',', b';'].into_iter().find(|byte| first.contains(byte)).unwrap_or(b',');
    let names = header_fields(first, separator);
    let header = options.header.unwrap_or_else(|| names.iter().all(|name| number::parse(name).is_err()));
    if header {
        lines.next();
    }
    let columns = names.len();
    if columns < 2 {
        let what =
            "only one column, but a row needs a label and a value; separate columns by commas, semicolons or tabs";
        return Err(DataError::line(path, first_line, what));
    }
    let label_column = match options.label {
        LabelColumn::Last => columns - 1,
        LabelColumn::First => 0,
        LabelColumn::At(column) => column,
    };
    if label_column >= columns {
        let what = format!("the label should be column {}, but there are {columns} columns", label_column + 1);
        return Err(DataError::line(path, first_line, what));
    }
    let dim = columns - 1;
    if let Some(asked) = options.dim.filter(|&asked| asked != dim) {
        let what = format!("{dim} columns besides the label, but {asked} were asked for");
        return Err(DataError::line(path, first_line, what));
    }
    if dim as u64 > options.column_limit() {
        let what = format!("{dim} columns are beyond the limit of {}; raise `max_dim` if it is right", options.max_dim);
        return Err(DataError::line(path, first_line, what));
    }

    let (mut labels, mut values) = (Vec::new(), Vec::new());
    for (line, content) in lines {
        if options.rows.is_some_and(|rows| labels.len() >= rows) {
            break;
        }
        let mut found = 0;
        for field in content.split(|&byte| byte == separator) {
            let field = unquoted(field.trim_ascii());
            if found < columns {
                let value = number::parse(field).map_err(|e| {
                    let what = if field.is_empty() {
                        format!("column {} is empty; fill it in or remove the row", found + 1)
                    } else {
                        format!("`{}` in column {} {}", shown(field), found + 1, e.words())
                    };
                    DataError::line(path, line, what)
                })?;
                if found == label_column {
                    labels.push(value);
                } else {
                    values.push(value);
                }
            }
            found += 1;
        }
        if found != columns {
            let what = format!("{found} columns, but line {first_line} has {columns}");
            return Err(DataError::line(path, line, what));
        }
    }
    if labels.is_empty() && !options.allow_empty {
        return Err(DataError::file(path, "it has no rows"));
    }
    let matrix = Matrix::dense(values, dim).compact();
    Ok(DataSet::new(crate::read::stem(path), matrix, labels))
}

/// The fields of the first line; a name in quotes may contain the separator.
fn header_fields(line: &[u8], separator: u8) -> Vec<&[u8]> {
    let (mut fields, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, &byte) in line.iter().enumerate() {
        if byte == b'"' {
            quoted = !quoted;
        } else if byte == separator && !quoted {
            fields.push(&line[start..at]);
            start = at + 1;
        }
    }
    fields.push(&line[start..]);
    fields.iter().map(|field| unquoted(field.trim_ascii())).collect()
}

fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}
