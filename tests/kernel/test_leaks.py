"""Ways around a bound, a debit or a session that were once open."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from epsilearn import Ledger
from epsilearn.errors import InvalidInput, StateError
from epsilearn.kernel import (
    RBF,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    Linear,
    NonInteractiveLearner,
    Polynomial,
    Precomputed,
    SemiInteractiveLearner,
)

GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(40, 3)) / 4
Y = np.sign(X[:, 0])
BINARY = {"classes": [-1, 1], "alpha": 0.1}


def repeated(value: float, times: int) -> sparse.csr_array:
    """A row whose entries all stand in the same place: each is short, and their sum is not."""
    content = (np.full(times, value), np.zeros(times, np.int32), np.array([0, times]))
    return sparse.csr_array(content, shape=(1, 3))


def test_entries_that_stand_in_one_place_count_as_their_sum():
    long = repeated(0.01, 10_000)
    learner = InteractiveLearner(kernel=Linear(1.0), questions=5, **BINARY).fit(X, Y)
    with pytest.raises(InvalidInput, match="above the declared bound"):
        learner.ask(long)
    for kernel in (Linear(1.0), Polynomial(3, 1.0, 1.0)):
        inside, factors = kernel.inside(kernel.points(long))
        assert factors[0] ** 2 * kernel.matrix(inside, inside)[0, 0] <= kernel.bound**2
    assert long.nnz == 10_000  # the caller's matrix is left alone
    with pytest.raises(InvalidInput, match="infinite"):
        Linear(1.0).points(repeated(1e308, 2))


GRAM = np.vstack([X, X[:5]]) @ np.vstack([X, X[:5]]).T


@pytest.mark.parametrize(
    "make",
    [
        lambda kernel: SemiInteractiveLearner(kernel=kernel, public_points=[3, 41], **BINARY),
        lambda kernel: NonInteractiveLearner(kernel=kernel, candidates=[3, 41], **BINARY),
        lambda kernel: LandmarkClassifier(kernel=kernel, landmarks=[3, 41], **BINARY),
        lambda kernel: GaussianProcessRelease(kernel=kernel, landmarks=[3, 41], **BINARY),
    ],
)
def test_a_private_records_number_is_no_public_point(make):
    with pytest.raises(InvalidInput, match="private record"):
        make(Precomputed(GRAM, 1.0)).fit(np.arange(40), Y)


@pytest.mark.parametrize("kind", [GaussianProcessRelease, InteractiveLearner])
def test_nor_can_it_be_asked(kind):
    model = kind(kernel=Precomputed(GRAM, 1.0), **BINARY).fit(np.arange(40), Y)
    with pytest.raises(InvalidInput, match="private record"):
        model.decision_function([41, 3])
    assert model.decision_function([41, 42]).shape == (2,)


def test_a_released_model_does_not_carry_the_gram_matrix_away():
    model = SemiInteractiveLearner(kernel=Precomputed(GRAM, 1.0), public_points=[40, 41], **BINARY)
    model.fit(np.arange(40), Y)
    with pytest.raises(StateError, match="not pickled"):
        pickle.dumps(model)


def test_a_failed_pickle_writes_no_private_row(tmp_path):
    model = GaussianProcessRelease(kernel=RBF(1.0), **BINARY).fit(X, Y)
    path = tmp_path / "model.pickle"
    with path.open("wb") as file, pytest.raises(StateError, match="cannot be copied or pickled"):
        pickle.dump(model, file)
    assert not any(row.tobytes() in path.read_bytes() for row in X)


def test_a_matrix_of_low_rank_is_a_kernels_however_large():
    rows = np.abs(GENERATOR.normal(size=(1200, 2)))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    kernel = Precomputed(rows @ rows.T, 1.0)
    assert kernel.rounding(1) < 1e-11


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="words", epsilon=10.0, delta=1e-3)


def test_a_session_goes_on_only_with_the_ledger_it_was_debited_from(ledger, tmp_path):
    model = GaussianProcessRelease(kernel=RBF(1.0), state=tmp_path / "session.db", **BINARY)
    model.fit(X, Y)
    with pytest.raises(StateError, match="not debited"):
        model.set_params(ledger=ledger).fit(X, Y)
    assert ledger.history() == []
    debited = GaussianProcessRelease(kernel=RBF(1.0), state=tmp_path / "other.db", ledger=ledger, **BINARY)
    first = debited.fit(X, Y).decision_function(X[:3])
    again = GaussianProcessRelease(kernel=RBF(1.0), state=tmp_path / "other.db", ledger=ledger, **BINARY)
    np.testing.assert_array_equal(again.fit(X, Y).decision_function(X[:3]), first)
    assert len(ledger.history()) == 1


def test_a_file_of_other_noise_is_refused(tmp_path, monkeypatch):
    """Another version might plan another scale for the same settings; its noise would not fit the old answers."""
    from epsilearn.mechanisms import session

    options = {"kernel": RBF(1.0), "state": tmp_path / "session.db", **BINARY}
    GaussianProcessRelease(**options).fit(X, Y)
    monkeypatch.setattr(session, "_LEAST_JITTER", 2.0**-13)
    with pytest.raises(StateError, match="other settings"):
        GaussianProcessRelease(**options).fit(X, Y)
