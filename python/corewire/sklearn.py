"""Linear models in scikit-learn's conventions, trained over simulated machines, with the bytes that they would have sent.

>>> from sklearn.datasets import load_iris
>>> from corewire.sklearn import CoreLogisticRegression
>>> x, y = load_iris(return_X_y=True)
>>> model = CoreLogisticRegression(n_machines=5).fit(x, y)
>>> model.score(x, y) > 0.9, model.wire_bytes_ < 3000
(True, True)
"""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from corewire._native import fit_linear

__all__ = ["CoreLogisticRegression", "CoreRidge"]

# The intercept's column, in units of the largest centred feature: its penalty is at least this much, squared, below the others'.
INTERCEPT = 30.0
# The largest number in X and y.
LARGEST = 1e30


class _Core(BaseEstimator):
    """What both have in common. Features are centred, where there is an intercept, and not scaled: the penalty is on their own weights."""

    _parameter_constraints = {
        "n_machines": [Interval(Integral, 1, 10_000, closed="both")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, 2**63 - 1, closed="both")],
        "seed": [Interval(Integral, 0, 2**64 - 1, closed="both")],
    }

    def _train(self, rows, targets, model, alpha):
        weights, took = fit_linear(
            np.ascontiguousarray(rows), np.ascontiguousarray(targets, dtype=np.float64), model, alpha,
            self.n_machines, self.seed, self.tol, self.max_iter,
        )  # fmt: skip
        if not took["reached"]:
            what = f"after {took['rounds']} rounds the estimated distance to the optimum is not down to tol={self.tol} of the first"
            warnings.warn(f"{what}: raise max_iter or tol, or scale the columns of X", ConvergenceWarning, stacklevel=3)
        self.n_iter_ = max(self.n_iter_, took["rounds"])
        self.exchanges_ += took["exchanges"]
        self.wire_bytes_ += took["wire_bytes"]
        return weights

    def _begin(self):
        self._validate_params()
        self.n_iter_, self.exchanges_, self.wire_bytes_ = 0, 0, 0.0


def _expect_moderate(name, numbers):
    """Squares of larger numbers, and their sums, leave what travels in 32 bits."""
    largest = float(np.abs(numbers).max())
    if largest > LARGEST:
        raise ValueError(f"{name}: it has numbers up to {largest:.3g}, and {LARGEST:.0e} is the most: scale it, as by StandardScaler")


class CoreRidge(RegressorMixin, _Core):
    """Least squares with an l2 penalty: ||y - Xw||^2 + alpha ||w||^2, the intercept not penalised.

    Args:
        alpha: the penalty, in scikit-learn's terms.
        n_machines: simulated machines, among which the rows are shared out at random.
        fit_intercept: whether there is one.
        tol: ends when the estimated distance to the optimum has fallen to this share of the first.
        max_iter: rounds at most. Where they do not suffice for `tol`, `fit` warns with a ConvergenceWarning.
        seed: of the split and of all common randomness.

    After `fit`: `coef_`, `intercept_`, `n_iter_`, `exchanges_` and `wire_bytes_`, all that travelled per machine.
    """

    _parameter_constraints = {**_Core._parameter_constraints, "alpha": [Interval(Real, 0, None, closed="neither")]}

    def __init__(self, alpha=1.0, *, n_machines=8, fit_intercept=True, tol=1e-12, max_iter=200, seed=0):
        self.alpha = alpha
        self.n_machines = n_machines
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.seed = seed

    def fit(self, X, y):
        """Trains on rows and targets."""
        self._begin()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        _expect_moderate("X", X)
        _expect_moderate("y", y)
        x_mean = X.mean(0) if self.fit_intercept else np.zeros(X.shape[1])
        y_mean = y.mean() if self.fit_intercept else 0.0
        self.coef_ = self._train(X - x_mean, y - y_mean, "ridge", self.alpha / len(X))
        self.intercept_ = float(y_mean - x_mean @ self.coef_)
        return self

    def predict(self, X):
        """The predicted targets."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_ + self.intercept_


class CoreLogisticRegression(ClassifierMixin, _Core):
    """Logistic regression with an l2 penalty: C times the sum of the losses + ||w||^2/2. More than two classes are each held against the rest.

    Args:
        C: the inverse of the penalty, in scikit-learn's terms. The intercept is penalised too, at least 900 times less than a feature.
        n_machines, fit_intercept, tol, max_iter, seed: as for `CoreRidge`.

    After `fit`: `classes_`, `coef_`, `intercept_`, `n_iter_`, `exchanges_` and `wire_bytes_`, all that travelled per machine.
    """

    _parameter_constraints = {**_Core._parameter_constraints, "C": [Interval(Real, 0, None, closed="neither")]}

    def __init__(self, C=1.0, *, n_machines=8, fit_intercept=True, tol=1e-12, max_iter=200, seed=0):
        self.C = C
        self.n_machines = n_machines
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.seed = seed

    def fit(self, X, y):
        """Trains on rows and labels of any kind."""
        self._begin()
        X, y = validate_data(self, X, y, dtype=np.float64)
        _expect_moderate("X", X)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: there is one class only, {self.classes_[0]!r}: a classifier needs two")
        # Centred columns make the intercept's column orthogonal to the others.
        mean = X.mean(0) if self.fit_intercept else np.zeros(X.shape[1])
        size = INTERCEPT * max(1.0, float(np.abs(X - mean).max()))
        rows = np.column_stack([X - mean, np.full(len(X), size)]) if self.fit_intercept else X
        positive = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        weights = [
            self._train(rows, np.where(codes == label, 1.0, -1.0), "logistic", 1 / (self.C * len(X))) for label in positive
        ]
        table = np.array(weights)
        self.coef_ = table[:, : X.shape[1]]
        self.intercept_ = table[:, -1] * size - self.coef_ @ mean if self.fit_intercept else np.zeros(len(table))
        return self

    def decision_function(self, X):
        """The margin of the second class, or of every class against the rest."""
        check_is_fitted(self)
        margins = validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_.T + self.intercept_
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X):
        """The probability of every class; of more than two, those against the rest, made to add up to one."""
        margins = self.decision_function(X)
        probabilities = 1 / (1 + np.exp(-np.clip(margins, -500, 500)))
        if probabilities.ndim == 1:
            return np.column_stack([1 - probabilities, probabilities])
        sums = probabilities.sum(1, keepdims=True)
        return np.where(sums > 0, probabilities / np.where(sums > 0, sums, 1), 1 / len(self.classes_))

    def predict(self, X):
        """The likeliest classes."""
        margins = self.decision_function(X)
        return self.classes_[(margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(1)]
