//! The arithmetic: one algorithm, written once over sixteen virtual lanes, and one thin instance of those lanes for each instruction set.
//!
//! Every instance gives the same bits. What is random, and what an address means, is decided by the families, not here.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod chacha;
mod dense;
mod fwht;
mod gauss;
mod portable;
mod signs;
mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

pub(crate) use chacha::{Keystream, Stream};
pub(crate) use dense::{Entries, Fill, Finish, Peak, Project, Reconstruct, Room, Squares, TILE};
pub(crate) use fwht::{
    Columns, FinishRows, Flip, Inlet, Leave, Order, Outlet, STRIP, Sample, SignsAt, Transform, Write,
};
pub(crate) use gauss::{Gauss16, Gauss32};
pub(crate) use signs::Signs;
pub(crate) use simd::{Element, Simd};

/// An implementation of the arithmetic that this CPU can run. All of them give the same bits; only the speed differs.
///
/// A value exists only for an instruction set that was found on this CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel(Set);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Set {
    Reference,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// Plain Rust, which is what "correct" means; slower where the compiler may not assume a fused multiply-add.
    pub const REFERENCE: Kernel = Kernel(Set::Reference);

    /// The fastest kernel that this CPU has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_avx512() {
                return Self(Set::Avx512);
            }
            if x86::has_avx2() {
                return Self(Set::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        return Self(Set::Neon);
        #[cfg(not(target_arch = "aarch64"))]
        Self::REFERENCE
    }

    /// Every kernel that this CPU has, the slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self::REFERENCE];
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_avx2() {
                all.push(Self(Set::Avx2));
            }
            if x86::has_avx512() {
                all.push(Self(Set::Avx512));
            }
        }
        #[cfg(target_arch = "aarch64")]
        all.push(Self(Set::Neon));
        all
    }

    /// Its name: `reference`, `avx2`, `avx512` or `neon`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Reference => "reference",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "neon",
        }
    }

    /// Runs an operation with this kernel's lanes.
    pub(crate) fn run<O: Operation>(self, operation: O) -> O::Output {
        match self.0 {
            Set::Reference => operation.run(portable::Portable),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => x86::run_avx2(operation),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => x86::run_avx512(operation),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => aarch64::run_neon(operation),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

/// Something to compute, whatever the lanes. `run` must be `#[inline(always)]`, and so must all that it calls once a coordinate: code that
/// stays out of line is compiled without the instruction set.
pub(crate) trait Operation {
    type Output;
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}
