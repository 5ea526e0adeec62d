"""One contract for every home of rows: the same table and the same bits give the same model, certified in each."""

from __future__ import annotations

import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from tests.rows.conftest import HOMES, PARTS, make_table

from epsilearn import (
    ConvexERM,
    GaussianProcessRelease,
    LandmarkClassifier,
    LandmarkRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateSelection,
    SparseLogisticRegression,
    erm,
    private_score,
)
from epsilearn.balls import ball, precision
from epsilearn.errors import InvalidInput
from epsilearn.kernel import RBF
from epsilearn.losses import Huber, Logistic, Softmax, Squared
from epsilearn.rows import Bounds, as_rows
from epsilearn.rows.parts import Targets
from epsilearn.solvers import Problem, minimise

LABELS = {"classes": [False, True], "data_norm": 2.0, "random_state": 7}
KINDS = {"classes": [0, 1, 2], "data_norm": 2.0, "random_state": 7, "delta": 1e-6}
NUMBERS = {"target_bound": 2.0, "data_norm": 2.0, "random_state": 7}
PATH = {"feature_bound": 1.0, "radius": 2.0, "delta": 1e-6, "random_state": 7, "n_steps": 6}
POINTS = np.random.default_rng(3).normal(size=(12, 6))

# Models whose solver ends within a certificate of a minimum, and those that are sums and choices alone.
SOLVED = {
    "pure": (LogisticRegression(**LABELS), "label"),
    "gaussian": (LogisticRegression(delta=1e-6, **LABELS), "label"),
    "not centred": (LogisticRegression(delta=1e-6, centre=False, **LABELS), "label"),
    "output": (LogisticRegression(method="output", alpha=0.01, **LABELS), "label"),
    "softmax": (LogisticRegression(method="objective", **KINDS), "kind"),
    "svm": (LinearSVC(**LABELS), "label"),
    "huber": (LinearRegression(**NUMBERS), "number"),
    "least squares": (LinearRegression(method="output", alpha=0.1, **NUMBERS), "number"),
    "custom": (ConvexERM(loss=Logistic(1.0), alpha=0.01, **LABELS), "label"),
}
EXACT = {
    "gradients": (LogisticRegression(method="gradient", **KINDS), "kind"),
    "moments": (LinearRegression(method="sufficient-statistics", delta=1e-6, **NUMBERS), "number"),
    "lasso": (Lasso(target_bound=2.0, **PATH), "number"),
    "lasso and refit": (Lasso(target_bound=2.0, refit=0.3, data_norm=3.0, **PATH), "number"),
    "noisy gradients on a path": (Lasso(target_bound=2.0, constraint="l2", **PATH), "number"),
    "sparse logistic": (
        SparseLogisticRegression(classes=[False, True], fit_intercept=True, data_norm=2.0, **PATH),
        "label",
    ),
    "landmarks": (
        LandmarkClassifier(kernel=RBF(0.2), landmarks=POINTS, delta=1e-6, classes=[False, True], random_state=7),
        "label",
    ),
    "landmark regression": (
        LandmarkRegressor(kernel=RBF(0.2), landmarks=POINTS, delta=1e-6, target_bound=2.0, random_state=7),
        "number",
    ),
}


