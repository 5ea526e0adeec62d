"""A replay finds what depends on a record other than through a charged answer, and nothing else."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace as altered

import numpy as np
import pytest

import epsilearn as el
from epsilearn.audit import hostile_neighbours, replay
from epsilearn.audit.realised import curves_of, exceeds
from epsilearn.audit.replay_cases import replay_cases
from epsilearn.audit.subjects import SUBJECTS, Options
from epsilearn.errors import InvalidInput
from epsilearn.mechanisms import additive, path, selection, session
from epsilearn.mechanisms.release import NoiseLaw

VALUES = ([0.2, 0.4, 0.9],)
OTHER = [([0.2, 0.4, 0.1],)]


def kinds(found):
    return {one.kind for one in found.differences}


def honest(values):
    return el.laplace(sum(values), sensitivity=1.0, epsilon=1.0)


def test_an_honest_release_passes():
    found = replay(honest, VALUES, OTHER)
    assert not found.refuted
    assert (found.charges, found.answers, found.neighbours, found.unsettled) == (1, 1, 1, ())


def test_a_value_that_moves_too_far_is_found_with_its_line():
    found = replay(honest, VALUES, [([0.2, 0.4, 9.0],)])
    assert kinds(found) == {"sensitivity", "budget"}
    line = honest.__code__.co_firstlineno + 1
    assert found.differences[0].where == f"test_replay.py:{line}"
    assert "epsilon is 8.1; charged was 1" in found.differences[0].text


def test_the_least_excess_is_found():
    assert not replay(honest, ([0.0],), [([1.0],)]).refuted
    assert replay(honest, ([0.0],), [([1.01],)]).refuted


def number_of_charges(values):
    if max(values) > 0.5:
        el.laplace(0.0, sensitivity=1.0, epsilon=1.0)
    return el.laplace(0.0, sensitivity=1.0, epsilon=1.0)


def size_of_a_charge(values):
    return el.laplace(0.0, sensitivity=1.0, epsilon=2.0 if max(values) > 0.5 else 1.0)


def number_of_answers(values):
    return el.laplace([0.0] * (2 if max(values) > 0.5 else 1), sensitivity=1.0, epsilon=1.0).value[0]


def raises(values):
    if max(values) > 0.5:
        raise ValueError("too large")
    return honest(values)


def raises_afterwards(values):
    release = honest(values)
    if max(values) > 0.5:
        raise ValueError("too large")
    return release


def warns(values):
    if max(values) > 0.5:
        warnings.warn("large", stacklevel=2)
    return honest(values)


def logs(values):
    logging.getLogger("quiet").warning("largest %s", max(values))
    return honest(values)


def prints(values):
    print(max(values))
    return honest(values)


def keeps(values):
    return {"release": honest(values), "count": np.float64(max(values))}


def own_noise(values):
    return sum(values) + np.random.default_rng(0).laplace()


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (number_of_charges, "control flow"), (size_of_a_charge, "charge"), (number_of_answers, "charge"),
        (raises, "control flow"), (raises_afterwards, "exception"), (warns, "warning"), (logs, "log line"),
        (prints, "printed"), (keeps, "result"), (own_noise, "result"),
    ],
)  # fmt: skip
def test_whatever_else_differs_is_found(function, kind):
    for table, other in ((VALUES, OTHER[0]), (OTHER[0], VALUES)):
        found = replay(function, table, [other])
        assert kind in kinds(found) or "exception" in kinds(found), str(found)
        assert found.refuted


def test_an_error_behind_an_error_is_found():
    """Whoever catches an error can ask what it was raised from, even if that is not printed."""

    def refuses(values):
        try:
            {0.5: 1}[max(values)]
        except KeyError:
            raise InvalidInput("not declared") from None

    found = replay(refuses, VALUES, OTHER)
    assert [one.name for one in found.differences] == ["exception behind 1"]


def test_a_debit_of_the_same_epsilon_says_in_what_it_differs():
    def declares(values):
        return el.laplace(0.0, sensitivity=max(values), epsilon=1.0)

    (found,) = replay(declares, VALUES, OTHER).differences
    assert (found.kind, found.text) == ("charge", "the same epsilon and delta, with other assumptions")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["laplace", "gaussian", "k-norm", "choice"])
def test_what_is_no_number_counts_as_a_loss_beyond_every_promise(kind, value):
    first, second = np.array([value, 1.0]), np.zeros(2)
    public = (1.0,) if kind == "choice" else (NoiseLaw(kind, 1.0), 0)
    curves = curves_of([("choice" if kind == "choice" else "additive", public, first, second, None)])
    assert exceeds(curves, 1e6, 0.0) > 1e6
    assert exceeds(curves, 1e6, 1e-6) > 1e6


def test_a_file_that_differs_is_found(tmp_path):
    def writes(values):
        (tmp_path / "told.txt").write_text(f"{max(values)}")
        return honest(values)

    assert kinds(replay(writes, VALUES, OTHER)) == {"file"}


def test_what_changes_by_itself_is_named_and_not_compared():
    count = iter(range(100))

    def counts(values):
        return next(count), honest(values)

    found = replay(counts, VALUES, OTHER)
    assert (found.refuted, found.unsettled) == (False, ("result[0]",))


def test_a_budget_spent_twice_is_found():
    def twice(values):
        return honest(values), honest(values)

    assert not replay(twice, ([0.0],), [([1.0],)], claim=2.0).refuted
    assert kinds(replay(twice, ([0.0],), [([1.0],)], claim=1.0)) == {"budget"}


def test_disjoint_parts_cost_no_more_than_the_largest():
    def parts(values):
        return honest(values[:1]), honest(values[1:])

    assert not replay(parts, ([0.0, 0.0],), [([1.0, 0.0],), ([0.0, 1.0],)], claim=1.0).refuted


def test_an_attribute_deep_inside_is_found():
    X, y = np.array([[0.3], [0.1], [0.2]]), np.array([0, 1, 1])

    def fit(X, y):
        model = el.LogisticRegression(data_norm=1.0, classes=[0, 1], alpha=1.0).fit(X, y)
        model.extra_ = {"inside": [lambda: X[0, 0]]}
        return model

    found = replay(fit, (X, y), [(X + 1, y)])
    assert any(one.name.startswith("result.extra_['inside'][0].X") for one in found.differences)


def test_a_table_that_is_no_tuple_is_refused():
    with pytest.raises(InvalidInput, match="tuple"):
        replay(honest, [0.1], [])


def test_a_table_is_handed_over_as_it_was():
    def spoils(values):
        values[0] = 0.5
        return honest(values)

    table = ([0.2, 0.3],)
    assert not replay(spoils, table, [([0.9, 0.3],)]).refuted
    assert table == ([0.2, 0.3],)


def test_other_threads_are_never_answered_from_a_tape():
    """A release in another thread draws its own noise while a run is replayed."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:

        def elsewhere(values):
            return pool.submit(honest, values).result().value

        found = replay(elsewhere, VALUES, OTHER)
    assert (found.charges, found.unsettled) == (0, ("result",))


