"""No record of the declared universe decides whether there is an answer, an error or a warning.

Every estimator, statistic and session runs on a table and on neighbours of it, each with one hostile record, while
numpy raises on everything and every warning is an error. What can be seen from outside must be the same.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import epsilearn
from epsilearn import statistics
from epsilearn.errors import InvalidInput
from epsilearn.kernel import RBF, HistogramIntersection, Laplacian, Linear, Polynomial, Precomputed
from epsilearn.losses import Custom
from epsilearn.rows.parquet import ParquetRows

LARGEST = np.finfo(np.float64).max
HOSTILE = {
    "far": (40.0, 0.0),
    "giant": (1e200, -1e200),
    "tiny": (1e-170, 1e-170),
    "denormal": (5e-324, 0.0),
    "minus nothing": (-0.0, -0.0),
    "largest": (LARGEST, -LARGEST),
}
CLASSES = {"classes": [-1, 1]}
Z = np.array([[0.1, 0.2], [-0.3, 0.1], [0.2, -0.4]])
FORMATS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "sparse": sparse.csr_array,
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"]),
}


def smooth(s, y):
    return 20 * np.logaddexp(0, -s * y / 20)


def smooth_slope(s, y):
    if (np.abs(s) > 0.01).any():
        warnings.warn("a score is large", UserWarning, stacklevel=1)
    return -y / (1 + np.exp(s * y / 20))


def smooth_bend(s, y):
    return 1 / (20 * (2 + np.exp(np.abs(s) / 20) + np.exp(-np.abs(s) / 20)))


OWN = Custom(smooth, smooth_slope, smooth_bend, declared_lipschitz=1.0, declared_smoothness=1 / 80)

LINEAR = {
    "logistic": lambda **o: epsilearn.LogisticRegression(data_norm=1.0, **CLASSES, **o),
    "logistic, output": lambda **o: epsilearn.LogisticRegression(data_norm=1.0, method="output", **CLASSES, **o),
    "logistic, gradient": lambda **o: epsilearn.LogisticRegression(
        data_norm=1.0, delta=1e-6, method="gradient", **CLASSES, **o
    ),
    "svm": lambda **o: epsilearn.LinearSVC(data_norm=1.0, delta=1e-6, **CLASSES, **o),
    "regression": lambda **o: epsilearn.LinearRegression(data_norm=1.0, target_bound=1.0, **o),
    "ridge": lambda **o: epsilearn.LinearRegression(data_norm=1.0, target_bound=1.0, method="output", **o),
    "moments": lambda **o: epsilearn.LinearRegression(
        data_norm=1.0, target_bound=1.0, delta=1e-6, method="sufficient-statistics", **o
    ),
    "own loss": lambda **o: epsilearn.ConvexERM(loss=OWN, data_norm=1.0, **CLASSES, **o),
    "lasso": lambda **o: epsilearn.Lasso(
        feature_bound=1.0, target_bound=1.0, data_norm=1.0, delta=1e-6, n_steps=5, **o
    ),
    "sparse logistic": lambda **o: epsilearn.SparseLogisticRegression(
        feature_bound=1.0, n_steps=5, refit=0.5, **CLASSES, **o
    ),
    "landmark classifier": lambda **o: epsilearn.LandmarkClassifier(kernel=RBF(1.0), landmarks=Z, **CLASSES, **o),
    "landmark regressor": lambda **o: epsilearn.LandmarkRegressor(
        kernel=Laplacian(1.0), landmarks=Z, target_bound=1.0, **o
    ),
    "random features": lambda **o: epsilearn.RandomFeatures(kernel=RBF(1.0), n_features=10, **CLASSES, **o),
}
KERNELS = {
    "rbf": RBF(1.0),
    "laplacian": Laplacian(20.0),
    "linear": Linear(1.0),
    "polynomial": Polynomial(degree=3),
}
LEARNERS = {
    "process": lambda **o: epsilearn.GaussianProcessRelease(max_points=9, **CLASSES, **o),
    "interactive": lambda **o: epsilearn.InteractiveLearner(questions=9, **CLASSES, **o),
    "semi-interactive": lambda **o: epsilearn.SemiInteractiveLearner(public_points=Z, **CLASSES, **o),
    "non-interactive": lambda **o: epsilearn.NonInteractiveLearner(candidates=Z, **CLASSES, **o),
}


class Spy:
    """A ledger that counts."""

    debits = 0

    @contextmanager
    def spend(self, guarantee, _purpose):
        self.debits += 1
        yield guarantee


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 2)) / 4
    return X, np.where(X[:, 0] > 0, 1, -1)


def neighbours(n: int, names=tuple(HOSTILE)) -> list[np.ndarray]:
    """The table, and one with a hostile record for each name, in the midst of it."""
    X, _ = table(n)
    found = [X]
    for name in names:
        found.append(X.copy())
        found[-1][n // 2] = HOSTILE[name]
    return found


@contextmanager
def strict():
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def seen(make, X, y, asked=None):
    """Everything about a fit that can be seen, but for the noisy numbers themselves."""
    spy = Spy()
    with strict():
        model = make(ledger=spy).fit(X, y)
        scores = (model.decision_function if hasattr(model, "decision_function") else model.predict)(
            X if asked is None else asked
        )
        if hasattr(model, "predict_proba"):
            assert np.isfinite(model.predict_proba(X)).all()
    kept = {name: np.shape(value) for name, value in vars(model).items() if name.endswith("_")}
    noise, numbers = getattr(model, "noise_", None), bool(np.isfinite(scores).all())
    return spy.debits, model.guarantee_, noise, kept, np.shape(scores), numbers


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", LINEAR)
def test_fits(name, form):
    _, y = table(60)
    first, *others = (seen(LINEAR[name], FORMATS[form](X), y) for X in neighbours(60))
    assert first[0] == 1
    assert first[-1]
    assert all(other == first for other in others)


@pytest.mark.parametrize("form", ["F", "sparse"])
@pytest.mark.parametrize("name", ["logistic", "moments", "own loss", "lasso", "landmark classifier", "svm"])
def test_fits_by_several_threads(name, form):
    """More rows than one stretch, so that a pool's threads see them; layouts that no compiled pass reads."""
    _, y = table(2100)
    first, *others = (seen(LINEAR[name], FORMATS[form](X), y) for X in neighbours(2100, ("far", "tiny", "largest")))
    assert first[0] == 1
    assert all(other == first for other in others)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", LEARNERS)
