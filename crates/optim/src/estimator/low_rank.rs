//! PowerSGD: the mean as a matrix of low rank, by one step of a power iteration in two dependent sums.

use corewire_algebra::vector;
use corewire_comm::numbers::{push_floats, read_floats};
use corewire_comm::{CommError, Reply};
use corewire_compress::{Address, PowerSgd, Shape};
use corewire_sketch::CommonRandomness;

use super::{Estimate, How, MeanEstimator, Next, Place, check_finite};
use crate::error::RunError;
use crate::layout::{Block, Layout};
use crate::state::{Scope, Stateful, Visitor};

/// M_i = g_i + e_i; P = mean M_i Q, orthonormalised; Q = mean M_i' P; the estimate is P Q'; e_i = M_i - P P' M_i. Q is kept for the next
/// round.
///
/// Everything is linear in the mean of the M_i, so however different the machines are the estimate is that of one machine with their mean.
/// The paper's code takes M_i - P Q' with the common Q as memory: the mean is the same, but single memories grow without bound.
///
/// Every matrix of the layout is a matrix here; a lone vector is shaped nearly square; vectors beside matrices travel as they are, with P.
pub struct LowRank {
    tensors: Vec<Tensor>,
    /// The factors Q of all matrices, one after the other.
    q: Vec<f64>,
    error: Vec<f64>,
    double: bool,
    /// P of all tensors, then the extra numbers; and this machine's own Q.
    p: Vec<f64>,
    own_q: Vec<f64>,
}

/// One block: its matrix where it has one, and where its parts of P and Q begin.
struct Tensor {
    block: Block,
    power: Option<PowerSgd>,
    p_at: usize,
    q_at: usize,
}

impl Tensor {
    fn p_len(&self) -> usize {
        self.power.as_ref().map_or(self.block.len(), PowerSgd::p_len)
    }

    fn p_range(&self) -> std::ops::Range<usize> {
        self.p_at..self.p_at + self.p_len()
    }

    fn q_range(&self) -> std::ops::Range<usize> {
        self.q_at..self.q_at + self.power.as_ref().map_or(0, PowerSgd::q_len)
    }
}

impl LowRank {
    /// Of this rank; numbers have 64 bits if `double`.
    pub fn new(layout: &Layout, rank: usize, double: bool, randomness: &CommonRandomness) -> Self {
        let (mut tensors, mut q, mut p_len) = (Vec::new(), Vec::new(), 0);
        for (number, block) in layout.blocks().iter().enumerate() {
            let shape = match block.shape[..] {
                [_] if layout.blocks().len() == 1 => Some(Shape::square(block.len())),
                [rows, ..] if block.shape.len() > 1 && rows > 0 => Some(Shape::new(rows, block.len() / rows)),
                _ => None,
            };
            // A factor that is no shorter than its matrix would compress nothing.
            let power = shape.map(|shape| PowerSgd::new(block.len(), shape, rank));
            let power = power.filter(|power| power.p_len() + power.q_len() < block.len() || layout.blocks().len() == 1);
            let tensor = Tensor { block: block.clone(), power, p_at: p_len, q_at: q.len() };
            if let Some(power) = &tensor.power {
                q.extend(power.start(Address::new(0, number as u32), randomness));
            }
            p_len += tensor.p_len();
            tensors.push(tensor);
        }
        let own_q = vec![0.0; q.len()];
        Self { tensors, q, error: vec![0.0; layout.dim()], double, p: vec![0.0; p_len], own_q }
    }

    fn how(&self) -> How {
        if self.double { How::SumF64 } else { How::SumF32 }
    }
}

impl Stateful for LowRank {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "q", &mut self.q);
        visitor.vector(Scope::Local, "error", &mut self.error);
    }
}

/// Overwrites the numbers with the means over machines of a sum that came back.
fn read_means(reply: &Reply, double: bool, numbers: &mut [f64]) -> Result<(), CommError> {
    if !read_floats(&reply.message, double, numbers) {
        let what = format!("its reply has {} bytes for {} numbers", reply.message.len(), numbers.len());
        return Err(CommError::refused(0, what));
    }
    let n = reply.divisor();
    numbers.iter_mut().for_each(|number| *number /= n);
    Ok(())
}

impl MeanEstimator for LowRank {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        let numbers = if at.stage == 0 {
            check_finite(at, "a gradient", local)?;
            vector::add_scaled(1.0, local, &mut self.error);
            for tensor in &self.tensors {
                let (matrix, p) = (&self.error[tensor.block.range()], &mut self.p[tensor.p_range()]);
                match &tensor.power {
                    Some(power) => power.project_left(matrix, &self.q[tensor.q_range()], p),
                    None => p.copy_from_slice(matrix),
                }
            }
            &self.p
        } else {
            for tensor in &self.tensors {
                if let Some(power) = &tensor.power {
                    let matrix = &self.error[tensor.block.range()];
                    power.project_right(matrix, &self.p[tensor.p_range()], &mut self.own_q[tensor.q_range()]);
                }
            }
            &self.own_q
        };
        push_floats(numbers, self.double, message);
        // The extra numbers travel with the first sum, as narrow as it.
        if at.stage == 0 {
            push_floats(extra, self.double, message);
        }
        Ok(self.how())
    }

    fn combine(&mut self, _: Place, _: &[&[u8]], _: usize) -> Result<Vec<u8>, CommError> {
        unreachable!("it only sums")
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        if at.stage == 0 {
            let p_len = self.p.len();
            self.p.extend_from_slice(extra);
            read_means(reply, self.double, &mut self.p)?;
            extra.copy_from_slice(&self.p[p_len..]);
            self.p.truncate(p_len);
            for tensor in &self.tensors {
                if let Some(power) = &tensor.power {
                    power.orthogonalise(&mut self.p[tensor.p_range()]);
                }
            }
            return Ok(Next::Again);
        }
        read_means(reply, self.double, &mut self.q)?;
        for tensor in &self.tensors {
            let (range, p) = (tensor.block.range(), &self.p[tensor.p_range()]);
            let (out, error) = (&mut mean[range.clone()], &mut self.error[range]);
            match &tensor.power {
                Some(power) => {
                    power.decode(p, &self.own_q[tensor.q_range()], out);
                    vector::add_scaled(-1.0, out, error);
                    power.decode(p, &self.q[tensor.q_range()], out);
                }
                None => {
                    // What was sent, as it was rounded, is gone from the memory.
                    error.iter_mut().for_each(|e| *e -= if self.double { *e } else { f64::from(*e as f32) });
                    out.copy_from_slice(p);
                }
            }
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}
