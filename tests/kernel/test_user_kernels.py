"""Functions of somebody else's: no record may decide by them whether there is an answer."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import numpy as np
import pytest

from epsilearn import Ledger
from epsilearn.errors import InvalidInput
from epsilearn.kernel import (
    RBF,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    Linear,
    NonInteractiveLearner,
    SemiInteractiveLearner,
    UserKernel,
)
from epsilearn.kernel.hypothesis import Hypothesis

WORDS = ["ab", "ac", "ba", "bc", "ca", "cb"] * 2
NEIGHBOUR = ["bad", *WORDS[1:]]
LABELS = np.tile([-1, 1], 6)
PUBLIC = ["aa", "bb", "abc"]
COMMON = {"classes": [-1, 1], "alpha": 0.1}


def common(a: str, b: str) -> float:
    """How many letters two words share, which is the inner product of two vectors."""
    return float(len(set(a) & set(b)))


def warned(value: float) -> float:
    warnings.warn("this word is odd", UserWarning, stacklevel=1)
    return value


FAILURES = {
    "raises": lambda: {}["bad"],
    "divides by zero": lambda: np.float64(1) / np.float64(0),
    "underflows": lambda: np.float64(1e-200) * np.float64(1e-200),
    "is no number": lambda: np.nan,
    "is infinite": lambda: -np.inf,
    "is large": lambda: 1.7e308,
    "warns": lambda: warned(1.0),
    "has two values": lambda: np.array([1.0, 2.0]),
    "is an array": lambda: np.array([1.0]),
    "is complex": lambda: np.complex128(1 + 1j),
    "is a text": lambda: "1.0",
    "is nothing": lambda: None,
}
MODELS = {
    "process": lambda **options: GaussianProcessRelease(max_points=9, **options),
    "process on landmarks": lambda **options: GaussianProcessRelease(landmarks=PUBLIC, **options),
    "interactive": lambda **options: InteractiveLearner(questions=9, **options),
    "as printed": lambda **options: InteractiveLearner(questions=9, calibration="paper", **options),
    "semi-interactive": lambda **options: SemiInteractiveLearner(public_points=PUBLIC, **options),
    "non-interactive": lambda **options: NonInteractiveLearner(candidates=PUBLIC, **options),
    "landmarks": lambda **options: LandmarkClassifier(landmarks=PUBLIC, **options),
}


class Spy:
    """A ledger that counts."""

    debits = 0

    @contextmanager
    def spend(self, guarantee, _purpose):
        self.debits += 1
        yield guarantee


def failing(failure, *, alone: bool = True, public: bool = True) -> UserKernel:
    """A kernel that fails on the neighbour's record: by itself, or beside others, or beside public words only."""

    def function(a: str, b: str) -> float:
        if "bad" not in (a, b) or (a == b and not alone) or (public and not {a, b} & set(PUBLIC)):
            return common(a, b)
        return failure()

    return UserKernel(function, declared=2.0)


def outcome(make, kernel: UserKernel, words: list[str]):
    spy = Spy()
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(kernel=kernel, ledger=spy, **COMMON).fit(words, LABELS)
        scores = model.decision_function(PUBLIC[:2])
        # A predictor may be asked about anything, records that it is judged by included.
        public_only = isinstance(model, (GaussianProcessRelease, InteractiveLearner))
        judged = np.zeros(1) if public_only else model.decision_function([words[0]])
    left = model.points_left_ if hasattr(model, "points_left_") else getattr(model, "_session_", None)
    left = left.questions_left if hasattr(left, "questions_left") else left
    return spy.debits, np.isfinite(scores).all(), np.isfinite(judged).all(), left, model.guarantee_


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("where", ["anywhere", "beside others", "beside public points"])
def test_no_record_decides_whether_there_is_an_answer(name, where):
    for failure in FAILURES.values():
        kernel = failing(failure, alone=where == "anywhere", public=where == "beside public points")
        first, second = (outcome(MODELS[name], kernel, words) for words in (WORDS, NEIGHBOUR))
        assert first == second
        assert first[:3] == (1, True, True)
    if name in ("process", "interactive", "as printed"):
        assert first[3] == 7  # each question has been counted


