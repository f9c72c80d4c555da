//! From a path to a data set: opening, decompressing within a limit, and telling the formats apart.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "parquet")]
use crate::parquet;
use crate::table::{Cells, ColumnOptions, Part, Schema, Survey, Table};
use crate::{DataError, DataSet, Matrix, csv, idx, libsvm, pictures, text};

/// How to read a file. The default suits every file whose format can be told from its contents.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadOptions {
    /// The format; `None` tells it from the contents and the name.
    pub format: Option<Format>,
    /// What the columns of CSV are for.
    pub columns: ColumnOptions,
    /// How the columns of CSV become numbers, where a model has settled it; then `columns` says nothing.
    pub schema: Option<Arc<Schema>>,
    /// Whether rows may come without labels, as those that are to be predicted.
    pub unlabelled: bool,
    /// Whether CSV has a header; `None` tells it from the first line.
    pub header: Option<bool>,
    /// Where the labels of an IDX file lie; `None` looks beside it.
    pub labels: Option<PathBuf>,
    /// Whether LIBSVM indices count from 0.
    pub zero_based: bool,
    /// How many columns a row must have: a held-out set is given the dimension of its training set.
    pub dim: Option<usize>,
    /// Read only the first so many rows.
    pub rows: Option<usize>,
    /// The largest number of columns that is believed; values above 2^32 - 2 count as that.
    pub max_dim: usize,
    /// The largest number of bytes that a file may have once decompressed.
    pub max_bytes: u64,
    /// How many times its size a compressed file may grow to, above the first 64 MiB: a few bytes of bzip2 can hold
    /// gigabytes of zeros.
    pub max_expansion: u64,
    /// The bytes of memory that what is read may lead to, copies included.
    pub max_memory: u64,
    /// Whether rows to be scored by are wanted: of a folder with CIFAR's files, those of its test set.
    pub held_out: bool,
    /// Whether a file without a row is a data set: a machine's shard may be empty. LIBSVM then needs `dim`.
    pub allow_empty: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            format: None,
            columns: ColumnOptions::default(),
            schema: None,
            unlabelled: false,
            header: None,
            labels: None,
            zero_based: false,
            dim: None,
            rows: None,
            max_dim: 1 << 26,
            max_bytes: 4 << 30,
            max_expansion: 250,
            max_memory: u64::MAX,
            held_out: false,
            allow_empty: false,
        }
    }
}

impl ReadOptions {
    /// The number of columns that no index may reach: columns are counted in 32 bits, one of them kept for a bias.
    pub(crate) fn column_limit(&self) -> u64 {
        self.dim.unwrap_or(self.max_dim).min(u32::MAX as usize - 1) as u64
    }
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A label, then `index:value` pairs.
    Libsvm,
    /// Numbers and words between separators.
    Csv,
    /// The format of MNIST.
    Idx,
    /// The binary format of CIFAR-10 and CIFAR-100.
    Cifar,
    /// Columns with types, read as the CSV that they stand for.
    Parquet,
}

/// A decoder that would need a larger window is refused; `xz -9` needs 64 MiB.
pub(crate) const XZ_MEMORY_KIB: u32 = 512 << 10;

/// What a compressed file may grow to in any case.
const FREE_EXPANSION_BYTES: u64 = 64 << 20;

/// What is in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Raw {
    /// Numbers; and whether the format says how many columns there are. Where it does not, as in LIBSVM, trailing columns of
    /// zeros may be missing, and an empty file counts as one column.
    Rows(DataSet, bool),
    /// Columns, some of them of words.
    Table(Table),
}

