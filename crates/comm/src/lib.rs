//! What a group of machines can do together, and what it cost. It knows bytes and numbers; gradients and sketches are not its business.
//!
//! # Layout
//! - [`collective`]: the one primitive, an exchange through a hub, and the sums and gathers that follow from it.
//! - [`group`]: machines as threads of a process, over a [`Transport`] between processes; alone in one process by default.
//! - [`neighbours`]: messages between neighbours of a graph, and their meter.
//! - [`tree`]: a hub without a centre, over a spanning tree of neighbours.
//! - [`handshake`]: what the machines must agree on before they start.
//! - [`frame`]: the envelope of a message: length, sequence number, checksum.
//! - [`meter`]: bytes up and down as they pass, and the modelled clock of a link.
//! - [`conformance`]: the laws that any engine must keep.
//!
//! ```
//! use corewire_comm::{Collective, Numbers, group};
//! let sums = group::run(4, |machine| {
//!     let mut numbers = [machine.rank() as f64, 1.0];
//!     machine.all_reduce_sum(Numbers::F64(&mut numbers))?;
//!     Ok::<_, corewire_comm::CommError>(numbers)
//! });
//! assert!(sums.into_iter().all(|sum| sum.unwrap() == [6.0, 4.0]));
//! ```

pub mod collective;
pub mod conformance;
pub mod frame;
pub mod group;
pub mod handshake;
pub mod meter;
pub mod neighbours;
pub mod tree;

pub use collective::{Carried, Collective, Combine, CommError, Numbers, Reply};
pub use group::{Group, Machine, Solo, Transport};
pub use meter::{Link, Metered, Traffic};
pub use neighbours::{MeteredNeighbours, Neighbours};
pub use tree::Tree;
