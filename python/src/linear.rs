//! Linear models on simulated machines, for `corewire.sklearn`.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use corewire_comm::{Collective, Group, Metered, Solo};
use corewire_data::shard::Split;
use corewire_data::{DataSet, Matrix};
use corewire_optim::RunError;
use corewire_optim::catalogue::{self, Constants, MethodSettings, Request};
use corewire_optim::problem::{Model, ModelSpec, Problem};
use corewire_optim::proximal::Proximal;
use corewire_optim::run::{Begin, Finish, Gap, Observer, Rules, RunPart, run};
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
    let job = move |stop: &AtomicBool| fit(data, spec, machines, seed, tolerance, rounds, stop);
    let finish = interruptible(py, job)?.map_err(PyRuntimeError::new_err)?;
    let took = PyDict::new(py);
    took.set_item("rounds", finish.last.round)?;
    took.set_item("exchanges", finish.last.traffic.exchanges)?;
    took.set_item("wire_bytes", finish.last.traffic.wire_bytes())?;
    took.set_item("value", finish.last.value)?;
    took.set_item("reached", finish.ended.is_reached())?;
    Ok((PyArray1::from_vec(py, finish.iterate), took))
}

/// How often Python's signals are looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// Works on a thread of its own, because Python runs the handlers of signals on the main one alone. Where a handler raises, that is the
/// answer at once, and the work hears of it by `stop`: it ends with its round.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let theirs = Arc::clone(&stop);
    let running = thread::spawn(move || {
        // Nobody listens any more where a handler has raised.
        let _ = sender.send(work(&theirs));
    });
    loop {
        let listening = &mut receiver;
        match py.detach(move || listening.recv_timeout(PATIENCE)) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| stop.store(true, Relaxed))?,
            Err(RecvTimeoutError::Disconnected) => match running.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("the work was sent before its thread ended"),
            },
        }
    }
}

/// Stops when it is told to.
struct Stoppable<'a>(&'a AtomicBool);

impl Observer for Stoppable<'_> {
    fn wants_stop(&mut self) -> bool {
        self.0.load(Relaxed)
    }
}

fn fit(
    data: DataSet,
    spec: ModelSpec,
    machines: usize,
    seed: u64,
    tolerance: f64,
    rounds: u64,
    stop: &AtomicBool,
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
        let mut stoppable = Stoppable(stop);
        let mut part = RunPart::new(&mut *objective, &mut *method, &mut stoppable);
        run(&mut Metered::new(machine, None), &mut part, &rules, Begin::default())
    });
    finishes.swap_remove(0).map_err(|error| error.to_string())
}