impl Raw {
    /// How many rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Rows(set, _) => set.rows(),
            Self::Table(table) => table.rows,
        }
    }

    /// The cells of the label, where there is one.
    fn labels(&self) -> Option<Cells> {
        match self {
            Self::Rows(set, _) => Some(Cells::Numbers(set.labels.clone())),
            Self::Table(table) => {
                table.columns.iter().find(|column| column.part == Part::Label).map(|column| column.cells.clone())
            }
        }
    }

    /// The distinct labels as text, ascending.
    pub fn classes(&self) -> Vec<String> {
        match self.labels() {
            None => Vec::new(),
            Some(Cells::Numbers(mut labels)) => {
                labels.sort_by(f64::total_cmp);
                labels.dedup();
                labels.iter().map(f64::to_string).collect()
            }
            Some(Cells::Words { mut words, .. }) => {
                words.sort();
                words
            }
        }
    }

    /// Only rows with these labels: words, or numbers as text.
    pub fn with_labels(&self, wanted: &[String]) -> Self {
        let numbers: Vec<f64> = wanted.iter().filter_map(|name| name.parse().ok()).collect();
        let rows: Vec<usize> = match self.labels() {
            None => return self.clone(),
            Some(Cells::Numbers(labels)) => (0..labels.len()).filter(|&i| numbers.contains(&labels[i])).collect(),
            Some(Cells::Words { words, codes }) => {
                let keeps = |code: u32| words.get(code as usize).is_some_and(|word| wanted.contains(word));
                (0..codes.len()).filter(|&i| keeps(codes[i])).collect()
            }
        };
        self.select(&rows)
    }

    /// These rows, in that order.
    pub fn select(&self, rows: &[usize]) -> Self {
        match self {
            Self::Rows(set, fixed) => Self::Rows(set.select(rows), *fixed),
            Self::Table(table) => Self::Table(table.select(rows)),
        }
    }
}

/// Reads a file: LIBSVM, CSV, IDX or CIFAR, plain or compressed by gzip, xz or bzip2; Parquet, where that is built in; or a folder of
/// pictures.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Raw, DataError> {
    if path.is_dir() {
        return pictures::read_folder(path, options);
    }
    let bytes = read_file(path, options)?;
    if options.allow_empty && text::lines(&bytes).all(|(_, line)| matches!(line.trim_ascii(), [] | [b'#', ..])) {
        let nothing = Matrix::sparse(vec![0], Vec::new(), Vec::new(), options.dim.unwrap_or(1));
        return Ok(Raw::Rows(DataSet::new(stem(path), nothing, Vec::new()), false));
    }
    let (format, bytes, options) = &told_apart(path, bytes, options)?;
    check_memory(path, bytes, *format, options)?;
    match format {
        Format::Libsvm => Ok(Raw::Rows(libsvm::parse_libsvm(path, bytes, options)?, false)),
        Format::Csv | Format::Parquet => csv::parse_table(path, bytes, options).map(Raw::Table),
        Format::Cifar => Ok(Raw::Rows(pictures::parse_cifar(path, bytes, options)?, true)),
        Format::Idx => {
            idx::check_holds_samples(path, bytes)?;
            let (labels_path, labels) = match find_labels(path, options) {
                Err(_) if options.unlabelled => (path.to_owned(), idx::no_labels(bytes)),
                found => {
                    let path = found?;
                    let labels = read_file(&path, options)?;
                    (path, labels)
                }
            };
            idx::parse_idx(path, bytes, &labels_path, &labels, options).map(|set| Raw::Rows(set, true))
        }
    }
}

/// The lines of a file, where it is CSV or stands for it.
pub fn csv_lines(path: &Path, options: &ReadOptions) -> Result<Option<csv::CsvLines>, DataError> {
    match told_apart(path, read_file(path, options)?, options)? {
        (Format::Csv | Format::Parquet, text, options) => csv::CsvLines::new(path, text, &options).map(Some),
        _ => Ok(None),
    }
}

/// The format of a file, and its bytes; the text of one that is read as CSV, with how to read it.
fn told_apart<'a>(
    path: &Path,
    bytes: Vec<u8>,
    options: &'a ReadOptions,
) -> Result<(Format, Vec<u8>, Cow<'a, ReadOptions>), DataError> {
    match options.format.map_or_else(|| sniff(path, &bytes), Ok)? {
        Format::Parquet => {
            let (text, options) = parquet::to_csv(path, options)?;
            Ok((Format::Parquet, text, Cow::Owned(options)))
        }
        other => Ok((other, bytes, Cow::Borrowed(options))),
    }
}

