//! Networks of `corewire-nn`, for whoever wants to hold them against PyTorch's.

use corewire_nn::{Architecture, Network, Tensor};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{contiguous, expect_length};

fn network(name: &str, columns: usize, classes: usize) -> PyResult<Network> {
    let unknown =
        || PyValueError::new_err(format!("name: {name:?} is none of 'mlp', 'lenet', 'resnet-small', 'resnet18'"));
    let architecture = Architecture::named(name, 32).ok_or_else(unknown)?;
    Network::new(architecture, columns, classes).map_err(|what| PyValueError::new_err(format!("columns: {what}")))
}

/// Names and shapes of a network's parameters, in the order of the flat vector.
#[pyfunction]
pub fn network_tensors(name: &str, columns: usize, classes: usize) -> PyResult<Vec<(String, Vec<usize>)>> {
    let named = |tensor: &Tensor| (tensor.name.clone(), tensor.shape.clone());
    Ok(network(name, columns, classes)?.tensors().iter().map(named).collect())
}

/// The mean cross entropy of a batch, and its gradient by the parameters.
#[pyfunction]
pub fn network_gradient<'py>(
    py: Python<'py>,
    name: &str,
    classes: usize,
    parameters: PyReadonlyArray1<'py, f32>,
    pixels: PyReadonlyArray1<'py, f32>,
    labels: Vec<usize>,
) -> PyResult<(f64, Bound<'py, PyArray1<f32>>)> {
    let (parameters, pixels) = (contiguous("parameters", &parameters)?, contiguous("pixels", &pixels)?);
    if labels.is_empty() || !pixels.len().is_multiple_of(labels.len()) {
        return Err(PyValueError::new_err(format!("labels: {} for {} pixels", labels.len(), pixels.len())));
    }
    if labels.iter().any(|&label| label >= classes) {
        return Err(PyValueError::new_err(format!("labels: each must be below {classes}")));
    }
    let network = network(name, pixels.len() / labels.len(), classes)?;
    expect_length("parameters", parameters.len(), network.dim())?;
    let mut gradient = vec![0.0; network.dim()];
    let weight = 1.0 / labels.len() as f64;
    let loss = py.detach(|| network.loss(parameters, pixels, &labels, weight, Some(&mut gradient)));
    Ok((loss, PyArray1::from_vec(py, gradient)))
}
