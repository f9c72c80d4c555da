//! A round allocates nothing once the threads have been through one.

#![allow(unsafe_code)] // A counting allocator cannot be written without.

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use corewire_sketch::{AnySketch, CommonRandomness, Family, Real, Seed, Sketch};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the ones that the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the ones that the system asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn rounds<T: Real>(sketch: &AnySketch) {
    let vector = vec![T::ONE; sketch.dim()];
    let (mut scalars, mut rebuilt) = (vec![T::ZERO; 2 * sketch.len()], vec![T::ZERO; sketch.dim()]);
    let mut round = |number| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        sketch.project_many(number, &[&vector, &vector], &mut scalars);
        sketch.project(number, &vector, &mut scalars[..sketch.len()]);
        sketch.reconstruct(number, &scalars[..sketch.len()], &mut rebuilt);
        sketch.reconstruct_add(number, &scalars[..sketch.len()], T::ONE, &mut rebuilt);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    round(0);
    let later: usize = (1..4).map(&mut round).sum();
    assert_eq!(later, 0, "{} of {} coordinates allocates in a round", sketch.family(), sketch.dim());
}

#[test]
fn no_round_after_the_first_allocates() {
    // One thread, so that which thread goes first does not matter. There is one test in this file, so that nobody else allocates.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    pool.install(|| {
        for family in Family::ALL {
            for dim in [40, 5000, 70_000] {
                let sketch = AnySketch::new(family, &randomness, dim, 20).unwrap();
                rounds::<f32>(&sketch);
                rounds::<f64>(&sketch);
                let (block, budgets) = (NonZeroUsize::new(1000).unwrap(), vec![3; dim.div_ceil(1000)]);
                rounds::<f32>(&AnySketch::blocks(family, &randomness, dim, block, &budgets).unwrap());
            }
        }
    });
}
