//! One of every codec, with the parameters of its paper: what tables and law tests run over.

use corewire_sketch::CommonRandomness;

use crate::{
    Aim, Alq, Atomo, Codec, Dense, Drive, Dropping, Eden, ErrorFeedback, Indices, Magnitude, Narrow, Natural, Norm,
    OneBit, Qsgd, RandK, Scaled, Shape, Sign, SketchMl, TernGrad, TopK,
};

/// A codec and how it was parameterised, in words.
pub struct Entry {
    /// The parameters, as `key = value`; empty where there are none.
    pub parameters: String,
    /// The codec.
    pub codec: Box<dyn Codec>,
}

/// One or more of every codec for vectors of this dimension. Sparse ones keep 2 % of the coordinates, rounded up.
pub fn catalogue(dim: usize, randomness: &CommonRandomness) -> Vec<Entry> {
    let keep = dim.div_ceil(50).max(1);
    let root = ((dim as f64).sqrt() as u32).max(1);
    let shape = Shape::square(dim);
    let k = format!("k = {keep}");
    let entry = |parameters: &str, codec: Box<dyn Codec>| Entry { parameters: parameters.to_owned(), codec };
    vec![
        entry("", Box::new(Dense::single(dim))),
        entry("", Box::new(Dense::double(dim))),
        entry("", Box::new(Narrow::bf16(dim))),
        entry("", Box::new(Narrow::int8(dim))),
        entry(&k, Box::new(TopK::new(dim, keep))),
        entry(&k, Box::new(RandK::new(dim, keep, Indices::Private, randomness))),
        entry(&k, Box::new(RandK::new(dim, keep, Indices::Common, randomness))),
        entry(&format!("{k}, scaled"), Box::new(Scaled::new(RandK::new(dim, keep, Indices::Private, randomness)))),
        entry("drop = 0.98", Box::new(Dropping::new(dim, 0.98, randomness))),
        entry("drop = 0.98, sample = 64", Box::new(Dropping::new(dim, 0.98, randomness).with_sample(64))),
        entry("levels = 1, bucket = d", Box::new(Qsgd::new(dim, 1, dim.max(1), Norm::Euclidean, randomness))),
        entry("levels = sqrt(d), bucket = d", Box::new(Qsgd::new(dim, root, dim.max(1), Norm::Euclidean, randomness))),
        entry("levels = 7, bucket = 512", Box::new(Qsgd::new(dim, 7, 512, Norm::Largest, randomness))),
        entry(
            "levels = 7, bucket = 512, feedback, gain = 0.2, decay = 0.9",
            Box::new(ErrorFeedback::new(Qsgd::new(dim, 7, 512, Norm::Largest, randomness)).with_factors(0.2, 0.9)),
        ),
        entry("clip = 2.5", Box::new(TernGrad::new(dim, dim.max(1), Some(2.5), randomness))),
        entry("", Box::new(TernGrad::new(dim, dim.max(1), None, randomness))),
        entry("", Box::new(Sign::new(dim, Magnitude::One))),
        entry("", Box::new(Sign::new(dim, Magnitude::Mean))),
        entry("feedback", Box::new(ErrorFeedback::new(Sign::new(dim, Magnitude::Mean)))),
        entry("column = 512", Box::new(OneBit::new(dim, 512))),
        entry("", Box::new(Natural::new(dim, randomness))),
        entry("unbiased", Box::new(Drive::new(dim, Aim::Unbiased, randomness))),
        entry("least error", Box::new(Drive::new(dim, Aim::LeastError, randomness))),
        entry("bits = 0.25", Box::new(Eden::new(dim, 0.25, Aim::Unbiased, randomness))),
        entry("bits = 0.25, least error", Box::new(Eden::new(dim, 0.25, Aim::LeastError, randomness))),
        entry("bits = 2", Box::new(Eden::new(dim, 2.0, Aim::Unbiased, randomness))),
        entry("bits = 2.5, least error", Box::new(Eden::new(dim, 2.5, Aim::LeastError, randomness))),
        entry("bits = 4", Box::new(Eden::new(dim, 4.0, Aim::Unbiased, randomness))),
        entry("atoms = 2", Box::new(Atomo::new(dim, shape, 2, randomness))),
        entry("buckets = 256", Box::new(SketchMl::new(dim, 256))),
        entry("bits = 3, bucket = 512", Box::new(Alq::new(dim, 3, 512, randomness))),
    ]
}
