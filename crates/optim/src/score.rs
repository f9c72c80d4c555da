//! How a model does on rows that it was not trained on, in sums that machines can add.

/// Rows that a machine holds out.
pub trait HeldOut: Send {
    /// The sums of [`Score`] at x over these rows.
    fn sums(&mut self, x: &[f64]) -> [f64; Score::SUMS];
}

/// How a model does on held-out rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// How many rows.
    pub rows: f64,
    /// Mean loss per row, without regulariser: log-loss, or half the squared error.
    pub loss: f64,
    /// The share of rows whose class is right, or R^2 of a regression.
    pub score: f64,
    /// Whether `score` is a share of right rows.
    pub is_accuracy: bool,
    /// The mean label, as the model has it: of two sides it tells how large they are.
    pub mean_label: f64,
}

impl Score {
    /// How many sums there are: rows, loss, right rows, squared errors, targets, squared targets, rows with classes.
    pub const SUMS: usize = 7;
    /// The sums of no row.
    pub const NOTHING: [f64; Self::SUMS] = [0.0; Self::SUMS];

    /// From the sums over all machines; `None` without a row.
    pub fn from_sums(sums: &[f64]) -> Option<Self> {
        let &[rows, loss, right, squares, targets, squared_targets, classified] = sums else { return None };
        if rows <= 0.0 {
            return None;
        }
        let is_accuracy = classified > 0.0;
        let spread = squared_targets - targets * targets / rows;
        let score = if is_accuracy { right / rows } else { 1.0 - squares / spread };
        Some(Self { rows, loss: loss / rows, score, is_accuracy, mean_label: targets / rows })
    }
}
