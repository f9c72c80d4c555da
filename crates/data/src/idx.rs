//! IDX, the format of MNIST: a magic number, big-endian sizes, then the values; labels in a file of their own.

use std::path::{Path, PathBuf};

use crate::{DataError, DataSet, Matrix, ReadOptions};

/// Whether the bytes begin as an IDX file does: two zeros, a known type, one to four sizes.
pub(crate) fn is_idx(bytes: &[u8]) -> bool {
    matches!(bytes, [0, 0, 0x08 | 0x09 | 0x0b..=0x0e, 1..=4, ..])
}

/// An error if an IDX file holds labels where samples were asked for.
pub(crate) fn check_holds_samples(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    if bytes.get(3) == Some(&1) {
        let what =
            "one size only: this is a file of labels; name the file of images and the labels are found beside it";
        return Err(DataError::byte(path, 3, what));
    }
    Ok(())
}

/// Reads an IDX file of samples and the IDX file of their labels; a sample's values become one row.
pub fn parse_idx(
    path: &Path,
    samples: &[u8],
    labels_path: &Path,
    labels: &[u8],
    options: &ReadOptions,
) -> Result<DataSet, DataError> {
    check_holds_samples(path, samples)?;
    let samples = Idx::open(path, samples)?;
    let labels = Idx::open(labels_path, labels)?;
    let [rows, sizes @ ..] = &samples.sizes[..] else { unreachable!("an IDX file has at least one size") };
    if labels.sizes.len() != 1 {
        return Err(DataError::byte(labels_path, 3, format!("{} sizes, but labels have one", labels.sizes.len())));
    }
    if *rows != labels.sizes[0] {
        let what = format!("{} labels, but `{}` has {rows} rows", labels.sizes[0], path.display());
        return Err(DataError::byte(labels_path, 4, what));
    }
    // Cannot overflow: `open` checked the product of all sizes against the length of the file, unless one is zero.
    let dim = sizes.iter().fold(1usize, |dim, &size| dim.saturating_mul(size));
    if *rows == 0 || dim == 0 {
        return Err(DataError::byte(path, 4, "it has no rows"));
    }
    if let Some(asked) = options.dim.filter(|&asked| asked != dim) {
        return Err(DataError::byte(path, 8, format!("{dim} values a row, but {asked} were asked for")));
    }
    if dim as u64 > options.column_limit() {
        let what = format!("{dim} values a row are beyond the limit of {}", options.max_dim);
        return Err(DataError::byte(path, 8, what));
    }
    let rows = options.rows.map_or(*rows, |wanted| wanted.clamp(1, *rows));
    let labels = labels.values(rows).collect::<Result<Vec<_>, _>>()?;
    let (mut offsets, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut column = 0;
    for value in samples.values(rows * dim) {
        let value = value?;
        if value != 0.0 {
            indices.push(column as u32);
            values.push(value);
        }
        column += 1;
        if column == dim {
            offsets.push(indices.len());
            column = 0;
        }
    }
    let matrix = Matrix::sparse(offsets, indices, values, dim).compact();
    Ok(DataSet::new(crate::read::stem(path), matrix, labels))
}

/// Labels for samples that have none: as many zeros.
pub(crate) fn no_labels(samples: &[u8]) -> Vec<u8> {
    let count = samples.get(4..8).unwrap_or_default();
    let rows = count.iter().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
    // A header that promises more rows than there are bytes is refused with the samples.
    [&[0, 0, 8, 1], count, &vec![0; rows.min(samples.len())][..]].concat()
}

/// The names under which the labels of `path` may lie: `train-images-idx3-ubyte.gz` has `train-labels-idx1-ubyte.gz`,
/// or the same with another ending.
pub(crate) fn label_files(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let labels = name.replacen("images", "labels", 1).replacen("idx3", "idx1", 1);
    if labels == name {
        return Vec::new();
    }
    let base = crate::read::without_compression(&labels);
    let others = ["", ".gz", ".xz", ".bz2"].map(|ending| format!("{base}{ending}"));
    let mut names = vec![labels.clone()];
    names.extend(others.into_iter().filter(|other| *other != labels));
    names.into_iter().map(|name| path.with_file_name(name)).collect()
}

/// A file whose header is consistent with its length.
struct Idx<'a> {
    path: &'a Path,
    kind: u8,
    sizes: Vec<usize>,
    header_bytes: usize,
    values: &'a [u8],
}

impl<'a> Idx<'a> {
    fn open(path: &'a Path, bytes: &'a [u8]) -> Result<Self, DataError> {
        let wrong = |offset, what: String| Err(DataError::byte(path, offset, what));
        let &[zero, zero2, kind, count, ..] = bytes else {
            return wrong(bytes.len(), "the file ends within the magic number of IDX".into());
        };
        if zero != 0 || zero2 != 0 {
            return wrong(0, "not an IDX file: it does not begin with two zero bytes".into());
        }
        let Some(width) = width(kind) else {
            return wrong(2, format!("type {kind:#04x} is not one of IDX (0x08, 0x09, 0x0b to 0x0e)"));
        };
        if !(1..=4).contains(&count) {
            return wrong(3, format!("{count} sizes, but one to four are supported"));
        }
        let header_bytes = 4 + 4 * usize::from(count);
        let Some(header) = bytes.get(4..header_bytes) else {
            return wrong(bytes.len(), format!("the file ends within its header of {header_bytes} bytes"));
        };
        let size = |chunk: &[u8; 4]| u32::from_be_bytes(*chunk) as usize;
        let sizes: Vec<usize> = header.as_chunks::<4>().0.iter().map(size).collect();
        let expected = sizes.iter().try_fold(width, |product, &size| product.checked_mul(size));
        let values = &bytes[header_bytes..];
        if expected != Some(values.len()) {
            let sizes = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
            let expected = expected.map_or("more than memory holds".into(), |bytes| format!("{bytes} bytes"));
            let what = format!(
                "the header promises {sizes} values ({expected}), but {} bytes follow; the file is damaged",
                values.len()
            );
            return wrong(4, what);
        }
        Ok(Self { path, kind, sizes, header_bytes, values })
    }

    /// The first `count` values.
    fn values(&self, count: usize) -> impl Iterator<Item = Result<f64, DataError>> + '_ {
        let width = width(self.kind).expect("checked when opened");
        let read = move |(i, bytes): (usize, &[u8])| {
            let value = decode(self.kind, bytes);
            if value.is_finite() {
                return Ok(value);
            }
            let offset = self.header_bytes + i * width;
            Err(DataError::byte(self.path, offset, format!("value `{value}` is not finite; remove the row")))
        };
        self.values.chunks_exact(width).take(count).enumerate().map(read)
    }
}

/// Bytes a value.
fn width(kind: u8) -> Option<usize> {
    match kind {
        0x08 | 0x09 => Some(1),
        0x0b => Some(2),
        0x0c | 0x0d => Some(4),
        0x0e => Some(8),
        _ => None,
    }
}

/// One value of `width(kind)` bytes.
#[inline]
fn decode(kind: u8, bytes: &[u8]) -> f64 {
    match (kind, bytes) {
        (0x08, &[a]) => f64::from(a),
        (0x09, &[a]) => f64::from(a as i8),
        (0x0b, &[a, b]) => f64::from(i16::from_be_bytes([a, b])),
        (0x0c, &[a, b, c, d]) => f64::from(i32::from_be_bytes([a, b, c, d])),
        (0x0d, &[a, b, c, d]) => f64::from(f32::from_be_bytes([a, b, c, d])),
        (0x0e, &[a, b, c, d, e, f, g, h]) => f64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("the width belongs to the kind"),
    }
}
