"""scikit-learn's own checks of estimators, and its own models as the reference."""

import doctest
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import corewire.sklearn
from corewire.sklearn import CoreLogisticRegression, CoreRidge
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
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


@pytest.mark.parametrize("make", [CoreRidge, CoreLogisticRegression])
def test_whoever_does_not_reach_the_target_warns(make):
    x, y = load_breast_cancer(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="after 2 rounds .* raise max_iter"):
        make(max_iter=2).fit(scale(x), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(scale(x), y)


def test_huge_numbers_are_refused_by_name():
    x, y = np.eye(6), np.arange(6.0)
    for make, rows, targets, name in [
        (CoreRidge, x * 1e200, y, "X"),
        (CoreLogisticRegression, x * 1e200, y > 2, "X"),
        (CoreRidge, x, y * 1e200, "y"),
    ]:
        with pytest.raises(ValueError, match=f"^{name}: it has numbers up to .*e\\+200"):
            make().fit(rows, targets)


ENDLESS = """
import numpy as np
from corewire.sklearn import CoreLogisticRegression
x = np.random.default_rng(0).standard_normal((2000, 50))
print("begins", flush=True)
try:
    # Rounding keeps it from ever reaching this.
    CoreLogisticRegression(tol=1e-300, max_iter=2**63 - 1).fit(x, x[:, 0] + x[:, 1] ** 2 > 0.5)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_long_fit_can_be_interrupted(tmp_path):
    running = subprocess.Popen([sys.executable, "-c", ENDLESS], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout.readline() == "begins\n"
        time.sleep(1.0)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert output == "interrupted\n" and running.returncode == 0


@pytest.mark.parametrize(
    "keys", [{"n_machines": 0}, {"tol": 0.0}, {"max_iter": 0}, {"max_iter": 2**63}, {"seed": -1}, {"seed": 2**64}]
)
def test_bad_parameters_are_named(keys):
    with pytest.raises(ValueError, match=next(iter(keys))):
        CoreRidge(**keys).fit(np.eye(4), np.arange(4.0))
