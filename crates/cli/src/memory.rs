//! How much memory a job may take, and how much it would: estimated before anything is allocated.

use std::fs::Metadata;
use std::path::Path;

use anyhow::{Result, bail};
use corewire_comm::group::STACK_BYTES;
use corewire_data::{DataSet, ReadOptions};
use corewire_optim::method::newton::most_rows;

use crate::job::{LimitSpec, ProblemSpec};
use crate::units;

/// Bytes that a job may take.
pub fn allowed(limits: &LimitSpec) -> u64 {
    limits.memory.unwrap_or_else(share)
}

/// What a command without a job may take: half of the least of what the computer has, its container may use, and this process may
/// address. Where nothing of that is told, there is no bound.
pub fn share() -> u64 {
    let kilobytes = told("/proc/meminfo", "MemTotal:");
    let container = told("/sys/fs/cgroup/memory.max", "");
    let known = [kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024)), container, address_space()];
    known.into_iter().flatten().min().map_or(u64::MAX, |least| least / 2)
}

/// What `ulimit -v` allows, if it is limited.
fn address_space() -> Option<u64> {
    told("/proc/self/limits", "Max address space")
}

/// The number that the system tells behind a key.
fn told(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// How files are read within so much memory: text is at most an eighth of it, for its numbers, their shares and what is computed with
/// them take the rest.
pub fn read_options(options: &ReadOptions, allowed: u64) -> ReadOptions {
    ReadOptions { max_bytes: options.max_bytes.min(allowed / 8), max_memory: allowed, ..options.clone() }
}

/// What a problem is made of, for an estimate.
#[derive(Default)]
pub struct Size {
    /// Rows in this process.
    pub rows: usize,
    /// Bytes of their features.
    pub stored_bytes: usize,
    /// Columns, without the intercept's.
    pub columns: usize,
    /// Classes that have a score each; 0 where there is one score.
    pub classes: usize,
    /// Coordinates of the model.
    pub coordinates: usize,
    /// Machines in this process.
    pub machines: usize,
    /// Vectors that a method keeps beyond its usual ones.
    pub memory: usize,
    /// The detail of the factors of all machines that machine 0 keeps; 0 where it keeps none.
    pub detail: f64,
}

/// Every machine has at least its iterate, its gradient, an estimate, a shift, its share of the problem and a scratch.
const VECTORS: f64 = 6.0;
/// Machine 0, f* and the pooled problem have some more.
const MORE_VECTORS: f64 = 8.0;
/// The rows of curvature that core-newton asks of a machine at least.
const FACTORS: usize = 8;
/// The rows as they were read, shared out, and pooled for f.
const COPIES: f64 = 3.0;

impl Size {
    /// Of rows and a model with so many classes.
    pub fn of(set: &DataSet, spec: &ProblemSpec, classes: usize) -> Self {
        let columns = set.dim().saturating_add(usize::from(spec.intercept));
        Self {
            rows: set.rows(),
            stored_bytes: set.matrix.bytes(),
            columns: set.dim(),
            classes,
            coordinates: spec.model().coordinates(columns, classes),
            ..Self::default()
        }
    }

    /// Bytes that it needs at least.
    fn bytes(&self) -> f64 {
        let (n, d) = (self.machines as f64, self.coordinates as f64);
        let vectors = 8.0 * d * (n * (VECTORS + self.memory as f64) + MORE_VECTORS);
        // Rows of curvature are as long as the columns, however many classes there are.
        let columns = if self.columns > 0 { (self.columns + 1).min(self.coordinates) } else { self.coordinates };
        // With much detail a machine tells all of its Hessian. It keeps what it tells, and so does the hub.
        let rank = if self.rows > 0 { columns.min(self.rows / self.machines.max(1)) } else { columns };
        let factors = match self.detail {
            0.0 => 0,
            much if much > 10.0 => rank.min(most_rows(much, self.machines, columns)),
            _ => FACTORS,
        };
        let factors = 8.0 * 2.0 * factors as f64 * n * columns as f64;
        // Two scores per row and class, on the machines and pooled.
        let scores = 2.0 * 16.0 * self.rows as f64 * self.classes.max(1) as f64;
        COPIES * self.stored_bytes as f64 + scores + vectors + factors
    }
}

/// Refuses what needs more memory than is allowed.
pub fn check(size: &Size, allowed: u64) -> Result<()> {
    let Size { rows, columns, coordinates, machines, classes, .. } = size;
    let classes = if *classes > 0 { format!(", {classes} classes") } else { String::new() };
    let what = format!("{rows} rows of {columns} columns{classes}, d = {coordinates} on {machines} machines");
    check_bytes(&what, size.bytes(), allowed)?;
    // Whoever takes all of it for stacks has none left to say so.
    let stacks = machines.saturating_mul(STACK_BYTES) as u64;
    match address_space().filter(|most| stacks > most / 2) {
        Some(most) => bail!(
            "the stacks of {machines} machines need {} of address space, and `ulimit -v` allows {} in all",
            units::bytes(stacks as f64),
            units::bytes(most as f64)
        ),
        None => Ok(()),
    }
}

/// Refuses so many bytes for something, where they are more than is allowed.
pub fn check_bytes(what: &str, bytes: f64, allowed: u64) -> Result<()> {
    if bytes > allowed as f64 {
        let (needs, has) = (units::bytes(bytes), units::bytes(allowed as f64));
        bail!("{what} need at least {needs} of memory, and {has} are allowed; raise `limits.memory` if that is right");
    }
    Ok(())
}

/// Refuses what is no plain file, such as a pipe, which would be waited for, or is longer than so many bytes.
pub fn plain_file(path: &Path, most: u64) -> Result<Metadata> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        bail!("{} is no plain file", path.display());
    }
    if about.len() > most {
        bail!("{} has {} bytes, more than the {most} that such a file may have", path.display(), about.len());
    }
    Ok(about)
}
