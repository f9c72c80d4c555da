//! The native half of the Python package: sketches, codes and the mean of scalars, on numpy arrays and without the interpreter lock.
//! What torch and scikit-learn need around them is written in Python.

mod buckets;
mod linear;
mod network;
mod quantiser;
mod sketch;
mod wire;

use numpy::{BorrowError, Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use corewire_sketch::Seed;

/// The seed of an argument: a whole number that all machines know, or 32 secret bytes.
fn read_seed(seed: &Bound<'_, PyAny>) -> PyResult<Seed> {
    if let Ok(number) = seed.extract::<u64>() {
        return Ok(Seed::reproducible(number));
    }
    let bytes = seed.cast::<PyBytes>().ok().and_then(|bytes| <[u8; 32]>::try_from(bytes.as_bytes()).ok());
    bytes.map(Seed::from_bytes).ok_or_else(|| {
        PyValueError::new_err("seed: a whole number from 0 to 2**64 - 1, or 32 secret bytes (os.urandom(32))")
    })
}

/// Readers of whole numbers, which refuse anything else by the argument's name.
mod whole {
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    macro_rules! whole {
        ($($name:ident: $T:ty),*) => { $(
            pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$T> {
                let wrong = |_| {
                    PyValueError::new_err(format!(
                        concat!(stringify!($name), ": {} is not a whole number from 0 to {}"), value, <$T>::MAX
                    ))
                };
                value.extract().map_err(wrong)
            }
        )* };
    }
    whole!(dim: usize, budget: usize, count: usize, round: u64, rank: u32);
}

/// An argument that is to be read.
fn readable<'py, T: Element>(name: &str, array: &Bound<'py, PyArray1<T>>) -> PyResult<PyReadonlyArray1<'py, T>> {
    array.try_readonly().map_err(|error| not_ours(name, error))
}

/// An argument that is to be written to.
fn writable<'py, T: Element>(name: &str, array: &Bound<'py, PyArray1<T>>) -> PyResult<PyReadwriteArray1<'py, T>> {
    array.try_readwrite().map_err(|error| not_ours(name, error))
}

fn not_ours(name: &str, error: BorrowError) -> PyErr {
    PyValueError::new_err(match error {
        BorrowError::NotWriteable => format!("{name}: the array is read-only; give one that may be written to"),
        _ => format!("{name}: the array is in use, by another argument or another thread; give one of its own"),
    })
}

fn wrong_type(name: &str, types: &str) -> PyErr {
    PyTypeError::new_err(format!("{name}: a one-dimensional numpy array of {types} is needed"))
}

fn contiguous<'a, T: Element>(name: &str, array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| not_contiguous(name))
}

fn contiguous_mut<'a, T: Element>(name: &str, array: &'a mut PyReadwriteArray1<'_, T>) -> PyResult<&'a mut [T]> {
    array.as_slice_mut().map_err(|_| not_contiguous(name))
}

fn not_contiguous(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name}: the array is not contiguous; numpy.ascontiguousarray makes a copy that is"))
}

fn expect_length(name: &str, found: usize, expected: usize) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name}: {found} numbers where {expected} are due")))
}

/// Room for so many numbers, which an argument asks for: the interpreter would end where there is none.
fn reserved<T>(name: &str, count: usize) -> PyResult<Vec<T>> {
    let mut numbers = Vec::new();
    let none = |_| PyMemoryError::new_err(format!("{name}: there is no memory for {count} numbers"));
    numbers.try_reserve_exact(count).map_err(none)?;
    Ok(numbers)
}

/// The native half of `corewire`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<sketch::Sketch>()?;
    module.add_class::<quantiser::Quantiser>()?;
    module.add_class::<wire::MeanWire>()?;
    module.add_function(wrap_pyfunction!(linear::fit_linear, module)?)?;
    module.add_function(wrap_pyfunction!(network::network_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(network::network_gradient, module)?)?;
    module.add_function(wrap_pyfunction!(buckets::fold_momentum, module)?)?;
    module.add_function(wrap_pyfunction!(buckets::fill_bucket, module)?)?;
    Ok(())
}