def test_kernel_learners_and_their_sessions(name, kernel):
    _, y = table(30)
    make = lambda **o: LEARNERS[name](kernel=KERNELS[kernel], **o)  # noqa: E731
    first, *others = (seen(make, X, y, asked=Z) for X in neighbours(30, ("far", "tiny", "largest")))
    assert first[0] == 1
    assert first[-1]
    assert all(other == first for other in others)


def test_histograms_and_gram_matrices():
    _, y = table(30)
    tables = [np.abs(X) for X in neighbours(30)]
    make = lambda **o: LEARNERS["process"](kernel=HistogramIntersection(), **o)  # noqa: E731
    first, *others = (seen(make, X, y, asked=np.abs(Z)) for X in tables)
    assert all(other == first for other in others)
    found = []
    for size in (1.0, 1e-170, 5e-324, 1e200):
        gram = np.eye(33)
        gram[15, 15] = size
        make = lambda gram=gram, **o: LEARNERS["process"](kernel=Precomputed(gram), **o)  # noqa: E731
        found.append(seen(make, np.arange(30), y, asked=np.arange(30, 33)))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("target", [-0.0, 5e-324, 1e-170, 40.0, -1e200, LARGEST])
@pytest.mark.parametrize("name", ["regression", "ridge", "moments", "lasso", "landmark regressor"])
def test_targets(name, target):
    X, _ = table(60)
    y = X[:, 0].copy()
    first = seen(LINEAR[name], X, y)
    y[30] = target
    assert seen(LINEAR[name], X, y) == first


STATISTICS = {
    "sum": lambda v, **o: statistics.sum(v, bounds=(0, 1), **o),
    "mean": lambda v, **o: statistics.mean(v, bounds=(0, 1), **o),
    "variance": lambda v, **o: statistics.variance(v, bounds=(0, 1), **o),
    "quantile": lambda v, **o: statistics.quantile(v, bounds=(0, 1), **o),
    "histogram": lambda v, **o: statistics.histogram(v, edges=[0, 0.5, 1], **o),
    "count": lambda v, **o: statistics.count(v > 0.5, **o),
    "score": lambda v, **o: epsilearn.private_score(HALF, v[:, None], v, target_bound=1.0, **o),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics(name):
    found = []
    for value in (0.5, 5e-324, 1e-310, 1e-170, -0.0, 40.0, -1e200, LARGEST):
        column, spy = np.linspace(0, 1, 60), Spy()
        column[30] = value
        for kind in (np.asarray, pd.Series):
            with strict():
                release = STATISTICS[name](kind(column) if name != "score" else column, ledger=spy)
            found.append((release.guarantee, release.noise, np.shape(release.value)))
        assert spy.debits == 2
    assert all(one == found[0] for one in found)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    HALF = epsilearn.LinearRegression(data_norm=1.0, target_bound=1.0, random_state=0).fit(np.eye(2)[:, :1], [0.5, 0.5])


def test_mechanisms():
    with strict():
        for value in (0.5, 5e-324, 1e-310, -0.0, 1e200):
            values = np.array([value, 1.0])
            epsilearn.laplace(values, sensitivity=1, epsilon=1.0)
            epsilearn.gaussian(values, sensitivity=1, epsilon=1.0, delta=1e-6)
            epsilearn.exponential(values, sensitivity=1, epsilon=1.0)
            epsilearn.AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0).ask(value)
            session = epsilearn.GaussianProcess(
                lambda a, b: np.exp(-((a[:, None, 0] - b[None, :, 0]) ** 2)),
                sensitivity=0.1, epsilon=1.0, delta=1e-6, max_points=5,
            )  # fmt: skip
            session.release(np.array([[0.0], [40.0]]), values)


