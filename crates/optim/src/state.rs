//! A method's state, named field by field, so that one walk serves the digest, the snapshot and the resume.

use corewire_comm::numbers::pieces;
use corewire_journal::{Saved, Values};
use corewire_sketch::Real;

/// Whether a field is the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The same bits on every machine after every round.
    Common,
    /// This machine's own.
    Local,
}

/// Walks over the fields of a state.
pub trait Visitor {
    /// Whether it looks at fields of this scope; others need not be shown.
    fn wants(&self, scope: Scope) -> bool;

    /// A vector.
    fn vector(&mut self, scope: Scope, field: &'static str, values: &mut Vec<f64>);

    /// A number.
    fn number(&mut self, scope: Scope, field: &'static str, value: &mut f64) {
        let mut values = vec![*value];
        self.vector(scope, field, &mut values);
        if let [only] = values[..] {
            *value = only;
        }
    }

    /// A word. Its bits travel as those of a number.
    fn word(&mut self, scope: Scope, field: &'static str, word: &mut u64) {
        let mut number = f64::from_bits(*word);
        self.number(scope, field, &mut number);
        *word = number.to_bits();
    }

    /// Several vectors; their count may differ from what is held now.
    fn vectors(&mut self, scope: Scope, field: &'static str, vectors: &mut Vec<Vec<f64>>) {
        let mut count = vectors.len() as u64;
        self.word(scope, field, &mut count);
        // A damaged count must not become an allocation.
        vectors.resize(count.min(1 << 20) as usize, Vec::new());
        for vector in vectors {
            self.vector(scope, field, vector);
        }
    }
}

/// Shows a vector of 32-bit or 64-bit numbers, as 64-bit ones.
pub fn visit_reals<T: Real>(visitor: &mut dyn Visitor, scope: Scope, field: &'static str, values: &mut Vec<T>) {
    if !visitor.wants(scope) {
        return;
    }
    let mut wide: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
    visitor.vector(scope, field, &mut wide);
    values.clear();
    values.extend(wide.into_iter().map(T::from_f64));
}

/// Something with a state.
pub trait Stateful {
    /// Shows every field to the visitor, which may change it; always the same fields in the same order.
    fn visit(&mut self, visitor: &mut dyn Visitor);
}

impl<T: Stateful + ?Sized> Stateful for Box<T> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        (**self).visit(visitor);
    }
}

/// The digest of a state's common fields: sixteen hexadecimal digits a person can compare.
pub fn digest(state: &mut (impl Stateful + ?Sized)) -> u64 {
    struct Digest(blake3::Hasher);
    impl Visitor for Digest {
        fn wants(&self, scope: Scope) -> bool {
            scope == Scope::Common
        }

        fn vector(&mut self, scope: Scope, field: &'static str, values: &mut Vec<f64>) {
            if self.wants(scope) {
                self.0.update(field.as_bytes()).update(&(values.len() as u64).to_le_bytes());
                for piece in pieces(values) {
                    self.0.update(&piece);
                }
            }
        }
    }
    let mut digest = Digest(blake3::Hasher::new());
    state.visit(&mut digest);
    let mut word = [0; 8];
    word.copy_from_slice(&digest.0.finalize().as_bytes()[..8]);
    u64::from_le_bytes(word)
}

/// Copies the fields of one scope.
pub fn save(state: &mut (impl Stateful + ?Sized), scope: Scope) -> Saved {
    struct Save(Scope, Saved);
    impl Visitor for Save {
        fn wants(&self, scope: Scope) -> bool {
            scope == self.0
        }

        fn vector(&mut self, scope: Scope, field: &'static str, values: &mut Vec<f64>) {
            if self.wants(scope) {
                self.1.fields.push((field.to_owned(), Values::from(&values[..])));
            }
        }
    }
    let mut save = Save(scope, Saved::default());
    state.visit(&mut save);
    save.1
}

/// Puts saved fields back, what is common and this machine's own, or names the first that does not fit. A vector keeps the length that it
/// has now, unless one of the two is empty.
pub fn restore(state: &mut (impl Stateful + ?Sized), common: &Saved, own: &Saved) -> Result<(), String> {
    struct Restore<'a> {
        common: std::slice::Iter<'a, (String, Values)>,
        own: std::slice::Iter<'a, (String, Values)>,
        error: Option<String>,
    }
    impl Visitor for Restore<'_> {
        fn wants(&self, _: Scope) -> bool {
            true
        }

        fn vector(&mut self, scope: Scope, field: &'static str, values: &mut Vec<f64>) {
            let fields = match scope {
                Scope::Common => &mut self.common,
                Scope::Local => &mut self.own,
            };
            match fields.next() {
                Some((name, saved)) if name == field => {
                    if saved.len() != values.len() && !saved.is_empty() && !values.is_empty() {
                        let lengths = (saved.len(), values.len());
                        let wrong = || format!("the snapshot's `{field}` has {} numbers, not {}", lengths.0, lengths.1);
                        self.error.get_or_insert_with(wrong);
                    } else {
                        *values = saved.to_wide();
                    }
                }
                other => {
                    let found = other.map_or("nothing".to_owned(), |(name, _)| format!("`{name}`"));
                    self.error.get_or_insert(format!("the snapshot has {found} where `{field}` belongs"));
                }
            }
        }
    }
    let mut restore = Restore { common: common.fields.iter(), own: own.fields.iter(), error: None };
    state.visit(&mut restore);
    match (restore.error, restore.common.chain(restore.own).next()) {
        (Some(error), _) => Err(error),
        (None, Some((name, _))) => Err(format!("the snapshot has a field `{name}` too many")),
        (None, None) => Ok(()),
    }
}
