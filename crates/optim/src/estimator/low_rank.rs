//! PowerSGD: the mean as a matrix of low rank, by one step of a power iteration in two dependent sums.

use corewire_comm::{Collective, Numbers};
use corewire_compress::{Address, PowerSgd, Shape};
use corewire_sketch::CommonRandomness;

use super::{Estimate, MeanEstimator, check_finite};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};
use crate::vector;

/// M_i = g_i + e_i; P = mean M_i Q, orthonormalised; Q = mean M_i' P; the estimate is P Q'; e_i = M_i - P P' M_i. Q is kept for the next round.
///
/// Everything is linear in the mean of the M_i, so however different the machines are the estimate is that of one machine with their mean.
/// The paper's code takes M_i - P Q' with the common Q as memory: the mean is the same, but single memories grow without bound.
pub struct LowRank {
    power: PowerSgd,
    q: Vec<f64>,
    error: Vec<f64>,
    double: bool,
}

impl LowRank {
    /// Of this rank, for the matrix nearest to a square; numbers have 64 bits if `double`.
    pub fn new(dim: usize, rank: usize, double: bool, randomness: &CommonRandomness) -> Self {
        let power = PowerSgd::new(dim, Shape::square(dim), rank);
        let q = power.start(Address::default(), randomness);
        Self { power, q, error: vec![0.0; dim], double }
    }
}

impl Stateful for LowRank {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "q", &mut self.q);
        visitor.vector(Scope::Local, "error", &mut self.error);
    }
}

/// The means over all machines, sent as 32-bit floats or 64-bit ones.
fn means(numbers: &mut [f64], double: bool, comm: &mut dyn Collective) -> Result<(), RunError> {
    if double {
        comm.all_reduce_sum(Numbers::F64(numbers))?;
    } else {
        let mut narrow: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        comm.all_reduce_sum(Numbers::F32(&mut narrow))?;
        numbers.iter_mut().zip(narrow).for_each(|(number, sum)| *number = f64::from(sum));
    }
    let n = comm.size() as f64;
    numbers.iter_mut().for_each(|number| *number /= n);
    Ok(())
}

impl MeanEstimator for LowRank {
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        check_finite(comm.rank(), round, "a gradient", local)?;
        vector::add_scaled(1.0, local, &mut self.error);
        // The extra numbers travel with the first sum, as narrow as it.
        let p_len = self.power.p_len();
        let mut p = vec![0.0; p_len];
        self.power.project_left(&self.error, &self.q, &mut p);
        p.extend_from_slice(extra);
        means(&mut p, self.double, comm)?;
        extra.copy_from_slice(&p[p_len..]);
        p.truncate(p_len);
        self.power.orthogonalise(&mut p);
        let mut own = vec![0.0; self.power.q_len()];
        self.power.project_right(&self.error, &p, &mut own);
        self.q.copy_from_slice(&own);
        means(&mut self.q, self.double, comm)?;
        self.power.decode(&p, &own, mean);
        vector::add_scaled(-1.0, mean, &mut self.error);
        self.power.decode(&p, &self.q, mean);
        Ok(Estimate { energy: vector::norm_squared(mean) })
    }
}
