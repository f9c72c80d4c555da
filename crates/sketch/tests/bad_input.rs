//! What a constructor refuses, in which words, and what happens to numbers that are none.

use std::num::NonZeroUsize;
use std::panic::catch_unwind;

use corewire_sketch::{AnySketch, Blocks, CommonRandomness, Family, Seed, Sketch, SketchError};

fn randomness() -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(4))
}

fn four() -> NonZeroUsize {
    NonZeroUsize::new(4).unwrap()
}

#[test]
fn nothing_is_not_sketched() {
    for family in Family::ALL {
        let error = |dim, budget| AnySketch::new(family, &randomness(), dim, budget).unwrap_err();
        assert_eq!(error(0, 1), SketchError::ZeroDimension);
        assert_eq!(error(1, 0), SketchError::ZeroBudget);
        assert!(matches!(error(usize::MAX, 1), SketchError::DimensionTooLarge { .. }));
        assert!(matches!(error(1, usize::MAX), SketchError::BudgetTooLarge { .. }));
        let blocks = |dim, budgets: &[usize]| Blocks::new(family, &randomness(), dim, four(), budgets).unwrap_err();
        assert_eq!(blocks(0, &[]), SketchError::ZeroDimension);
        assert_eq!(blocks(9, &[1, 1]).to_string(), "2 budgets for 3 blocks (9 coordinates in blocks of 4)");
        assert_eq!(blocks(9, &[1, 0, 1]).to_string(), "block 1: the budget is 0: a sketch needs at least one scalar");
    }
}

#[test]
fn the_budget_of_hadamard_ends_at_the_padded_dimension() {
    assert!(AnySketch::new(Family::Hadamard, &randomness(), 40, 64).is_ok());
    let error = AnySketch::new(Family::Hadamard, &randomness(), 40, 65).unwrap_err().to_string();
    assert_eq!(error, "a budget of 65 is above 64, the most that `hadamard` allows at dimension 40");
    let uniform = Blocks::uniform(Family::Hadamard, &randomness(), 9, four(), 4).unwrap();
    assert_eq!(uniform.len(), 9);
}

#[test]
fn a_family_is_known_by_its_name() {
    for family in Family::ALL {
        assert_eq!(family.to_string().parse(), Ok(family));
    }
    let error = "gauss".parse::<Family>().unwrap_err().to_string();
    assert!(error.starts_with("there is no family `gauss`"));
}

#[test]
fn wrong_lengths_are_refused_in_words() {
    let words = |result: std::thread::Result<()>| *result.unwrap_err().downcast::<String>().unwrap();
    for family in Family::ALL {
        let sketch = AnySketch::new(family, &randomness(), 10, 3).unwrap();
        let message = words(catch_unwind(|| sketch.project(0, &[0.0; 9], &mut [0.0; 3])));
        assert_eq!(message, "the vector has 9 numbers, the sketch is for 10");
        let message = words(catch_unwind(|| sketch.project(0, &[0.0; 10], &mut [0.0; 4])));
        assert_eq!(message, "the scalars' buffer has 4 places, the sketch gives 3");
        let message = words(catch_unwind(|| sketch.reconstruct(0, &[0.0; 2], &mut [0.0; 10])));
        assert_eq!(message, "2 scalars were given, the sketch has 3");
        let message = words(catch_unwind(|| sketch.reconstruct_add(0, &[0.0; 3], 1.0, &mut [0.0; 11])));
        assert_eq!(message, "the vector's buffer has 11 places, the sketch is for 10");
    }
}

#[test]
fn no_vectors_give_no_scalars() {
    for family in Family::ALL {
        let sketch = AnySketch::new(family, &randomness(), 10, 3).unwrap();
        sketch.project_many::<f32>(0, &[], &mut []);
    }
}

#[test]
fn what_is_not_finite_is_not_hidden() {
    for family in Family::ALL {
        for dim in [3, 20, 5000] {
            let sketch = AnySketch::new(family, &randomness(), dim, 3).unwrap();
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut vector = vec![1.0; dim];
                vector[dim - 1] = bad;
                let mut scalars = [0.0; 3];
                sketch.project(0, &vector, &mut scalars);
                assert!(scalars.iter().all(|scalar| !scalar.is_finite()), "{family} {dim}: {scalars:?}");
                let mut rebuilt = vec![0.0; dim];
                sketch.reconstruct(0, &[1.0, bad, 1.0], &mut rebuilt);
                assert!(rebuilt.iter().all(|x| !x.is_finite()), "{family} {dim}");
            }
        }
    }
}
