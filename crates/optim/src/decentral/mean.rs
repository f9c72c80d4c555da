//! CORE's estimate where machines have neighbours and no hub: every machine gossips its m scalars and rebuilds from its own approximate
//! mean.

use corewire_comm::Collective;
use corewire_sketch::{AnySketch, Sketch};

use super::Averaging;
use crate::error::RunError;
use crate::estimator::{Estimate, Place, check_finite};
use crate::state::{Stateful, Visitor};

/// The mean through m common directions and gossip: m numbers to each neighbour an iteration.
///
/// It keeps [`crate::estimator::MeanEstimator`]'s law but for the bits: machines hold nearly the same mean, to the tolerance of the
/// averaging.
pub struct GossipMean {
    averaging: Averaging,
    sketch: AnySketch,
}

impl GossipMean {
    /// Through this sketch, which all machines must share.
    pub fn new(averaging: Averaging, sketch: AnySketch) -> Self {
        Self { averaging, sketch }
    }

    /// The budget m.
    pub fn budget(&self) -> usize {
        self.sketch.len()
    }

    /// Overwrites `mean`; 2m numbers to each neighbour an iteration. `pull` is overwritten with what to add to `point`, this machine's own,
    /// so that it comes nearer to the others' mean: m/(m+d+1) of the difference that the sketch rebuilds, the factor that shrinks it most
    /// in the mean square for Gaussian directions.
    pub fn estimate_and_pull(
        &mut self,
        round: u64,
        local: &[f64],
        point: &[f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
        pull: &mut [f64],
    ) -> Result<Estimate, RunError> {
        let m = self.sketch.len();
        let mut block = vec![0.0; 2 * m];
        self.sketch.project_many(round, &[local, point], &mut block);
        check_finite(place(round, comm), "a gradient or an iterate", &block)?;
        let own = block[m..].to_vec();
        self.averaging.average(round, comm, &mut block, &[m, m])?;
        let (scalars, others) = block.split_at_mut(m);
        self.sketch.reconstruct(round, scalars, mean);
        others.iter_mut().zip(own).for_each(|(others, own)| *others -= own);
        let share = m as f64 / (m + local.len() + 1) as f64;
        pull.fill(0.0);
        self.sketch.reconstruct_add(round, others, share, pull);
        Ok(Estimate { energy: self.sketch.energy(scalars) })
    }
}

impl Stateful for GossipMean {
    fn visit(&mut self, _: &mut dyn Visitor) {}
}

impl GossipMean {
    /// Overwrites `mean`; m numbers to each neighbour an iteration.
    pub fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        let m = self.sketch.len();
        let mut block = vec![0.0; m];
        self.sketch.project(round, local, &mut block);
        check_finite(place(round, comm), "a gradient", &block)?;
        self.averaging.average(round, comm, &mut block, &[m])?;
        self.sketch.reconstruct(round, &block, mean);
        Ok(Estimate { energy: self.sketch.energy(&block) })
    }
}

fn place(round: u64, comm: &dyn Collective) -> Place {
    Place { round, rank: comm.rank(), machines: comm.size(), stage: 0 }
}