def test_rows_on_their_way_in():
    """A scaler sees private rows before the model does."""
    scaler = epsilearn.BoundedScaler(bounds=(-1, 1))
    for X in neighbours(30):
        for given in (X, FORMATS["pandas"](X), np.clip(X, -1e30, 1e30).astype(np.float32)):
            with strict():
                scaled = np.asarray(scaler.fit(given).transform(given))
            assert np.isfinite(scaled).all()


@pytest.mark.parametrize("name", ["logistic", "moments", "own loss", "lasso"])
def test_tables_in_parts(name, tmp_path):
    found = []
    for number, X in enumerate(neighbours(600, ("far", "tiny", "largest"))):
        path = tmp_path / f"{number}.parquet"
        frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=table(600)[1])
        frame.to_parquet(path, row_group_size=200)
        spy = Spy()
        with strict():
            model = LINEAR[name](ledger=spy).fit(ParquetRows(path, target="y", rows=600))
        found.append((spy.debits, model.guarantee_, model.noise_))
    assert all(one == found[0] for one in found)


def test_no_far_record_is_found_by_asking_a_session():
    """Once a question whose kernel value underflowed was an error, and free."""
    X, y = table(30)
    X[0] = (30.0, 0.0)
    with strict():
        process = epsilearn.GaussianProcessRelease(kernel=RBF(1.0), max_points=5, **CLASSES).fit(X, y)
        for place in range(5):
            process.decision_function([[float(place), 0.0]])
        assert process.points_left_ == 0


# ---------------------------------------------------------------- losses of somebody else's


def cut(function, limit: float, otherwise):
    """A function that fails at scores beyond a limit."""

    def limited(s, y):
        if (np.abs(s) > limit).any():
            return otherwise(s)
        return function(s, y)

    return limited


FAILURES = {
    "raises": lambda s: {}["a score"],
    "is no number": lambda s: np.full_like(s, np.nan),
    "has another shape": lambda s: s[:-1],
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("position", range(3))
def test_a_loss_that_fails_within_reach_is_refused_before_any_row_is_read(failure, position):
    functions = [smooth, smooth_slope, smooth_bend]
    functions[position] = cut(functions[position], 2e4, FAILURES[failure])
    loss = Custom(*functions, declared_lipschitz=1.0, declared_smoothness=1 / 80)
    X, y = table(60)
    spy = Spy()

    def model(**options):
        return epsilearn.ConvexERM(loss=loss, data_norm=1.0, fit_intercept=False, ledger=spy, **CLASSES, **options)

    for method, options in (("objective", {}), ("output", {}), ("gradient", {"delta": 1e-6})):
        with pytest.raises(InvalidInput, match=r"the loss's (value|slope|curvature)"):
            model(alpha=1e-4, method=method, **options).fit(X, y)
        with pytest.raises(InvalidInput, match=r"the loss's (value|slope|curvature)"):
            model(alpha=1e-4, method=method, **options).plan(rows=60, features=2)
    assert spy.debits == 0
    model(alpha=1.0, method="output", epsilon=1e3).fit(X, y)
    assert spy.debits == 1


def test_a_loss_that_overflows_is_silent_in_all_threads():
    """It passes its check, and is finite everywhere; only numpy would have had something to say of one record."""
    n = 2100
    y = np.where(np.arange(n) % 2, 1, -1)
    found = []
    for first in (5e-4, 1.0):
        X, spy = (y * 5e-4)[:, None], Spy()
        X[1] = first
        with strict():
            epsilearn.ConvexERM(
                loss=OWN, epsilon=1e9, alpha=1e-9, method="output", data_norm=1.0, fit_intercept=False, ledger=spy,
                **CLASSES,
            ).fit(X, y)  # fmt: skip
        found.append(spy.debits)
    assert found == [1, 1]


def test_the_guarantee_lists_what_it_assumes_of_a_loss():
    planned = LINEAR["own loss"]().plan(rows=60, features=2)
    assert "keep no memory across records" in " ".join(planned.promise.assumptions)
    known = LINEAR["logistic"]().plan(rows=60, features=2)
    assert "memory" not in " ".join(known.promise.assumptions)