def fitted(model, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(*given)


def weights_of(model):
    return np.append(np.ravel(model.coef_), np.ravel(getattr(model, "intercept_", 0.0)))


def allowance(model, table, target, monkeypatch):
    """How far two fits with the same bits may be apart: two certificates over the strength, and a step of the grid."""
    plans = []
    execute = erm.execute
    monkeypatch.setattr(erm, "execute", lambda plan, *args, **kw: plans.append(plan) or execute(plan, *args, **kw))
    found = fitted(model, (table.X, table.targets[target]))
    monkeypatch.undo()
    (plan,) = plans
    noise = plan.polish or plan.law
    return found, 2 * plan.certificate / plan.strength, noise.scale * 2.0**-19


# Arrays of Dask differ from frames in how blocks are decoded alone, which the sums below look at.
WHOLE_FITS = [home for home in PARTS if home != "dask array"]


@pytest.mark.parametrize("home", ["sparse", *WHOLE_FITS])
@pytest.mark.parametrize("name", SOLVED)
def test_solved_models_agree_within_their_certificates(home, name, some_table, at_home, monkeypatch):
    model, target = SOLVED[name]
    expected, certified, grid = allowance(model, some_table, target, monkeypatch)
    found = fitted(model, at_home(home, some_table, target))
    apart = np.linalg.norm(weights_of(found) - weights_of(expected))
    # Coefficients are weights of moved or scaled rows times at most a hundred.
    assert apart <= 100 * (certified + grid * np.sqrt(expected.coef_.size))
    assert apart <= 1e-4 * np.linalg.norm(weights_of(expected))
    assert found.alpha_ == expected.alpha_
    assert found.noise_ == expected.noise_


@pytest.mark.parametrize("home", WHOLE_FITS)
@pytest.mark.parametrize("name", EXACT)
def test_sums_and_choices_are_the_same_to_the_last_bit_or_nearly(home, name, some_table, at_home):
    model, target = EXACT[name]
    expected = fitted(model, (some_table.X, some_table.targets[target]))
    found = fitted(model, at_home(home, some_table, target))
    np.testing.assert_allclose(weights_of(found), weights_of(expected), rtol=1e-6, atol=1e-9)
    if hasattr(expected, "selected_"):
        np.testing.assert_array_equal(found.selected_, expected.selected_)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("loss", [Logistic(), Logistic(3.0), Softmax(3), Huber(0.3, 1.0), Squared(1.0)], ids=repr)
def test_certificates_hold_in_extended_precision(home, loss, at_home):
    """The gradient where the solver stopped, summed in ball arithmetic over the table itself."""
    table = make_table(400, 3)
    raw = table.targets["kind"] if loss.outputs > 1 else table.targets["label"]
    table.targets["t"] = raw.astype(float) if loss.outputs > 1 else np.where(raw, 1.0, -1.0)
    bounds = Bounds(1.5, intercept=0.5)
    X, *targets = at_home(home, table, "t")
    rows = as_rows(X, targets[0] if targets else Targets(), bounds)
    tilt = np.random.default_rng(1).normal(size=rows.d * loss.outputs)
    solution = minimise(Problem(rows, loss, 0.01, tilt), 1e-9)
    assert solution.certificate <= 1e-9
    reference = as_rows(table.X, table.targets["t"], bounds)
    point = [Fraction(float(c)) for c in solution.coef]
    with precision(200):
        mean = reference.gradient_in_balls(loss, point)
        exact = [g + ball(0.01) * ball(p) + ball(float(b)) / rows.n for g, p, b in zip(mean, point, tilt, strict=True)]
        length = sum((g * g for g in exact), ball(0)).sqrt()
    assert length <= ball(solution.certificate)


@pytest.mark.parametrize("home", PARTS)
def test_every_sum_is_that_of_rows_in_memory(home, at_home):
    table = make_table(5000, 4)
    table.targets["t"] = np.where(table.targets["label"], 1.0, -1.0)
    bounds = Bounds(1.5, intercept=0.5)
    here = as_rows(table.X, table.targets["t"], bounds)
    there = as_rows(*at_home(home, table, "t"), Targets(), bounds)
    coef, vector = np.random.default_rng(2).normal(size=(2, 5))
    for first, second in ((here, there), (here.moved(coef[:4] / 9, 0.7, 0.5), there.moved(coef[:4] / 9, 0.7, 0.5))):
        mine, theirs = first.sums(Logistic(), coef), second.sums(Logistic(), coef)
        assert np.linalg.norm(mine.gradient - theirs.gradient) <= mine.error + theirs.error
        assert theirs.value == pytest.approx(mine.value, rel=1e-12)
        np.testing.assert_allclose(second.product(vector), first.product(vector), rtol=1e-10)
        np.testing.assert_allclose(second.hessian(), first.hessian(), rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(second.gradient(Logistic(), coef), mine.gradient, rtol=1e-10)
        np.testing.assert_array_equal(second.total(2**30), first.total(2**30))
        assert second.spread(coef[:4] / 9, 2**30) == first.spread(coef[:4] / 9, 2**30)
        np.testing.assert_allclose(second.moments().gram, first.moments().gram, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(second.moments().cross, first.moments().cross, rtol=1e-10)
        loss, reach = Logistic(), 3.0
        assert second.rounding(loss, reach) == first.rounding(loss, reach)
        assert (second.n, second.d, second.norm, second.dense) == (first.n, first.d, first.norm, first.dense)


@pytest.mark.parametrize("home", PARTS)
def test_gradients_beyond_doubles_are_had_of_parts_too(home, at_home):
    table = make_table(150, 2)
    table.targets["t"] = np.where(table.targets["label"], 1.0, -1.0)
    here = as_rows(table.X, table.targets["t"], Bounds())
    there = as_rows(*at_home(home, table, "t"), Targets(), Bounds())
    point = [Fraction(1, 3), Fraction(-2, 7), Fraction(1, 9)]
    with precision(256):
        for mine, theirs in zip(
            here.gradient_in_balls(Logistic(), point), there.gradient_in_balls(Logistic(), point), strict=True
        ):
            assert mine.overlaps(theirs)
            assert float(theirs.rad()) < 1e-60


@pytest.mark.parametrize("home", PARTS)
def test_another_number_of_rows_than_was_declared_is_an_error(home, some_table, at_home):
    (rows,) = at_home(home, some_table, "label")
    rows.n += 1
    spent = []
    model = LogisticRegression(classes=[False, True], data_norm=1.0, ledger=_Witness(spent))
    with pytest.raises(ValueError, match=r"has 20,011 rows, and 20,012 were declared"):
        model.fit(rows)
    assert not spent


@pytest.mark.parametrize("home", PARTS)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda table: table.X.__setitem__((17_000, 2), np.nan), "missing|NaN"),
        (lambda table: table.X.__setitem__((5, 1), np.inf), "infinite"),
        (lambda table: table.targets.__setitem__("label", np.arange(len(table.X)) % 3), "not in classes"),
    ],
    ids=["missing", "infinite", "foreign label"],
)
def test_what_is_wrong_with_a_record_is_said_before_anything_is_spent(home, spoil, reason, at_home):
    table = make_table()
    spoil(table)
    spent = []
    model = LogisticRegression(classes=[0, 1], data_norm=1.0, ledger=_Witness(spent))
    with pytest.raises(ValueError, match=reason) as caught:
        model.fit(*at_home(home, table, "label"))
    assert not spent
    assert caught.value.__context__ is None
    assert not hasattr(model, "coef_")


