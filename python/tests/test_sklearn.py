"""scikit-learn's own checks of estimators, and its own models as the reference."""

import doctest

import numpy as np
import pytest

import corewire.sklearn
from corewire.sklearn import CoreLogisticRegression, CoreRidge
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks


@parametrize_with_checks([CoreRidge(n_machines=3), CoreLogisticRegression(n_machines=3)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_ridge_has_the_weights_of_scikit_learn():
    x, y = load_diabetes(return_X_y=True)
    for intercept in (True, False):
        ours, theirs = CoreRidge(alpha=0.5, fit_intercept=intercept).fit(x, y), Ridge(alpha=0.5, fit_intercept=intercept).fit(x, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4, atol=1e-3)
        assert ours.wire_bytes_ < 5000


def test_logistic_regression_has_the_weights_of_scikit_learn():
    x, y = load_breast_cancer(return_X_y=True)
    x = scale(x)
    ours, theirs = CoreLogisticRegression(C=0.5).fit(x, y), LogisticRegression(C=0.5, tol=1e-10, max_iter=2000).fit(x, y)
    # The intercept's small penalty moves the others a little.
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=5e-3)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=5e-3)


def test_ten_classes_are_each_held_against_the_rest():
    x, y = load_digits(return_X_y=True)
    x = x / 16
    ours = CoreLogisticRegression(n_machines=20).fit(x[:1000], y[:1000])
    theirs = OneVsRestClassifier(LogisticRegression(max_iter=2000)).fit(x[:1000], y[:1000])
    assert abs(ours.score(x[1000:], y[1000:]) - theirs.score(x[1000:], y[1000:])) < 0.01
    assert ours.coef_.shape == (10, 64)


def test_the_example_runs():
    assert doctest.testmod(corewire.sklearn).failed == 0


@pytest.mark.parametrize("keys", [{"n_machines": 0}, {"tol": 0.0}, {"max_iter": 0}, {"seed": -1}])
def test_bad_parameters_are_named(keys):
    with pytest.raises(ValueError, match=next(iter(keys))):
        CoreRidge(**keys).fit(np.eye(4), np.arange(4.0))