#[cfg(not(feature = "parquet"))]
mod parquet {
    use super::*;

    pub fn to_csv(path: &Path, _: &ReadOptions) -> Result<(Vec<u8>, ReadOptions), DataError> {
        let what = "this is a Parquet file; build corewire with `--features parquet`, or convert it to CSV first";
        Err(DataError::file(path, what))
    }
}

/// Reads a file as numbers: words of CSV become columns of zeros and ones.
pub fn load(path: &Path, options: &ReadOptions) -> Result<DataSet, DataError> {
    match read(path, options)? {
        Raw::Rows(set, _) => Ok(set),
        Raw::Table(table) => {
            let schema = Survey::of(&table).schema(options.columns.missing);
            Ok(schema.encode(table)?.0)
        }
    }
}

/// The whole contents of a file, decompressed within the limits.
pub(crate) fn read_file(path: &Path, options: &ReadOptions) -> Result<Vec<u8>, DataError> {
    // Whoever opens a pipe waits for its other end.
    if !std::fs::metadata(path).map_err(|e| DataError::io(path, e))?.is_file() {
        return Err(DataError::file(path, "it is no plain file, but a folder, a pipe or a device"));
    }
    let file = File::open(path).map_err(|e| DataError::io(path, e))?;
    let stored_bytes = file.metadata().map_err(|e| DataError::io(path, e))?.len();
    decompress(path, BufReader::with_capacity(1 << 16, file), stored_bytes, options)
}

/// Refuses a file whose numbers would take too much memory: those that are read, a machine's share of them, and all of them again for f.
fn check_memory(path: &Path, bytes: &[u8], format: Format, options: &ReadOptions) -> Result<(), DataError> {
    const COPIES: u64 = 3;
    let count = |is: fn(u8) -> bool| bytes.iter().filter(|&&byte| is(byte)).count() as u64;
    let (numbers, each) = match format {
        Format::Libsvm => (count(|byte| byte == b':'), 12),
        Format::Csv | Format::Parquet => (count(|byte| b",;\t\n".contains(&byte)), 8),
        Format::Idx | Format::Cifar => (bytes.len() as u64, 8),
    };
    let (needed, allowed) = (COPIES * each * numbers, options.max_memory);
    if needed > allowed {
        let what = format!(
            "its {numbers} numbers need {needed} bytes of memory, and {allowed} are allowed; raise `limits.memory`"
        );
        return Err(DataError::file(path, what));
    }
    Ok(())
}

/// Decompresses by the first bytes, not by the name.
pub(crate) fn decompress(
    path: &Path,
    mut file: impl Read,
    stored_bytes: u64,
    options: &ReadOptions,
) -> Result<Vec<u8>, DataError> {
    let mut magic = Vec::new();
    file.by_ref().take(6).read_to_end(&mut magic).map_err(|e| DataError::io(path, e))?;
    let compression = compression(&magic);
    let file = BufReader::new((&magic[..]).chain(file));
    let reader: Box<dyn Read + '_> = match compression {
        None => Box::new(file),
        Some("gzip") => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Some("bzip2") => Box::new(bzip2::bufread::MultiBzDecoder::new(file)),
        Some(_) => Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB)),
    };
    let expansion = FREE_EXPANSION_BYTES.max(stored_bytes.saturating_mul(options.max_expansion));
    let (limit, way_out) = match compression {
        Some(_) if expansion < options.max_bytes => (expansion, "decompress it first"),
        _ => (options.max_bytes, "raise `limits.memory`"),
    };
    let mut bytes = Vec::new();
    let result = reader.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    if bytes.len() as u64 > limit {
        let what = match compression {
            Some(name) => format!("more than {limit} bytes when decompressed ({name}); {way_out} if that is right"),
            None => format!("more than {limit} bytes; {way_out} if that is right"),
        };
        return Err(DataError::file(path, what));
    }
    match (result, compression) {
        (Err(e), None) => Err(DataError::io(path, e)),
        (Err(e), Some(name)) if e.kind() == std::io::ErrorKind::OutOfMemory => {
            let what = format!("there is no memory for more than {} bytes of its contents ({name})", bytes.len());
            Err(DataError::file(path, what))
        }
        (Err(e), Some(name)) => {
            let what = format!("the {name} data is damaged or cut short after {} good bytes ({e})", bytes.len());
            Err(DataError::file(path, what))
        }
        (Ok(_), Some(name)) if self::compression(&bytes).is_some() => {
            Err(DataError::file(path, format!("compressed twice; decompress the outer {name} layer first")))
        }
        (Ok(_), _) => Ok(bytes),
    }
}

