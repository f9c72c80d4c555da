//! What a round takes over MPI beside what it cannot do without: MPI's own sum of the same integers, and the arithmetic. The three take
//! turns in one job, and the median of many turns is printed.
//!
//! ```sh
//! cargo build --release -p corewire-comm-mpi --features system --example round
//! mpirun -n 4 target/release/examples/round [DIM [BUDGET]]
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_comm::{Collective, CommError, Cost, Group, Reduction, Reply, Roster};
use corewire_comm_mpi::Mpi;
use corewire_optim::estimator::{Form, Quantised, Quantiser, estimate};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Seed};
use mpi::collective::{CommunicatorCollectives, SystemOperation};

const TURNS: usize = 4000;

/// Nobody else: every message comes back as if all others had sent zeros.
struct Echo {
    rank: usize,
    size: usize,
}

impl Collective for Echo {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn reduce(&mut self, message: &[u8], _: &mut [i32], _: Reduction<'_>) -> Result<Reply, CommError> {
        Ok(Reply { message: Arc::from(message), roster: Roster::All(self.size), cost: Cost::default() })
    }
}

fn main() {
    let number = |at, default| std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"));
    let (dim, budget): (usize, usize) = (number(1, 784), number(2, 74));
    let mut mpi = Mpi::initialise().expect("MPI starts");
    let (processes, leads) = (mpi.processes(), mpi.process() == 0);
    let transport = mpi.transport(processes).expect("a machine for each process");
    let results = Group::new(transport).run(|machine| measure(machine, dim, budget));
    for result in results {
        match result {
            Ok([bare, arithmetic, round]) if leads => println!(
                "{processes} processes, d = {dim}, m = {budget}, wire q-sum: MPI's own sum {bare:?}, arithmetic {arithmetic:?}, \
                 round {round:?}: {:.2} times both",
                round.as_secs_f64() / (bare + arithmetic).as_secs_f64()
            ),
            Ok(_) => {}
            Err(error) => mpi.abort(3, &error.to_string()),
        }
    }
    mpi.finish();
}

/// Medians of MPI's sum, of the arithmetic and of the round.
fn measure(
    machine: &mut impl Collective,
    dim: usize,
    budget: usize,
) -> Result<[Duration; 3], corewire_optim::RunError> {
    let (rank, size) = (machine.rank(), machine.size());
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    let sketch = AnySketch::new(Family::Hadamard, &randomness, dim, budget).expect("a budget that fits");
    let quantiser = Quantiser { form: Form::Sum, ..Quantiser::default() };
    let mut estimators: [Quantised; 2] =
        std::array::from_fn(|_| Quantised::new(sketch.clone(), &randomness, quantiser));
    let local: Vec<f64> = (0..dim).map(|c| ((c * 7919 + rank) % 1009) as f64 / 1009.0 - 0.5).collect();
    let (mut message, mut mean, mut echo) = (Vec::new(), vec![0.0; dim], Echo { rank, size });
    let world = mpi::topology::SimpleCommunicator::world();
    let (mine, mut sums) = (vec![1i32; budget], vec![0i32; budget]);
    let mut times = [const { Vec::new() }; 3];
    for round in 0..TURNS as u64 {
        let [alone, together] = &mut estimators;
        let mut turn = |k: usize, work: &mut dyn FnMut() -> Result<(), corewire_optim::RunError>| {
            let begun = Instant::now();
            work()?;
            times[k].push(begun.elapsed());
            // All begin the next together.
            mpi::topology::SimpleCommunicator::world().barrier();
            Ok::<_, corewire_optim::RunError>(())
        };
        turn(0, &mut || {
            world.all_reduce_into(&mine[..], &mut sums[..], SystemOperation::sum());
            Ok(())
        })?;
        turn(1, &mut || estimate(alone, round, &local, &mut [], &mut echo, &mut message, &mut mean).map(drop))?;
        turn(2, &mut || estimate(together, round, &local, &mut [], machine, &mut message, &mut mean).map(drop))?;
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        times[TURNS / 2]
    }))
}