def test_a_failure_is_worth_nothing():
    """The value of a pair is 0, and all of a record's features are where it fails by itself."""
    kernel = failing(FAILURES["raises"], public=False)
    np.testing.assert_array_equal(kernel.total.matrix(["ab", "bad"], ["ab", "bad"]), [[2.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(kernel.inside(["ab", "bad", "ca"])[1] > 0, [True, False, True])
    # One that says that it has no length has none beside others either.
    odd = UserKernel(lambda a, b: common(a, b) if a != b else 0.0, declared=2.0)
    np.testing.assert_array_equal(odd.inside(["ab", "cb"])[1], [0.0, 0.0])


@pytest.mark.parametrize(
    "function", [lambda a, b: 1.0 if a == b else -1.0, lambda a, b: 1.0 if a == b else {}[a], lambda a, b: 0.0]
)
@pytest.mark.parametrize("name", ["process", "interactive"])
def test_a_function_that_is_no_kernels_still_has_an_answer(name, function):
    """Whether it is one depends on the records; where there is no minimiser, zero stands in for it."""
    words = [f"{number}{letter}" for number in range(2) for letter in "abcdef"]
    spy = Spy()
    model = MODELS[name](kernel=UserKernel(function, 1.0), ledger=spy, **COMMON).fit(words, LABELS)
    assert spy.debits == 1
    assert np.isfinite(model.decision_function(["1a"])).all()


def test_all_pairs_are_tried_before_anything_is_spent(tmp_path):
    """A function that takes long may be interrupted, and that should cost nothing."""
    ledger = Ledger.create(tmp_path / "budget.db", dataset="words", epsilon=9.0, delta=1e-3)
    asked = []

    def interrupted(a: str, b: str) -> float:
        asked.append((a, b))
        if len(asked) == 40:
            raise KeyboardInterrupt
        return common(a, b)

    with pytest.raises(KeyboardInterrupt):
        GaussianProcessRelease(kernel=UserKernel(interrupted, 2.0), ledger=ledger, **COMMON).fit(WORDS, LABELS)
    assert ledger.history() == []


def test_what_is_public_may_fail_and_costs_nothing():
    spy = Spy()

    def function(a: str, b: str) -> float:
        return {}[a] if "odd" in (a, b) else common(a, b)

    kernel = UserKernel(function, 2.0)
    for make in (
        lambda: GaussianProcessRelease(kernel=kernel, landmarks=["aa", "odd"], ledger=spy, **COMMON),
        lambda: LandmarkClassifier(kernel=kernel, landmarks=["aa", "odd"], ledger=spy, **COMMON),
        lambda: SemiInteractiveLearner(kernel=kernel, public_points=["aa", "odd"], ledger=spy, **COMMON),
        lambda: NonInteractiveLearner(kernel=kernel, candidates=["aa", "odd"], ledger=spy, **COMMON),
    ):
        with pytest.raises(InvalidInput, match="KeyError"):
            make().fit(WORDS, LABELS)
    assert spy.debits == 0
    model = GaussianProcessRelease(kernel=kernel, max_points=9, **COMMON).fit(WORDS, LABELS)
    with pytest.raises(InvalidInput, match="KeyError"):
        model.decision_function(["odd"])
    assert model.points_left_ == 9
    with pytest.raises(InvalidInput, match="a function of two points"):
        UserKernel("common", 2.0)


@pytest.mark.parametrize("kept", [False, True])
def test_two_public_points_that_fail_together_are_no_way_to_ask_for_nothing(kept, tmp_path):
    """Within a batch an error would tell that the first one was answered by the private model, and take it back."""

    def function(a: str, b: str) -> float:
        return {}[a] if {a, b} == {"aa", "bb"} else common(a, b)

    model = InteractiveLearner(
        kernel=UserKernel(function, 2.0), loss="hinge", questions=9, epsilon=4000.0, alpha=0.5, norm=0.3,
        classes=[-1, 1], random_state=0, state=tmp_path / "session.db" if kept else None,
    ).fit(["ab", "cd"] * 60, [1, -1] * 60)  # fmt: skip
    answers = model.ask(["aa", "bb"])
    assert [answer.source for answer in answers] == ["private model"] * 2
    assert answers[-1].questions_left == 7


@pytest.mark.parametrize("kernel", [Linear(1.0), RBF(1.0)])
def test_a_point_without_features_moves_no_hypothesis(kernel):
    """Its coefficient would leave the doubles, and whatever was asked next would be no number."""
    function = Hypothesis(kernel)
    for square in (0.0, 5e-324, 1e-320, 1e-120):
        assert function.move(1.0, square) == 0.0
    assert function.move(1.0, 0.5) == 2.0


def test_a_kernel_can_be_tried_on_public_points():
    UserKernel(common, 2.0).check(["ab", "ba", "c"])
    for function, text in (
        (lambda a, b: float(a != b), "negative eigenvalues"),
        (lambda a, b: {}[a], "KeyError"),
        (lambda a, b: np.nan, "finite"),
        (lambda a, b: "1", "TypeError"),
        (lambda a, b: 9.0, "above the declared bound"),
    ):
        with pytest.raises(InvalidInput, match=text):
            UserKernel(function, 2.0).check(["ab", "ba", "c"])


def test_the_guarantee_lists_what_it_assumes_of_a_function():
    for name in ("process", "interactive", "landmarks"):
        model = MODELS[name](kernel=UserKernel(common, 2.0), **COMMON).fit(WORDS, LABELS)
        stated = " ".join(model.guarantee_.assumptions)
        assert "positive semi-definite, with 0 wherever its function fails" in stated
        assert "keeps no memory across records" in stated
    planned = MODELS["landmarks"](kernel=UserKernel(common, 2.0), **COMMON).plan(rows=30, features=1)
    assert "keeps no memory across records" in " ".join(planned.promise.assumptions)


@pytest.mark.parametrize("first", ["pat\ud800ient", b"ab", object(), float("nan"), None], ids=type)
@pytest.mark.parametrize("kept", [False, True])
def test_a_record_that_cannot_be_written_down_decides_nothing(tmp_path, first, kept):
    kernel = UserKernel(lambda a, b: float(a is b or a == b), declared=1.0)
    model = GaussianProcessRelease(kernel=kernel, state=tmp_path / "session.db" if kept else None, **COMMON)
    model.fit([first, *WORDS[1:]], LABELS)
    assert model.points_left_ == 1000
    with pytest.raises(InvalidInput, match="cannot be written down") as caught:
        model.decision_function([b"ab"])  # a public point
    assert caught.value.__context__ is None