fn compression(magic: &[u8]) -> Option<&'static str> {
    match magic {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some("bzip2"),
        _ => None,
    }
}

/// Tells the format from the contents first, then from the name, then from the look of the first line.
fn sniff(path: &Path, bytes: &[u8]) -> Result<Format, DataError> {
    if idx::is_idx(bytes) {
        return Ok(Format::Idx);
    }
    if pictures::cifar_labels(path, bytes).is_some() {
        return Ok(Format::Cifar);
    }
    if bytes.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    let foreign = match bytes {
        [b'P', b'K', 3 | 5, 4 | 6, ..] => Some("a ZIP archive; unpack it first"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("compressed by zstd; decompress it first"),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some("a NumPy file; save it as CSV first"),
        [0x89, b'H', b'D', b'F', ..] => Some("an HDF5 file; convert it to CSV first"),
        _ if bytes.get(257..262) == Some(b"ustar") => Some("a tar archive; unpack it first"),
        _ if bytes.iter().take(1 << 12).any(|&byte| byte == 0) => {
            Some("a binary file of unknown format; LIBSVM, CSV, IDX and the .bin files of CIFAR can be read")
        }
        _ => None,
    };
    if let Some(what) = foreign {
        return Err(DataError::file(path, format!("this is {what}")));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    match without_compression(&name).rsplit_once('.').map(|(_, ending)| ending) {
        Some("csv" | "tsv") => return Ok(Format::Csv),
        Some("libsvm" | "svm" | "svmlight") => return Ok(Format::Libsvm),
        _ => {}
    }
    let mut lines = text::lines(bytes).filter(|(_, line)| !matches!(line.trim_ascii(), [] | [b'#', ..]));
    let Some((line, first)) = lines.next() else {
        return Err(DataError::file(path, "it has no rows"));
    };
    if first.contains(&b':') {
        Ok(Format::Libsvm)
    } else if first.iter().any(|byte| b",;\t".contains(byte)) {
        Ok(Format::Csv)
    } else if lines.any(|(_, line)| line.contains(&b':')) {
        // A first row of zeros is a label alone.
        Ok(Format::Libsvm)
    } else {
        let what = "this looks like neither LIBSVM (LABEL INDEX:VALUE ...) nor CSV (numbers between commas)";
        Err(DataError::line(path, line, what))
    }
}

fn find_labels(path: &Path, options: &ReadOptions) -> Result<PathBuf, DataError> {
    if let Some(labels) = &options.labels {
        return Ok(labels.clone());
    }
    let candidates = idx::label_files(path);
    if let Some(found) = candidates.iter().find(|candidate| candidate.is_file()) {
        return Ok(found.clone());
    }
    let what = match candidates.first() {
        Some(first) => format!("its labels are missing; put `{}` beside it", first.display()),
        None => "the name does not tell where its labels lie; name it like `train-images-idx3-ubyte`".into(),
    };
    Err(DataError::file(path, what))
}

/// A file's name without the ending of a compressor.
pub(crate) fn without_compression(name: &str) -> &str {
    [".gz", ".xz", ".bz2"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// What a data set read from `path` is called: the file's name without the ending of a compressor.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    without_compression(&name).to_owned()
}
