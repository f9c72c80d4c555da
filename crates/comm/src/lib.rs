//! What a group of machines can do together, and what it cost. It knows bytes and numbers; gradients and sketches are not its business.
//!
//! # Layout
//! - [`collective`]: the one primitive: messages, and a value that says what is to be made of them.
//! - [`group`]: the machines of a process, over a [`Transport`] between processes; alone in one process by default.
//! - [`neighbours`]: messages between neighbours of a graph.
//! - [`tree`]: a hub without a centre, over a spanning tree of neighbours.
//! - [`handshake`]: what the machines must agree on before they start.
//! - [`frame`]: the envelope of a message: length, control words, checksum.
//! - [`numbers`]: numbers as bytes, and their sums.
//! - [`meter`]: what passed, by what it was for, and the modelled clock of a link.
//! - [`conformance`]: the laws that any engine must keep.
//!
//! ```
//! use corewire_comm::{Collective, Reduction, group};
//! let sums = group::run(4, |machine| {
//!     let mine = machine.rank() as f64;
//!     let reply = machine.exchange(&mine.to_le_bytes(), Reduction::SumF64)?;
//!     Ok::<_, corewire_comm::CommError>(reply.numbers::<f64>().collect::<Vec<_>>())
//! });
//! assert!(sums.into_iter().all(|sum| sum.unwrap() == [6.0]));
//! ```

pub mod collective;
pub mod conformance;
pub mod frame;
pub mod group;
pub mod handshake;
pub mod meter;
pub mod neighbours;
pub mod numbers;
pub mod tree;

pub use collective::{Collective, Combine, CommError, Cost, Reduction, Reply, Roster};
pub use group::{Deadline, Group, Integers, Machine, Solo, Transport};
pub use meter::{Link, Metered, Phase, Traffic};
pub use neighbours::{Neighbours, Swapped};
pub use tree::Tree;
