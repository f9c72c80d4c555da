//! Linear models on simulated machines, for `corewire.sklearn`.

use corewire_comm::{Collective, Group, Metered, Solo};
use corewire_data::shard::Split;
use corewire_data::{DataSet, Matrix};
use corewire_optim::RunError;
use corewire_optim::catalogue::{self, Constants, MethodSettings, Request};
use corewire_optim::problem::{Model, ModelSpec, Problem};
use corewire_optim::proximal::Proximal;
use corewire_optim::run::{Begin, Finish, Gap, Rules, RunPart, Silent, run};
use corewire_sketch::{CommonRandomness, Seed};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{contiguous, expect_length, not_contiguous};

/// Fits f(x) = (1/N) sum of losses + (alpha/2) ||x||^2 over machines that share the rows at random, with core-newton. Returns x, and what
/// it took: rounds, exchanges, wire_bytes per machine, value, and whether the estimated gap fell to `tolerance` of the first.
#[pyfunction]
pub fn fit_linear<'py>(
    py: Python<'py>,
    rows: PyReadonlyArray2<'py, f64>,
    targets: PyReadonlyArray1<'py, f64>,
    model: &str,
    alpha: f64,
    machines: usize,
    seed: u64,
    tolerance: f64,
    rounds: u64,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyDict>)> {
    let model = match model {
        "ridge" => Model::Ridge,
        "logistic" => Model::Logistic,
        _ => return Err(PyValueError::new_err(format!("model: '{model}' is neither 'ridge' nor 'logistic'"))),
    };
    let (count, dim) = (rows.shape()[0], rows.shape()[1]);
    let matrix = Matrix::dense(rows.as_slice().map_err(|_| not_contiguous("rows"))?.to_vec(), dim);
    let targets = contiguous("targets", &targets)?;
    expect_length("targets", targets.len(), count)?;
    let data = DataSet::new("numpy", matrix, targets.to_vec());
    let spec = ModelSpec { model, classes: 0, alpha, proximal: Proximal::NONE };
    let finish = py.detach(|| fit(data, spec, machines, seed, tolerance, rounds)).map_err(PyRuntimeError::new_err)?;
    let took = PyDict::new(py);
    took.set_item("rounds", finish.last.round)?;
    took.set_item("exchanges", finish.last.traffic.exchanges)?;
    took.set_item("wire_bytes", finish.last.traffic.wire_bytes())?;
    took.set_item("value", finish.last.value)?;
    took.set_item("reached", finish.ended.is_reached())?;
    Ok((PyArray1::from_vec(py, finish.iterate), took))
}

fn fit(
    data: DataSet,
    spec: ModelSpec,
    machines: usize,
    seed: u64,
    tolerance: f64,
    rounds: u64,
) -> Result<Finish, String> {
    let randomness = CommonRandomness::new(&Seed::reproducible(seed));
    let problem = Problem::rows(data, spec, machines, Split::Random, &randomness);
    let constants = Constants::none(problem.dim(), machines, Proximal::NONE);
    let request = Request {
        info: catalogue::find("core-newton")?,
        parameters: &Default::default(),
        settings: &MethodSettings::default(),
        start: problem.start(),
        constants: &constants,
        quadratic: spec.model == Model::Ridge,
        randomness: &randomness,
        shipment: None,
    };
    let rules = Rules { rounds, gap: Some(Gap::Relative(tolerance)), ..Rules::default() };
    let mut finishes = Group::new(Solo::new(machines)).run(|machine| -> Result<Finish, RunError> {
        let mut objective = problem.objective(machine.rank());
        let mut method = catalogue::build(&request, None).map_err(RunError::Unsuited)?;
        let mut silent = Silent;
        let mut part = RunPart::new(&mut *objective, &mut *method, &mut silent);
        run(&mut Metered::new(machine, None), &mut part, &rules, Begin::default())
    });
    finishes.swap_remove(0).map_err(|error| error.to_string())
}
