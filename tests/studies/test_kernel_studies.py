"""The kernel paper's studies: their numbers, and small runs of all of their methods."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

from epsilearn.errors import InvalidInput
from epsilearn.kernel import GaussianProcessRelease, Linear
from epsilearn.studies import data, kernel_answers, kernel_covertype, kernel_curves, kernel_highdim
from epsilearn.studies.__main__ import STUDIES, app


def test_the_printed_tolerance_exceeds_every_prediction_where_the_tight_one_is_useful():
    study = replace(kernel_answers.Study(), questions=1000)
    found = kernel_answers.tolerances(study, [500.0, 1e5])
    assert found[0].printed == pytest.approx(48.7, abs=0.05)
    assert found[1].tight < 0.25
    assert found[1].printed > 1
    assert kernel_answers.first_useful(found, "tight", 0.25) == 1e5
    assert kernel_answers.first_useful(found, "printed", 1.0) == np.inf


def test_a_gaussian_process_has_the_noise_of_one_answer():
    (found,) = kernel_answers.deviations(kernel_answers.Study(), [1000])
    assert found.process <= 0.017
    assert found.printed == pytest.approx(1.88, abs=0.01)
    assert found.laplace == pytest.approx(0.75, abs=0.01)
    assert found.gaussian == pytest.approx(0.53, abs=0.01)


def test_answers_are_drawn_and_written(tmp_path):
    study = kernel_answers.Study()
    left = kernel_answers.tolerances(study, [1e3, 1e5, 1e7])
    right = [kernel_answers.Deviations(n, 2.0, 1.0, 0.5, 0.1, 9.0, 3.0) for n in (1, 100)]
    kernel_answers.write(study, left, right, tmp_path)
    report = json.loads((tmp_path / "kernel_answers.json").read_text())
    assert [t["size"] for t in report["tolerances"]] == [1e3, 1e5, 1e7]
    assert (tmp_path / "kernel_answers.png").stat().st_size > 10_000
    assert all(table.row_count for table in kernel_answers.report_tables(study, left, right))


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


def test_all_methods_run_on_a_small_forest(forest, tmp_path):
    study = kernel_covertype.Study(
        rows=2000, landmarks=60, repetitions=2, epsilons=(1.0, 30.0), rank=20, questions=50, delta=1e-5
    )
    found = kernel_covertype.run(study, *forest)
    methods = {m.method for m in found}
    assert len(methods) == 11
    assert all(len(m.values) == 2 for m in found)
    assert all(0 <= value <= 1 for m in found for value in m.values)
    best = {m.epsilon: m.mean for m in found if m.method == kernel_covertype.LANDMARKS}
    linear = {m.epsilon: m.mean for m in found if m.method == kernel_covertype.LINEAR}
    assert best[30.0] > linear[30.0] + 0.1
    printed = [m for m in found if m.method == kernel_covertype.INTERACTIVE_PAPER]
    assert all(m.proven is not None for m in printed)
    figure = kernel_curves.curves_figure("title", "accuracy", found, kernel_covertype.CURVES)
    kernel_curves.write("forest", {"rows": 2000}, found, figure, tmp_path)
    assert len(json.loads((tmp_path / "forest.json").read_text())["measured"]) == len(found)
    assert kernel_curves.report_table("title", found).row_count == 11


def test_shared_features_give_the_classifier_it_would_fit_by_itself(forest):
    """The study computes features once; what it measures must be what anyone would get."""
    from epsilearn.kernel import LandmarkClassifier

    table, kinds = forest
    study = kernel_covertype.Study(rows=2000, landmarks=60, rank=20, questions=50)
    part = kernel_covertype.split(table, kinds, study, 0)
    workshop = kernel_covertype.Workshop(study, part)
    options = {"kernel": kernel_covertype.KERNEL, "landmarks": part.public, "classes": [False, True], "random_state": 3}
    alone = LandmarkClassifier(epsilon=5.0, delta=1e-5, **options).fit(part.train, part.labels)
    shared = LandmarkClassifier(epsilon=5.0, delta=1e-5, **options)
    kernel_covertype._know(
        shared, lambda rows, loss: workshop._whitened(kernel_covertype.landmark_map(shared, rows, loss))
    )
    shared.fit(part.train, part.labels)
    np.testing.assert_allclose(shared.coef_, alone.coef_, atol=1e-3 * np.abs(alone.coef_).max())


def test_all_methods_run_in_many_dimensions():
    generator = np.random.default_rng(2)
    table = sparse.random_array((700, 300), density=0.05, rng=generator, format="csr")
    labels = np.where(table @ generator.normal(size=300) > 0, 1, -1)
    study = kernel_highdim.Study(rows=500, public=50, repetitions=1, epsilons=(1.0, 1000.0))
    found = kernel_highdim.run(study, table, labels)
    errors = {(m.method, m.epsilon): m.mean for m in found}
    assert errors[kernel_highdim.ZERO, None] == 1.0
    assert errors[kernel_highdim.PLAIN, None] < 1.0
    assert len({m.method for m in found}) == 9
    assert errors[kernel_highdim.SEMI_TIGHT, 1000.0] < errors[kernel_highdim.SEMI_TIGHT, 1.0]


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


def test_every_study_runs_by_its_name():
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in STUDIES)
    assert CliRunner().invoke(app, ["kernel-covertype", "--help"]).exit_code == 0


def test_a_folder_without_a_loader_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    with pytest.raises(InvalidInput, match=r"without load\.py"):
        data.covertype()
    (tmp_path / "load.py").write_text("def rcv1():\n    return 'rows', 'labels'\n")
    assert data.rcv1() == ("rows", "labels")
