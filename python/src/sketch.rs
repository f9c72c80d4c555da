//! `corewire.Sketch`.

use corewire_sketch::{AnySketch, CommonRandomness, Family, Purpose, Rademacher, Sketch as _};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{contiguous, contiguous_mut, expect_length, read_seed, readable, reserved, whole, writable, wrong_type};

/// Common random directions: everybody with the same seed has the same ones in every round.
///
/// `project` turns a vector of `dim` numbers into `budget` scalars, which may be summed over machines; `reconstruct` turns scalars back
/// into a vector whose mean over rounds is the vector itself. float32 or float64, one-dimensional and contiguous; nothing is copied, and
/// the interpreter lock is released. The bits are those of the Rust library, on every CPU and for any number of threads.
///
/// >>> import numpy as np
/// >>> from corewire import Sketch
/// >>> sketch = Sketch(1000, 64, seed=1)
/// >>> scalars = sketch.project(0, np.ones(1000))
/// >>> scalars.shape, sketch.reconstruct(0, scalars).shape
/// ((64,), (1000,))
#[pyclass(module = "corewire", frozen, from_py_object)]
#[derive(Clone)]
pub struct Sketch {
    inner: AnySketch,
    randomness: CommonRandomness,
}

/// Calls the same method for the one element type that the arguments have.
macro_rules! for_type {
    ($name:literal, $vector:expr, $T:ident, $work:expr) => {{
        if let Ok(array) = $vector.cast::<PyArray1<f32>>() {
            type $T = f32;
            #[allow(clippy::redundant_closure_call)]
            return $work(array);
        }
        if let Ok(array) = $vector.cast::<PyArray1<f64>>() {
            type $T = f64;
            #[allow(clippy::redundant_closure_call)]
            return $work(array);
        }
        Err(wrong_type($name, "float32 or float64"))
    }};
}

#[pymethods]
impl Sketch {
    #[new]
    #[pyo3(signature = (dim, budget, family = "hadamard", seed = None))]
    fn new(
        #[pyo3(from_py_with = whole::dim)] dim: usize,
        #[pyo3(from_py_with = whole::budget)] budget: usize,
        family: &str,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let seed = match seed {
            Some(seed) => read_seed(seed)?,
            None => corewire_sketch::Seed::reproducible(0),
        };
        let family: Family = family.parse().map_err(|error| PyValueError::new_err(format!("family: {error}")))?;
        let randomness = CommonRandomness::new(&seed);
        let inner = AnySketch::new(family, &randomness, dim, budget)
            .map_err(|error| PyValueError::new_err(format!("dim, budget: {error}")))?;
        Ok(Self { inner, randomness })
    }

    /// The length of the vectors.
    #[getter]
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    /// The number of scalars.
    #[getter]
    fn budget(&self) -> usize {
        self.inner.len()
    }

    /// The family's name.
    #[getter]
    fn family(&self) -> String {
        self.inner.family().to_string()
    }

    /// The scalars of a vector in a round, in `out` if given.
    #[pyo3(signature = (round, vector, out = None))]
    fn project<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
        vector: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        for_type!("vector", vector, T, |array: &Bound<'py, PyArray1<T>>| {
            let from = readable("vector", array)?;
            let from = contiguous("vector", &from)?;
            expect_length("vector", from.len(), self.inner.dim())?;
            let out = output::<T>(py, out, self.inner.len())?;
            let mut to = writable("out", &out)?;
            let to = contiguous_mut("out", &mut to)?;
            py.detach(|| self.inner.project(round, from, to));
            Ok(out.clone().into_any())
        })
    }

    /// The vector that scalars stand for in a round, in `out` if given.
    #[pyo3(signature = (round, scalars, out = None))]
    fn reconstruct<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
        scalars: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        for_type!("scalars", scalars, T, |array: &Bound<'py, PyArray1<T>>| {
            let from = readable("scalars", array)?;
            let from = contiguous("scalars", &from)?;
            expect_length("scalars", from.len(), self.inner.len())?;
            let out = output::<T>(py, out, self.inner.dim())?;
            let mut to = writable("out", &out)?;
            let to = contiguous_mut("out", &mut to)?;
            py.detach(|| self.inner.reconstruct(round, from, to));
            Ok(out.clone().into_any())
        })
    }

    /// The order of the Hadamard matrix.
    #[getter]
    fn order(&self) -> usize {
        Family::Hadamard.most(self.inner.dim())
    }

    /// The signs of a Hadamard sketch in a round, for those who transform elsewhere: a bit per coordinate, the lowest of a byte first, set
    /// where it is -1.
    fn signs<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        self.expect_hadamard()?;
        let mut entries = reserved("dim", self.inner.dim())?;
        let mut bytes = reserved("dim", self.inner.dim().div_ceil(8))?;
        py.detach(|| {
            entries.resize(self.inner.dim(), 0.0f32);
            // They are those of the first direction of Rademacher's.
            let signs = Rademacher::new(&self.randomness, entries.len(), 1).expect("as many coordinates as here");
            signs.reconstruct(round, &[1.0], &mut entries);
            let byte = |eight: &[f32]| eight.iter().rev().fold(0, |byte, s| byte << 1 | u8::from(*s < 0.0));
            bytes.extend(entries.chunks(8).map(byte));
        });
        Ok(PyArray1::from_vec(py, bytes))
    }

    /// The rows of the Hadamard matrix in a round, in rising order.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        self.expect_hadamard()?;
        let (order, budget) = (self.order(), self.inner.len());
        let mut drawn = reserved("dim", order)?;
        let mut rows = reserved("budget", budget)?;
        py.detach(|| {
            let mut words = self.randomness.words(Purpose::Rows, round, (Purpose::Directions as u32) << 28);
            // Floyd's algorithm; where most rows are wanted it draws the others.
            let few = budget.min(order - budget);
            drawn.resize(order, false);
            for last in order - few..order {
                let row = words.next_below(last as u64 + 1) as usize;
                let free = if drawn[row] { last } else { row };
                drawn[free] = true;
            }
            let wanted = budget == few;
            rows.extend((0..order).filter(|&row| drawn[row] == wanted).map(|row| row as i64));
        });
        Ok(PyArray1::from_vec(py, rows))
    }

    fn __repr__(&self) -> String {
        format!("Sketch(dim={}, budget={}, family='{}')", self.dim(), self.budget(), self.family())
    }
}

impl Sketch {
    fn expect_hadamard(&self) -> PyResult<()> {
        if self.inner.family() == Family::Hadamard {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("family: {} has neither signs nor rows of its own", self.inner.family())))
    }
}

/// The array to write to: a new one, or the given one if it fits.
fn output<'py, T: numpy::Element + Default + Copy>(
    py: Python<'py>,
    given: Option<&Bound<'py, PyAny>>,
    length: usize,
) -> PyResult<Bound<'py, PyArray1<T>>> {
    let Some(given) = given else { return Ok(PyArray1::zeros(py, length, false)) };
    let array = given.cast::<PyArray1<T>>().map_err(|_| wrong_type("out", "the other argument's type"))?;
    expect_length("out", array.len()?, length)?;
    Ok(array.clone())
}
