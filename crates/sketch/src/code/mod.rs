//! Codes for the m scalars of a sketch: dithered integers behind an adaptive range coder, and 16-bit floats with stochastic rounding.
//! Who sends them to whom is not its business.

mod bf16;
mod bulk;
mod integer;
mod range;

pub use bf16::{bf16_to_f32, round_to_bf16};
pub use bulk::{decode_many, encode_many};
pub use integer::{CodeError, Dither, IntegerCoder, SpreadDecoder, SpreadEncoder, dequantise, quantise};