def test_a_run_that_always_raises_is_no_proof():
    found = replay(lambda values: el.laplace(0.0, sensitivity=-1.0, epsilon=1.0), VALUES, OTHER)
    assert not found.refuted
    assert "it did not return: InvalidInput" in str(found)


def test_the_report_says_all_of_it():
    found = replay(honest, VALUES, [([0.2, 0.4, 9.0],)])
    assert str(found).startswith("REFUTED: 2 finding(s), replayed on 1 neighbours")
    assert found.to_dict()["differences"][0]["kind"] == "sensitivity"
    assert '"refuted": true' in found.to_json()


# Slow subjects are tried with fewer cases here, and with all of them by `make test-slow`.
@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_of_ours_is_refuted(name):
    cases = SUBJECTS[name].cases(Options())
    found = replay_cases(cases[:: max(1, len(cases) // 4)], count=12)
    assert not found.refuted, str(found)
    assert not found.unsettled
    assert not found.ended
    assert found.answers


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_of_ours_is_refuted_by_a_hundred_hostile_neighbours(name):
    found = replay_cases(SUBJECTS[name].cases(Options()), count=100)
    assert not found.refuted, str(found)
    assert not found.ended
    assert found.neighbours >= 100 or SUBJECTS[name].cases(Options())[0].labels is None


def test_hostile_neighbours_differ_in_one_record():
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    tables = list(hostile_neighbours((X, y), 100))
    assert len(tables) == 100
    for other, labels in tables:
        assert ((other != X).any(axis=1) | (labels != y)).sum() <= 1
        assert np.isfinite(other).all()
        assert set(labels) <= {0, 1}


def test_hostile_neighbours_keep_the_kind_of_a_table():
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    frame = pandas.DataFrame({"a": [0.1, 0.2, 0.3], "b": [1, 2, 3], "c": ["x", "y", "x"]})
    for other, rows, names in hostile_neighbours((frame, sparse.csr_array(np.eye(3)), ["u", "v", "w"]), 30):
        assert list(other.dtypes) == list(frame.dtypes)
        assert rows.format == "csr"
        assert set(names) <= {"u", "v", "w"}
    narrow = next(iter(hostile_neighbours((np.zeros((3, 2), np.float32),), 5)))[0]
    assert narrow.dtype == np.float32


@pytest.fixture
def weaker(monkeypatch):
    """Every scale that a mechanism draws with is 5 % too small, and every charge the same as before."""

    def shrink(module, name, change):
        usual = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *arguments, **words: change(usual(*arguments, **words)))

    shrink(additive, "laplace_scale", lambda scale: 0.95 * scale)
    shrink(selection, "gumbel_scale", lambda scale: 0.95 * scale)
    shrink(selection, "above_threshold_scales", lambda scales: tuple(0.95 * scale for scale in scales))
    planned = session.ProcessLaw.planned
    monkeypatch.setattr(
        session.ProcessLaw,
        "planned",
        lambda *a, **k: altered(planned(*a, **k), tau=0.95 * planned(*a, **k).tau),
    )


@pytest.mark.parametrize("name", ["laplace", "k-norm", "exponential", "sum", "mean", "count", "quantile"])
def test_five_percent_too_little_noise_is_found(weaker, name):
    found = replay_cases(SUBJECTS[name].cases(Options()), count=0)
    assert "sensitivity" in kinds(found), str(found)


def test_five_percent_too_little_noise_of_a_session_is_found(weaker):
    def threshold(value):
        asking = el.AboveThreshold(threshold=1e9, sensitivity=1.0, epsilon=1.0)
        return [asking.ask(value + 2e9), asking.remaining]

    assert "sensitivity" in kinds(replay(threshold, (0.0,), [(1.0,)]))

    def process(value):
        def kernel(a, b):
            return np.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))

        asking = el.GaussianProcess(kernel, sensitivity=1.0, epsilon=1.0, delta=1e-3, max_points=5)
        points = np.array([[0.0], [0.7]])
        # The function value * k(0, .) has norm |value|.
        return asking.release(points, value * kernel(np.zeros((1, 1)), points)[0]).value

    assert "sensitivity" in kinds(replay(process, (0.0,), [(1.0,)]))


def test_noise_of_a_path_is_held_to_its_charge(monkeypatch):
    """Half of it: the table's own sensitivity leaves some room."""
    usual = path.PrivateSteps
    monkeypatch.setattr(path, "PrivateSteps", lambda scale, *rest: usual(scale / 2.2, *rest))
    found = replay_cases(SUBJECTS["lasso"].cases(Options(rows=1)), count=0)
    assert "sensitivity" in kinds(found)


def test_a_fit_that_moves_too_far_is_found(monkeypatch):
    """Rows that are not brought inside their bound."""
    from epsilearn.rows import bounds

    monkeypatch.setattr(bounds.Bounds, "factors", lambda self, norms, terms: np.ones_like(norms))
    X, y, other = np.array([[0.5], [0.5]]), np.array([0.0, 1.0]), np.array([[0.5], [20.0]])
    for method in ("objective", "output"):
        model = el.LogisticRegression(data_norm=1.0, classes=[0, 1], alpha=100.0, method=method, fit_intercept=False)
        assert "sensitivity" in kinds(replay(model.fit, (X, y), [(other, y)])), method
