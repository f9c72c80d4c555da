//! Named vectors and words about them, as a safetensors file. The same contents are the same bytes, and a checksum covers them all.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use corewire_comm::numbers::{pieces, read, to_bytes};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::json;

use crate::disk::write_whole;
use crate::{JournalError, io_error};

/// Named vectors.
pub type Vectors = BTreeMap<String, Vec<f64>>;
/// Words about them.
pub type About = BTreeMap<String, String>;
/// Named vectors, and a few words about them.
pub type Model = (Vectors, About);

/// The word that the checksum stands under.
const CHECKSUM: &str = "checksum";

/// Named vectors, some of which lie elsewhere.
pub(crate) type Views<'a> = BTreeMap<String, Cow<'a, [f64]>>;

/// Writes them. Nothing of the vectors is copied: those of a network fill the memory.
pub(crate) fn encode(vectors: &Views<'_>, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let mut about = about.clone();
    about.insert(CHECKSUM.to_owned(), checksum(vectors, &about));
    let mut header = BTreeMap::from([("__metadata__", json!(about))]);
    let mut begin = 0;
    for (name, values) in vectors {
        let end = begin + size_of::<f64>() * values.len();
        header.insert(name, json!({ "dtype": "F64", "shape": [values.len()], "data_offsets": [begin, end] }));
        begin = end;
    }
    let mut header = serde_json::to_vec(&header).expect("texts and numbers");
    // The format wants numbers to lie on whole words.
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    vectors.values().try_for_each(|values| pieces(values).try_for_each(|piece| out.write_all(&piece)))
}

/// From bytes, or what is wrong with them.
pub(crate) fn decode(bytes: &[u8]) -> Result<Model, String> {
    let (length, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let data = bytes.get(8 + length..).ok_or("it is cut short")?;
    let mut vectors = Vectors::new();
    for (name, tensor) in header.tensors() {
        if tensor.dtype != Dtype::F64 {
            return Err(format!("its tensor `{name}` does not hold 64-bit floats"));
        }
        let values = data.get(tensor.data_offsets.0..tensor.data_offsets.1).ok_or("it is cut short")?;
        vectors.insert(name, read(values).collect());
    }
    let mut about: About = header.metadata().clone().unwrap_or_default().into_iter().collect();
    match about.remove(CHECKSUM) {
        None => Err("it has no checksum; it was not written by corewire, or by an earlier version".to_owned()),
        Some(told) if told != checksum(&views(&vectors), &about) => {
            Err("it is damaged: its checksum does not match".to_owned())
        }
        Some(_) => Ok((vectors, about)),
    }
}

fn views(vectors: &Vectors) -> Views<'_> {
    vectors.iter().map(|(name, values)| (name.clone(), Cow::from(&values[..]))).collect()
}

fn checksum(vectors: &Views<'_>, about: &About) -> String {
    /// The length goes first, so that no part can be taken for the end of another.
    fn add(hasher: &mut blake3::Hasher, length: usize, pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        hasher.update(&(length as u64).to_le_bytes());
        for piece in pieces {
            hasher.update(piece.as_ref());
        }
    }
    let mut hasher = blake3::Hasher::new();
    for word in about.iter().flat_map(|(key, value)| [key, value]) {
        add(&mut hasher, word.len(), [word]);
    }
    for (name, values) in vectors {
        add(&mut hasher, name.len(), [name]);
        add(&mut hasher, size_of_val(&values[..]), pieces(values));
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
    let mut bytes = Vec::new();
    encode(&views(vectors), about, &mut bytes).expect("memory takes all bytes");
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
    let (vectors, about) = decode(bytes).map_err(wrong)?;
    if !vectors.contains_key("x") {
        return Err(wrong("there is no tensor `x`; it is not a corewire model".to_owned()));
    }
    Ok((vectors, about))
}
