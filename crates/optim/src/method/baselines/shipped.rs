//! Sending the rows themselves: no compression of gradients, no rounds, and no rows that stay where they are. The yardstick for problems
//! with few rows; how rows are packed is not known here.

use std::sync::Arc;

use corewire_comm::{CommError, Reduction, numbers};

use super::local_smoothness;
use super::second_order::admit;
use crate::error::RunError;
use crate::method::{Context, Method, Outcome};
use crate::objective::Objective;
use crate::optimum::{minimise, minimise_proximal};
use crate::state::{Scope, Stateful, Visitor};

/// The rows of machines as they can be sent.
pub trait Shipment: Send + Sync {
    /// Machine `rank`'s rows.
    fn pack(&self, rank: usize) -> Result<Vec<u8>, String>;

    /// f, from what all machines packed, in rank order.
    fn unpack(&self, packed: &[&[u8]]) -> Result<Box<dyn Objective>, String>;
}

/// Every machine sends its rows to machine 0, which finds the optimum and sends it to all, as 32-bit floats. One exchange, and there is no
/// second round.
pub struct ShipRows {
    start: Vec<f64>,
    x: Vec<f64>,
    /// Rounds that were run.
    rounds: f64,
    /// `None` where there are no rows.
    shipment: Option<Arc<dyn Shipment>>,
}

impl ShipRows {
    /// From a start, which the optimum does not depend on.
    pub fn new(start: Vec<f64>, shipment: Option<Arc<dyn Shipment>>) -> Self {
        Self { x: start.clone(), start, rounds: 0.0, shipment }
    }
}

impl Stateful for ShipRows {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.number(Scope::Common, "rounds", &mut self.rounds);
    }
}

impl Method for ShipRows {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        if context.objective.is_convex() && context.objective.strong_convexity() == 0.0 {
            return Err(RunError::Unsuited("ship-rows needs one optimum: set `problem.alpha` above 0".to_owned()));
        }
        admit(context.objective, "ship-rows")
    }

    fn round(&mut self, _: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let Self { start, x, rounds, shipment } = self;
        let rank = context.comm.rank();
        let rows = match shipment {
            // Who only looks on, as in a replay, has no rows.
            Some(shipment) if rank < context.comm.size() => {
                shipment.pack(rank).map_err(|error| CommError::refused(rank, error))?
            }
            _ => Vec::new(),
        };
        let mut solve = |packed: &[&[u8]]| {
            let unpack = |shipment: &Arc<dyn Shipment>| shipment.unpack(packed);
            let pooled = shipment.as_ref().map_or_else(|| Err("there are no rows here to send".to_owned()), unpack);
            let mut pooled = pooled.map_err(|error| CommError::refused(0, error))?;
            let optimum = match pooled.proximal().is_none() {
                true => minimise(&mut *pooled, start).0,
                false => {
                    let smoothness = local_smoothness(&mut *pooled, start);
                    minimise_proximal(&mut *pooled, start, 1.05 * smoothness, &mut |_| true).0
                }
            };
            let mut reply = Vec::with_capacity(4 * optimum.len());
            numbers::push_floats(&optimum, false, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&rows, Reduction::Hub(&mut solve))?;
        if !numbers::read_floats(&reply.message, false, x) {
            return Err(CommError::refused(0, "its optimum has another number of coordinates").into());
        }
        // 32 bits may be beyond a bound by the last of them.
        let proximal = context.objective.proximal();
        x.iter_mut().for_each(|x| *x = proximal.clamp(*x));
        *rounds += 1.0;
        Ok(Outcome::default())
    }

    fn is_done(&self) -> bool {
        self.rounds > 0.0
    }
}
