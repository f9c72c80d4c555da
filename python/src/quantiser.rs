//! `corewire.Quantiser`.

use corewire_sketch::code::{Dither, IntegerCoder, dequantise, quantise};
use corewire_sketch::{CommonRandomness, Purpose};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::{contiguous, expect_length, read_seed, readable, reserved, whole, wrong_type};

/// Scalars as dithered integers, coded at about their entropy given the dither, which all holders of the seed know.
///
/// `quantise` rounds p/step + u; `dequantise` gives (z - u) step, which is p plus an error that is uniform within half a step and does not
/// depend on p. `encode` and `decode` keep no state from message to message.
///
/// >>> import numpy as np
/// >>> from corewire import Quantiser
/// >>> codec = Quantiser(seed=1)
/// >>> scalars = np.sin(np.arange(1000.0))
/// >>> integers = codec.quantise(0, 3, scalars, step=2.0)
/// >>> message = codec.encode(0, 3, integers)
/// >>> len(message) < 150, bool((codec.decode(0, 3, message, 1000) == integers).all())
/// (True, True)
/// >>> float(abs(codec.dequantise(0, 3, integers, step=2.0) - scalars).max()) <= 1.0
/// True
#[pyclass(module = "corewire", frozen)]
pub struct Quantiser {
    randomness: CommonRandomness,
}

impl Quantiser {
    fn dithers(&self, round: u64, rank: u32, count: usize) -> Vec<Dither> {
        let mut dithers = vec![Dither::NONE; count];
        Dither::fill(&mut self.randomness.words(Purpose::Dither, round, rank), &mut dithers);
        dithers
    }
}

fn check_step(step: f64) -> PyResult<()> {
    if step.is_finite() && step > 0.0 {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("step: {step} is not a positive number")))
}

/// Integers are no larger.
const MOST_STEPS: f64 = (1u32 << 30) as f64;

/// An array of float64: the one that is given, or a copy of one of float32.
fn wide<'py>(name: &str, array: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray1<'py, f64>> {
    if let Ok(array) = array.cast::<PyArray1<f64>>() {
        return readable(name, array);
    }
    let narrow = array.cast::<PyArray1<f32>>().map_err(|_| wrong_type(name, "float32 or float64"))?;
    let narrow = readable(name, narrow)?;
    let numbers = contiguous(name, &narrow)?.iter().map(|&number| f64::from(number));
    Ok(PyArray1::from_iter(array.py(), numbers).readonly())
}

/// The argument `integers`.
fn read_integers<'py>(integers: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray1<'py, i32>> {
    readable("integers", integers.cast::<PyArray1<i32>>().map_err(|_| wrong_type("integers", "int32"))?)
}

#[pymethods]
impl Quantiser {
    #[new]
    fn new(seed: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { randomness: CommonRandomness::new(&read_seed(seed)?) })
    }

    /// The integers of a machine's scalars (float32 or float64) in a round.
    fn quantise<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
        #[pyo3(from_py_with = whole::rank)] rank: u32,
        scalars: &Bound<'py, PyAny>,
        step: f64,
    ) -> PyResult<Bound<'py, PyArray1<i32>>> {
        check_step(step)?;
        let scalars = wide("scalars", scalars)?;
        let scalars = contiguous("scalars", &scalars)?;
        if !scalars.iter().all(|scalar| scalar.is_finite()) {
            return Err(PyValueError::new_err("scalars: there is a number among them that is not finite"));
        }
        if scalars.iter().any(|scalar| (scalar / step).abs() > MOST_STEPS) {
            let what = format!("step: {step} is so short that an integer would not fit into 32 bits");
            return Err(PyValueError::new_err(what));
        }
        let integers = py.detach(|| -> Vec<i32> {
            let dithers = self.dithers(round, rank, scalars.len());
            scalars.iter().zip(dithers).map(|(&scalar, dither)| quantise(scalar, step, dither)).collect()
        });
        Ok(PyArray1::from_vec(py, integers))
    }

    /// The scalars (float64) that a machine's integers stand for in a round.
    fn dequantise<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
        #[pyo3(from_py_with = whole::rank)] rank: u32,
        integers: &Bound<'py, PyAny>,
        step: f64,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        check_step(step)?;
        let integers = read_integers(integers)?;
        let integers = contiguous("integers", &integers)?;
        let scalars = py.detach(|| -> Vec<f64> {
            let dithers = self.dithers(round, rank, integers.len());
            integers.iter().zip(dithers).map(|(&integer, dither)| dequantise(integer, step, dither)).collect()
        });
        Ok(PyArray1::from_vec(py, scalars))
    }

    /// The bytes of a machine's integers in a round.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
        #[pyo3(from_py_with = whole::rank)] rank: u32,
        integers: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let integers = read_integers(integers)?;
        let integers = contiguous("integers", &integers)?;
        let message = py.detach(|| {
            let mut message = Vec::new();
            IntegerCoder::new().encode(integers, &self.dithers(round, rank, integers.len()), &mut message);
            message
        });
        Ok(PyBytes::new(py, &message))
    }

    /// The integers of a machine's message in a round, as many as were encoded. A message that was damaged may give other integers instead
    /// of an error: integrity is the business of the frame that carries it.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole::round)] round: u64,
        #[pyo3(from_py_with = whole::rank)] rank: u32,
        message: &[u8],
        #[pyo3(from_py_with = whole::count)] count: usize,
    ) -> PyResult<Bound<'py, PyArray1<i32>>> {
        // Zeros that were expected take no byte at all, so that the message's length bounds no count.
        if count > 1 << 32 {
            return Err(PyValueError::new_err(format!("count: {count} integers are too many for one message")));
        }
        let (mut integers, mut dithers) = (reserved("count", count)?, reserved("count", count)?);
        let integers = py.detach(|| {
            integers.resize(count, 0);
            dithers.resize(count, Dither::NONE);
            Dither::fill(&mut self.randomness.words(Purpose::Dither, round, rank), &mut dithers);
            IntegerCoder::new().decode(message, &dithers, &mut integers).map(|()| integers)
        });
        let integers = integers.map_err(|error| PyValueError::new_err(format!("message: {error}")))?;
        expect_length("message", integers.len(), count)?;
        Ok(PyArray1::from_vec(py, integers))
    }
}
