"""Every guard in the matrix is what makes it hold: with any one of them taken out, a cell shows something.

A refusal rests on the function that raises it, and `test_every_refusal_has_its_guard` finds that function out for each
cell that refuses. Some of them keep private values in, and are among the `GUARDS`, beside those that keep silence
without refusing anything. The others (`NO_WAY_ON`) refuse what has no meaning: behind them is no way to go on, and what
they decide by are settings and types.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.joints.homes import IN_PARTS
from tests.joints.matrix import CELLS, LEAKS, REFUSES, outcome
from tests.joints.test_joints import expected

from epsilearn.errors import EpsilearnError

NO_WAY_ON = {
    "rows.parts.check_in_memory": "records are judged one by one, and those of a table in parts are elsewhere",
    "kernel.model.KernelLearner.fit": "kernel machines compare records with each other, which parts cannot",
    "preprocessing._as_table": "a scaler of dense columns",
    "evaluation._check_asked": "a table that the model was not fitted to the likes of",
    "linear.model.PrivateLinearModel._strength": "noisy gradients have no pure promise",
    "kernel.non_interactive.NonInteractiveLearner._check_settings": "its rounds have no pure promise",
}


def silent_no_more(monkeypatch):
    """Without the silence around private values, wherever it is kept."""
    monkeypatch.setattr("epsilearn.quiet.np.errstate", lambda **_: contextlib.nullcontext())


def without(*places):
    def remove(monkeypatch):
        for place in places:
            monkeypatch.setattr(place, lambda *arguments, **words: [])

    return remove


def trusting(*change):
    return lambda monkeypatch: monkeypatch.setattr(*change)


def cells_of(*consumers, models=None):
    """All cells of some consumers, where rows are in memory or in files that a command reads."""
    mine = [cell for cell in CELLS.values() if cell.consumer in consumers and cell.home not in IN_PARTS]
    return [cell.name for cell in mine if models is None or cell.model in models]


# Of the sessions the one whose next answers show at once what it was asked.
REMEMBERING = ("GaussianProcessRelease",)

# What a guard is called, how it is taken out, and all cells that show something then. Where it refuses, its name begins
# with the function that does.
GUARDS = {
    "sessions._refusal, of scores": (
        # A session is refused where it can be seen, and refuses by itself where it cannot.
        without("epsilearn.evaluation.check_function", "epsilearn.mechanisms.selection.check_asked_publicly"),
        cells_of("private_score", "private_score, nested", models=REMEMBERING),
    ),
    "sessions._refusal, of selections": (
        # Where candidates are scored, a session is refused twice more. Random stopping is pure, which no session is.
        without(
            "epsilearn.candidates.check_function",
            "epsilearn.evaluation.check_function",
            "epsilearn.mechanisms.selection.check_asked_publicly",
        ),
        cells_of("selection, parts", models=REMEMBERING),
    ),
    "candidates._check": (
        trusting("epsilearn.candidates.judged", lambda _: SimpleNamespace(learning=[], private=[], assumptions=[])),
        cells_of("swapped step"),
    ),
    "identity.check_apart, of models": (
        without("epsilearn.linear.model.check_apart", "epsilearn.kernel.model.check_apart"),
        cells_of("own landmarks", "own points"),
    ),
    "identity.check_apart, of selections": (
        without("epsilearn.selection.check_apart"),
        cells_of("selected landmarks"),
    ),
    "cli.fit.fit": (
        trusting(Path, "samefile", lambda *_: False),
        cells_of("epsilearn fit, own landmarks"),
    ),
    "a kernel that fails counts as 0": (
        trusting("epsilearn.kernel.objects.UserKernel.total", property(lambda self: self)),
        cells_of("own kernel"),
    ),
    "a model that fails is wrong": (
        trusting("epsilearn.evaluation._predicted", lambda model, X: model.predict(X)),
        cells_of("failing model"),
    ),
    "private values are looked at in silence": (
        silent_no_more,
        cells_of("strict numpy", models=("GaussianProcessRelease", "LandmarkClassifier")),
    ),
    "warnings of users' functions do not leave": (
        trusting("epsilearn.quiet._WhileQuiet.match", lambda *_: False),
        cells_of("warning model", "own loss"),
    ),
}


def guarded():
    for guard, (_, names) in GUARDS.items():
        for name in names:
            quick = CELLS[name].home in ("numpy", "sparse", "the file itself") and "nested" not in name
            yield pytest.param(guard, name, marks=() if quick else pytest.mark.exhaustive)


@pytest.mark.parametrize(("guard", "name"), list(guarded()))
def test_without_a_guard_the_matrix_fails(guard, name, monkeypatch):
    remove, _ = GUARDS[guard]
    remove(monkeypatch)
    # The first few neighbours go the farthest; what they do not show takes more of them.
    assert any(outcome(CELLS[name].replayed(count)) == LEAKS for count in (3, 30))


def refusing():
    """Cells that refuse, in homes of each sort; other homes of a sort are no different before a row is read."""
    seen = [cell for cell in CELLS.values() if expected(cell) == REFUSES and "nested" not in cell.consumer]
    return [cell for cell in seen if cell.home in ("numpy", "sparse", "Parquet") or "own landmarks" in cell.consumer]


def test_every_refusal_has_its_guard(monkeypatch):
    """The functions that raise are found by running all cells that refuse; a new one belongs to one of the lists."""
    raised: list[str] = []

    def noted(error, *arguments):
        Exception.__init__(error, *arguments)
        frame = sys._getframe(1)
        raised.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}".removeprefix("epsilearn."))

    monkeypatch.setattr(EpsilearnError, "__init__", noted)
    guards: dict[str, str] = {}
    for cell in refusing():
        raised.clear()
        with pytest.raises(Exception) as caught:  # noqa: PT011 - commands and scikit-learn have errors of their own
            cell.run(*cell.table)
        if raised:
            guards[raised[-1]] = cell.name
        else:
            assert type(caught.value).__module__ == "builtins", cell.name
    assert set(guards) == {guard.partition(",")[0] for guard in GUARDS if "." in guard} | set(NO_WAY_ON), guards


@pytest.mark.parametrize(
    "name", ["private_score | LogisticRegression | Parquet", "selection, parts | LogisticRegression | Dask"]
)
def test_behind_the_refusal_of_parts_is_no_way_on(name, monkeypatch):
    """Without it these cells refuse all the same, only not in words that help."""
    before = CELLS[name].replayed(1)
    for place in ("evaluation", "linear.model", "selection"):
        monkeypatch.setattr(f"epsilearn.{place}.check_in_memory", lambda _: None)
    after = CELLS[name].replayed(1)
    assert outcome(before) == outcome(after) == REFUSES
    assert before.ended != after.ended
