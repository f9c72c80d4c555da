//! Named vectors and words about them, as a safetensors file. The same contents are the same bytes, and a checksum covers them all.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use corewire_comm::numbers::{read, to_bytes};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::json;

use crate::disk::write_whole;
use crate::values::Values;
use crate::{JournalError, io_error};

/// Named vectors.
pub type Vectors = BTreeMap<String, Vec<f64>>;
/// Words about them.
pub type About = BTreeMap<String, String>;
/// Named vectors, and a few words about them.
pub type Model = (Vectors, About);

/// The word that the checksum stands under.
const CHECKSUM: &str = "checksum";

/// Writes named values. Nothing of them is copied: those of a network fill the memory.
pub(crate) fn encode(tensors: &BTreeMap<String, &Values>, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let mut about = about.clone();
    about.insert(
        CHECKSUM.to_owned(),
        checksum(tensors.iter().map(|(name, values)| (&**name, bytes_of(values), values.pieces())), &about),
    );
    let mut header = BTreeMap::from([("__metadata__", json!(about))]);
    let mut begin = 0;
    // The wider ones first, so that all lie on multiples of their width.
    for (name, values) in by_width(tensors) {
        let end = begin + bytes_of(values);
        let dtype = if values.width() == 4 { "F32" } else { "F64" };
        header.insert(name, json!({ "dtype": dtype, "shape": [values.len()], "data_offsets": [begin, end] }));
        begin = end;
    }
    let mut header = serde_json::to_vec(&header).expect("texts and numbers");
    // The format wants numbers to lie on whole words.
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    by_width(tensors).try_for_each(|(_, values)| values.pieces().try_for_each(|piece| out.write_all(&piece)))
}

fn by_width<'a>(tensors: &'a BTreeMap<String, &Values>) -> impl Iterator<Item = (&'a str, &'a Values)> {
    let of = |width: usize| {
        tensors.iter().map(|(name, values)| (&**name, *values)).filter(move |(_, values)| values.width() == width)
    };
    of(8).chain(of(4))
}

fn bytes_of(values: &Values) -> usize {
    values.width() * values.len()
}

/// Named values from bytes, or what is wrong with them.
pub(crate) fn decode(bytes: &[u8]) -> Result<(BTreeMap<String, Values>, About), String> {
    let (length, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let data = bytes.get(8 + length..).ok_or("it is cut short")?;
    let (mut tensors, mut parts) = (BTreeMap::new(), BTreeMap::new());
    for (name, tensor) in header.tensors() {
        let width = match tensor.dtype {
            Dtype::F32 => 4,
            Dtype::F64 => 8,
            _ => return Err(format!("its tensor `{name}` holds neither 32-bit nor 64-bit floats")),
        };
        let part = data.get(tensor.data_offsets.0..tensor.data_offsets.1).ok_or("it is cut short")?;
        parts.insert(name.clone(), part);
        tensors.insert(name, Values::read(part, width).expect("it is one of the two widths"));
    }
    let mut about: About = header.metadata().clone().unwrap_or_default().into_iter().collect();
    let told =
        about.remove(CHECKSUM).ok_or("it has no checksum; it was not written by corewire, or by an earlier version")?;
    if told != checksum(parts.iter().map(|(name, part)| (&**name, part.len(), [part])), &about) {
        return Err("it is damaged: its checksum does not match".to_owned());
    }
    Ok((tensors, about))
}

/// Of the words, and of named bytes that come in pieces.
fn checksum<'a, P>(parts: impl Iterator<Item = (&'a str, usize, P)>, about: &About) -> String
where
    P: IntoIterator<Item: AsRef<[u8]>>,
{
    /// The length goes first, so that no part can be taken for the end of another.
    fn add(hasher: &mut blake3::Hasher, length: usize, pieces: impl IntoIterator<Item: AsRef<[u8]>>) {
        hasher.update(&(length as u64).to_le_bytes());
        for piece in pieces {
            hasher.update(piece.as_ref());
        }
    }
    let mut hasher = blake3::Hasher::new();
    for word in about.iter().flat_map(|(key, value)| [key, value]) {
        add(&mut hasher, word.len(), [word]);
    }
    for (name, length, pieces) in parts {
        add(&mut hasher, name.len(), [name]);
        add(&mut hasher, length, pieces);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// A tensor as other programs have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Vec<f32>,
}

/// Writes named tensors for other programs, whole or not at all; `counts` are single whole numbers.
pub fn write_tensors(path: &Path, tensors: &BTreeMap<String, Tensor>, counts: &[String]) -> Result<(), JournalError> {
    let zero = 0i64.to_le_bytes();
    let numbers: Vec<Vec<u8>> = tensors.values().map(|tensor| to_bytes(&tensor.values)).collect();
    let views = tensors.iter().zip(&numbers).map(|((name, tensor), bytes)| {
        (name, TensorView::new(Dtype::F32, tensor.shape.clone(), bytes).expect("as many numbers as the shape says"))
    });
    let counts = counts
        .iter()
        .map(|name| (name, TensorView::new(Dtype::I64, Vec::new(), &zero).expect("a number has eight bytes")));
    let bytes = safetensors::serialize(views.chain(counts), None).expect("names and shapes are text");
    write_whole(path, &bytes)
}

/// Reads the 32-bit tensors of a safetensors file, whoever wrote it.
pub fn read_tensors(path: &Path) -> Result<BTreeMap<String, Tensor>, JournalError> {
    let bytes = std::fs::read(path).map_err(io_error(path))?;
    let wrong = |what: String| JournalError::File { path: path.to_owned(), what };
    let file = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
    let single = file.iter().filter(|(_, tensor)| tensor.dtype() == Dtype::F32);
    Ok(single
        .map(|(name, tensor)| {
            (name.to_owned(), Tensor { shape: tensor.shape().to_vec(), values: read(tensor.data()).collect() })
        })
        .collect())
}

/// The bytes of a model's file.
pub fn model_bytes((vectors, about): &Model) -> Vec<u8> {
    let wide: BTreeMap<&String, Values> =
        vectors.iter().map(|(name, numbers)| (name, Values::Wide(numbers.clone()))).collect();
    let tensors = wide.iter().map(|(name, values)| ((*name).clone(), values)).collect();
    let mut bytes = Vec::new();
    encode(&tensors, about, &mut bytes).expect("memory takes all bytes");
    bytes
}

/// Writes a model, whole or not at all.
pub fn write_model(path: &Path, model: &Model) -> Result<(), JournalError> {
    write_whole(path, &model_bytes(model))
}

/// Reads such a model; its vector `x` is there.
pub fn read_model(path: &Path) -> Result<Model, JournalError> {
    let bytes = std::fs::read(path).map_err(io_error(path))?;
    parse_model(path, &bytes)
}

/// Reads such a model from its bytes; `path` is only named in errors.
pub fn parse_model(path: &Path, bytes: &[u8]) -> Result<Model, JournalError> {
    let wrong = |what: String| JournalError::File { path: path.to_owned(), what };
    let (tensors, about) = decode(bytes).map_err(wrong)?;
    let vectors: Vectors = tensors.into_iter().map(|(name, values)| (name, values.to_wide())).collect();
    if !vectors.contains_key("x") {
        return Err(wrong("there is no tensor `x`; it is not a corewire model".to_owned()));
    }
    Ok((vectors, about))
}
