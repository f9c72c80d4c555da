//! Machines over the processes of an MPI job. It knows MPI and [`corewire_comm`], and nothing of what the messages mean.
//!
//! MPI authenticates and encrypts nothing: it belongs on a network that is trusted.
//!
//! # Layout
//! - [`share`]: which process holds how many machines.
//! - `call`: the calls of MPI that are needed, each with its return code checked.
//! - `job`: this process's part in the job, from its start to its end, be it clean or not.
//! - `processes`: the transport.
//!
//! The last three need the feature `system`, which needs an MPI library, its `mpicc` and libclang; nothing else in the workspace does.
//!
#![cfg_attr(feature = "system", doc = "```no_run")]
#![cfg_attr(not(feature = "system"), doc = "```text")]
//! use corewire_comm::{Collective, Group, Reduction};
//! use corewire_comm_mpi::Mpi;
//!
//! let mut mpi = Mpi::initialise().unwrap();
//! let mut run = || {
//!     // Seven machines, over as many processes as the job has.
//!     Group::new(mpi.transport(7)?).run(|machine| machine.exchange(&[1; 4], Reduction::SumI32).map(drop)).into_iter().collect()
//! };
//! let outcome: Result<Vec<()>, corewire_comm::CommError> = run();
//! match outcome {
//!     Ok(_) => mpi.finish(),
//!     Err(error) => mpi.fail(1, &error.to_string(), Some(&error)),
//! }
//! ```

pub mod share;

#[cfg(feature = "system")]
mod call;
#[cfg(feature = "system")]
mod job;
#[cfg(feature = "system")]
mod processes;

#[cfg(feature = "system")]
pub use job::Mpi;
#[cfg(feature = "system")]
pub use processes::Processes;
