"""The kernel paper's studies: their numbers, and small runs of all of their methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from epsilearn.errors import InvalidInput
from epsilearn.kernel import GaussianProcessRelease, Linear
from epsilearn.studies import data, kernel_answers, kernel_covertype, kernel_curves, kernel_highdim
from epsilearn.studies.study import unwatched


def test_the_printed_tolerance_exceeds_every_prediction_where_the_tight_one_is_useful():
    settings = replace(kernel_answers.Settings(), questions=1000)
    few, many = (kernel_answers.tolerances(settings, size) for size in (500.0, 1e5))
    assert few.printed == pytest.approx(48.7, abs=0.05)
    assert many.tight < 0.25
    assert many.printed > 1
    assert 500 < kernel_answers.first_useful([few, many], "tight", 0.25) < 1e5
    assert kernel_answers.first_useful([few, many], "printed", 1.0) == np.inf


def test_where_a_tolerance_becomes_useful_lies_on_its_power_law():
    found = [kernel_answers.Tolerances(size, 100 / size, 1.0, 1) for size in (1.0, 10.0, 1e4)]
    assert kernel_answers.first_useful(found, "printed", 1.0) == pytest.approx(100.0)


def test_a_gaussian_process_has_the_noise_of_one_answer():
    found = kernel_answers.deviations(kernel_answers.Settings(), 1000)
    assert found.process <= 0.017
    assert found.printed == pytest.approx(1.88, abs=0.01)
    assert found.laplace == pytest.approx(0.75, abs=0.01)
    assert found.gaussian == pytest.approx(0.53, abs=0.01)


def test_both_panels_of_the_answers_are_computed():
    result = kernel_answers.run(kernel_answers.Settings(sizes=3, counts=(1, 5)), unwatched)
    assert [t["size"] for t in result.measured["tolerances"]] == pytest.approx([1e2, 1e5, 1e8])
    assert [d["questions"] for d in result.measured["deviations"]] == [1, 5]
    assert [len(sheet.rows) for sheet in result.sheets] == [3, 2]
    left, right = result.figures["kernel_answers"].figure.axes
    assert left.get_xlabel() == "n lambda epsilon"
    assert len(right.lines) == 6


@pytest.mark.parametrize("wrong", [{"delta": 0.0}, {"sizes": 1}, {"counts": (0,)}, {"strength": -1.0}])
def test_wrong_settings_of_the_answers_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        kernel_answers.Settings(**wrong)


def test_public_bounds_bring_every_cell_of_the_forest_into_the_unit_ball():
    generator = np.random.default_rng(0)
    table = np.zeros((200, 54))
    table[:, :10] = generator.uniform(-1e4, 1e4, size=(200, 10))
    table[np.arange(200), 10 + generator.integers(4, size=200)] = 1
    table[np.arange(200), 14 + generator.integers(40, size=200)] = 1
    scaled = kernel_covertype.in_unit_ball(table)
    assert np.linalg.norm(scaled, axis=1).max() <= 1
    assert np.abs(scaled).max() <= 1 / np.sqrt(12)


@pytest.fixture
def forest(monkeypatch):
    """A small table that looks like CoverType, with a boundary that no linear model has."""
    generator = np.random.default_rng(1)
    table = np.zeros((2600, 54))
    low, high = np.array(kernel_covertype.BOUNDS, float).T
    table[:, :10] = generator.uniform(low, high, size=(2600, 10))
    table[:, 10], table[:, 14] = 1, 1
    middle = (table[:, 0] - 2850) / 1050
    monkeypatch.setattr(kernel_covertype, "_HELD_OUT", 600)
    return kernel_covertype.in_unit_ball(table), np.where(np.abs(middle) < 0.5, 2, 1)


def test_all_methods_run_on_a_small_forest(forest):
    settings = kernel_covertype.Settings(
        rows=2000, landmarks=60, repetitions=2, epsilons=(1.0, 30.0), rank=20, questions=50, delta=1e-5
    )
    found = kernel_covertype.measure(settings, *forest, unwatched)
    methods = {m.method for m in found}
    assert len(methods) == 11
    assert all(len(m.values) == 2 for m in found)
    assert all(0 <= value <= 1 for m in found for value in m.values)
    best = {m.epsilon: m.mean for m in found if m.method == kernel_covertype.LANDMARKS}
    linear = {m.epsilon: m.mean for m in found if m.method == kernel_covertype.LINEAR}
    assert best[30.0] > linear[30.0] + 0.1
    printed = [m for m in found if m.method == kernel_covertype.INTERACTIVE_PAPER]
    assert all(m.proven is not None for m in printed)
    result = kernel_covertype._report(settings, found)
    # The paper's own accuracy stands beside them in the figure, and is none of what was measured.
    assert len(result.measured["accuracies"]) == len(found) + 1
    assert [row[0] for row in result.sheets[0].rows] == list(dict.fromkeys(m.method for m in found))
    shown = [text.get_text() for text in result.figures["kernel_covertype"].figure.legends[0].get_texts()]
    assert set(shown) == methods | {kernel_covertype.BASELINE}
    assert result.seeds == {"split 1": 0, "split 2": 1}


def test_shared_features_give_the_classifier_it_would_fit_by_itself(forest):
    """The study computes features once; what it measures must be what anyone would get."""
    from epsilearn.kernel import LandmarkClassifier

    table, kinds = forest
    settings = kernel_covertype.Settings(rows=2000, landmarks=60, rank=20, questions=50)
    part = kernel_covertype.split(table, kinds, settings, 0)
    workshop = kernel_covertype.Workshop(settings, part)
    options = {"kernel": kernel_covertype.KERNEL, "landmarks": part.public, "classes": [False, True], "random_state": 3}
    alone = LandmarkClassifier(epsilon=5.0, delta=1e-5, **options).fit(part.train, part.labels)
    shared = LandmarkClassifier(epsilon=5.0, delta=1e-5, **options)
    kernel_covertype._know(
        shared, lambda rows, loss: workshop._whitened(kernel_covertype.landmark_map(shared, rows, loss))
    )
    shared.fit(part.train, part.labels)
    np.testing.assert_allclose(shared.coef_, alone.coef_, atol=1e-3 * np.abs(alone.coef_).max())


def test_all_methods_run_in_many_dimensions(monkeypatch):
    generator = np.random.default_rng(2)
    table = sparse.random_array((700, 300), density=0.05, rng=generator, format="csr")
    labels = np.where(table @ generator.normal(size=300) > 0, 1, -1)
    monkeypatch.setattr(data, "rcv1", lambda: (table, labels))
    settings = kernel_highdim.Settings(rows=500, public=50, repetitions=1, epsilons=(1.0, 1000.0))
    result = kernel_highdim.run(settings, unwatched)
    fields = ("method", "epsilon", "proven", "values")
    found = [kernel_curves.Measured(*(m[name] for name in fields)) for m in result.measured["errors"]]
    errors = {(m.method, m.epsilon): m.mean for m in found}
    assert errors[kernel_highdim.ZERO, None] == 1.0
    assert errors[kernel_highdim.PLAIN, None] < 1.0
    assert len({m.method for m in found}) == 9
    assert errors[kernel_highdim.SEMI_TIGHT, 1000.0] < errors[kernel_highdim.SEMI_TIGHT, 1.0]


def test_rows_must_be_left_to_test_on():
    with pytest.raises(InvalidInput, match="rows must be at most 500,000, got 500,001"):
        kernel_covertype.Settings(rows=500_001)
    table = sparse.random_array((700, 30), density=0.5, rng=np.random.default_rng(0), format="csr")
    with pytest.raises(InvalidInput, match="leave some of the 700 rows"):
        kernel_highdim.split(table, np.ones(700), kernel_highdim.Settings(rows=650, public=50), 0)


def test_a_bench_fits_what_the_learner_would_fit_alone():
    generator = np.random.default_rng(3)
    X = generator.uniform(-0.5, 0.5, size=(300, 3))
    y = X[:, 0] > 0
    bench = kernel_curves.Bench(GaussianProcessRelease(kernel=Linear(1.0), classes=[False, True]), X, y)
    settings = {"kernel": Linear(1.0), "classes": [False, True], "epsilon": 2.0, "random_state": 1}
    shared = bench.fit(GaussianProcessRelease(**settings))
    alone = GaussianProcessRelease(**settings).fit(X, y)
    np.testing.assert_array_equal(shared.decision_function(X), alone.decision_function(X))
    assert shared.alpha_ == alone.alpha_


def test_the_deviation_is_between_splits():
    notes = [kernel_curves.Note("a", 1.0, value, proven=2.0) for value in (0.5, 0.7)] + [
        kernel_curves.Note("b", None, 0.4)
    ]
    spread, single = kernel_curves.collected(notes)
    assert (spread.mean, spread.proven) == (0.6, 2.0)
    assert spread.deviation == pytest.approx(0.2 / np.sqrt(2))
    assert single.deviation == 0.0
    assert kernel_curves.proven_sentences([spread, single]) == ["A, epsilon claimed and proven: 1: 2."]


def test_a_folder_without_a_loader_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    with pytest.raises(InvalidInput, match=r"without load\.py"):
        data.covertype()
    (tmp_path / "load.py").write_text("def rcv1():\n    return 'rows', 'labels'\n")
    assert data.rcv1() == ("rows", "labels")
    with pytest.raises(data.MissingData, match=r"CoverType cannot be loaded .* set EPSILEARN_DATA"):
        data.covertype()


def test_no_network_is_an_error_that_says_what_to_do(monkeypatch):
    def fail(**options):
        raise ConnectionRefusedError("no route")

    monkeypatch.delenv(data.VARIABLE, raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_covtype", fail)
    monkeypatch.setattr("sklearn.datasets.fetch_rcv1", fail)
    for load, name in ((data.covertype, "CoverType"), (data.rcv1, "RCV1")):
        with pytest.raises(data.MissingData, match=f"{name} cannot be loaded .*connect to the network"):
            load()