def test_a_table_in_parts_brings_its_own_targets(some_table, at_home):
    (rows,) = at_home("parquet", some_table, "label")
    with pytest.raises(ValueError, match="leave y out"):
        LogisticRegression(classes=[False, True], data_norm=1.0).fit(rows, some_table.targets["label"])
    with pytest.raises(ValueError, match="classes must be given"):
        LogisticRegression(data_norm=1.0).fit(rows)


def test_a_table_in_parts_is_for_fits_alone(some_table, at_home):
    (rows,) = at_home("parquet", some_table, "label")
    model = LogisticRegression(classes=[False, True], data_norm=1.0).fit(rows)
    for use in (
        lambda: model.predict(rows),
        lambda: private_score(model, rows, None, epsilon=1.0),
        lambda: private_score(DummyClassifier().fit([[0], [1]], [0, 1]), rows, None, epsilon=1.0),
        lambda: PrivateSelection(LogisticRegression(data_norm=1.0), {"alpha": [0.1, 1.0]}).fit(rows, None),
        lambda: GaussianProcessRelease(classes=[False, True], delta=1e-6).fit(rows),
    ):
        with pytest.raises(InvalidInput, match="a table in parts"):
            use()


def test_nothing_of_the_rows_stays_with_the_model(some_table, at_home):
    (rows,) = at_home("parquet", some_table, "label")
    model = LogisticRegression(classes=[False, True], data_norm=1.0).fit(rows)
    kept = pickle.dumps(model)
    assert len(kept) < 4000
    assert all(some_table.X[row, 0].tobytes() not in kept for row in range(4, 2000) if some_table.X[row, 0])
    assert rows.watch is None


class _Witness:
    """A ledger that only notes that it was asked."""

    def __init__(self, spent):
        self.spent = spent

    def spend(self, guarantee, purpose):
        self.spent.append(guarantee)
        raise AssertionError("debited")

    def __deepcopy__(self, memo):
        return self
