"""Settings that are the private table: told by identity and memory, never by contents, before anything is spent."""

from __future__ import annotations

import array
from enum import Enum
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from epsilearn import (
    BoundedScaler,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    LandmarkRegressor,
    Lasso,
    Ledger,
    LogisticRegression,
    NonInteractiveLearner,
    PrivateSelection,
    SemiInteractiveLearner,
)
from epsilearn.constraints import Polytope
from epsilearn.errors import InvalidInput
from epsilearn.identity import check_apart
from epsilearn.kernel import RBF, Linear, UserKernel

REFUSED = "is the private table, or a part or view of it"


def rows(n: int = 60) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3)) / 4


def frame() -> pd.DataFrame:
    X = rows()
    found = pd.DataFrame(X, columns=["a", "b", "c"])
    found["text"] = ["x"] * len(X)
    found["kind"] = pd.Categorical(["u"] * len(X))
    found["count"] = pd.array(range(len(X)), dtype="Int64")
    found["arrow"] = pd.array([1.0] * len(X), dtype="double[pyarrow]")
    found["day"] = pd.date_range("2020", periods=len(X))
    return found


def refused(setting, X, y=None) -> bool:
    try:
        check_apart(LandmarkClassifier(landmarks=setting), X, y)
    except InvalidInput as error:
        return REFUSED in str(error)
    return False


ARRAY, FRAME, MATRIX = rows(), frame(), sparse.csr_array(rows())
POLARS = pl.DataFrame({"a": rows()[:, 0], "text": [f"long enough to lie elsewhere {k}" for k in range(60)]})
ARROW = pa.table({"a": rows()[:, 0], "text": ["x"] * 60})
LIST, OF_ARRAYS = ARRAY.tolist(), list(ARRAY.copy())
SETS = [frozenset({k}) for k in range(60)]
OBJECTS = np.empty(60, object)
OBJECTS[:] = [[k] for k in range(60)]

SAME = {
    "array": (ARRAY, ARRAY),
    "slice": (ARRAY[5:9], ARRAY),
    "steps": (ARRAY[::7], ARRAY),
    "column": (ARRAY[:, 1], ARRAY),
    "transposed": (ARRAY.T, ARRAY),
    "table is the view": (ARRAY, ARRAY[10:20]),
    "broadcast": (np.broadcast_to(ARRAY[0], (5, 3)), ARRAY),
    "list of views": ([ARRAY[3], ARRAY[4]], ARRAY),
    "dict": ({"deep": [(1, [ARRAY[:2]])]}, ARRAY),
    "memoryview": (memoryview(ARRAY), ARRAY),
    "array.array": (buffer := array.array("d", [1.0] * 9), np.frombuffer(buffer).reshape(3, 3)),
    "frame": (FRAME, FRAME),
    "frame's rows": (FRAME.iloc[:5], FRAME),
    "frame's array": (FRAME["a"].to_numpy(), FRAME),
    "array in a frame": (pd.DataFrame(ARRAY, copy=False).iloc[:5], ARRAY),
    **{f"column {name}": (FRAME[name].iloc[:5], FRAME) for name in FRAME},
    "polars": (POLARS, POLARS),
    "polars' rows": (POLARS[:5], POLARS),
    "polars' numbers": (POLARS["a"], POLARS),
    "polars' texts": (POLARS.select("text"), POLARS),
    "polars' array": (POLARS["a"].to_numpy(), POLARS),
    "arrow": (ARROW.slice(0, 5), ARROW),
    "arrow's column": (ARROW["text"], ARROW),
    "arrow in polars": (pl.from_arrow(ARROW), ARROW),
    "sparse": (MATRIX, MATRIX),
    "sparse transposed": (MATRIX.T, MATRIX),
    "sparse numbers": (MATRIX.data[:9], MATRIX),
    "sparse as coordinates": (MATRIX.tocoo(copy=False), MATRIX),
    "list": (LIST, LIST),
    "list's rows": (LIST[:3], LIST),
    "a row in a list": ([LIST[7]], LIST),
    "list of arrays": (OF_ARRAYS[:3], OF_ARRAYS),
    "view of a row": (OF_ARRAYS[2][:1], OF_ARRAYS),
    "sets": (SETS[:2], SETS),
    "objects": (OBJECTS[:3], OBJECTS),
    "an object": ([OBJECTS[3]], OBJECTS),
}


@pytest.mark.parametrize(("setting", "X"), SAME.values(), ids=SAME)
def test_the_table_and_its_parts_are_told(setting, X):
    assert refused(setting, X)
    assert refused(setting, np.zeros((2, 2)), X) or isinstance(X, list) or X is OBJECTS  # as targets


class Colour(Enum):
    RED, BLUE = 1, 2


APART = {
    "copy": (ARRAY.copy(), ARRAY),
    "chosen rows": (ARRAY[[1, 2, 3]], ARRAY),
    "other rows of one array": (ARRAY[:30], ARRAY[30:]),
    "every other row": (ARRAY[::2], ARRAY[1::2]),
    "other columns": (ARRAY[:, :1], ARRAY[:, 1:]),
    "frame's copy": (FRAME[["a", "b"]].copy(), FRAME),
    "sparse copy": (MATRIX.copy(), MATRIX),
    "equal lists": ([list(row) for row in LIST], LIST),
    "polars' sample": (POLARS.sample(5, seed=0).select("a"), POLARS),
    "numbers": ([1.0, 2.0], [1.0, 2.0]),
    "texts": (["a", "b"], ["a", "b"]),
    "members": ([Colour.RED], [Colour.RED, Colour.BLUE]),
    "empty": ([(), frozenset()], [(), frozenset()]),
    "nothing": (None, None),
    "no rows": (np.zeros((0, 3)), np.zeros((0, 3))),
}


@pytest.mark.parametrize(("setting", "X"), APART.values(), ids=APART)
def test_equal_contents_are_no_reason(setting, X):
    assert not refused(setting, X)


def test_labels_may_be_named_in_classes():
    labels = [Fraction(1, 3), (1, 2), Colour.RED]
    check_apart(LogisticRegression(classes=labels[:2]), ARRAY, [labels[0], labels[1]])
    with pytest.raises(InvalidInput, match=REFUSED):
        check_apart(LogisticRegression(classes=labels), ARRAY, labels)


class Odd:
    """Fails wherever it is looked at."""

    shape = columns = chunks = data = property(lambda self: 1 / 0)

    def __array__(self, *_):
        raise MemoryError

    def __eq__(self, other):
        raise RuntimeError

    def __len__(self):
        raise RuntimeError

    __hash__ = None


@pytest.mark.parametrize("odd", [Odd(), object(), iter([1]), {1: 2}, range(3), b"x", pl.LazyFrame({"a": [1]})])
def test_odd_things_are_no_error(odd):
    loop: list = [odd]
    loop.append(loop)
    assert not refused(loop, ARRAY)
    assert not refused(ARRAY.copy(), odd)
    assert not refused([ARRAY.copy()], [odd])


def test_contents_are_never_compared():
    class Deaf(np.ndarray):
        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("compared")

        def __getitem__(self, key):
            raise AssertionError("read")

    assert not refused(ARRAY.copy().view(Deaf), ARRAY.copy().view(Deaf))


FITTED = {
    "landmarks": lambda Z: LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, classes=[0, 1]),
    "landmarks of a regression": lambda Z: LandmarkRegressor(kernel=RBF(0.5), landmarks=Z, target_bound=1.0),
    "public points": lambda Z: SemiInteractiveLearner(kernel=RBF(0.5), public_points=Z, classes=[0, 1]),
    "candidates": lambda Z: NonInteractiveLearner(kernel=RBF(0.5), candidates=Z, classes=[0, 1]),
    "a process's landmarks": lambda Z: GaussianProcessRelease(landmarks=Z, classes=[0, 1]),
    "a session's landmarks": lambda Z: InteractiveLearner(landmarks=Z, questions=10, classes=[0, 1]),
    "corners": lambda Z: Lasso(constraint=Polytope(Z), feature_bound=1.0, target_bound=1.0),
    "labels": lambda Z: LogisticRegression(data_norm=1.0, classes=Z),
}


@pytest.mark.parametrize("make", FITTED.values(), ids=FITTED)
def test_no_estimator_takes_the_table_as_public(make, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0, delta=1e-3)
    X, y = rows(), (rows()[:, 0] > 0).astype(int)
    for given in (X, X[:10], [X[0], X[1]]):
        with pytest.raises(InvalidInput, match=REFUSED):
            make(given).set_params(ledger=ledger).fit(X, y)
    with pytest.raises(InvalidInput, match=REFUSED):
        make(FRAME[["a", "b", "c"]]).set_params(ledger=ledger).fit(FRAME[["a", "b", "c"]], y)
    assert ledger.history() == []


def test_public_points_of_ones_own_are_taken():
    X, y = rows(), (rows()[:, 0] > 0).astype(int)
    LandmarkClassifier(kernel=RBF(0.5), landmarks=rows(10).copy(), classes=[0, 1]).fit(X, y)
    texts = ["ab", "bc", "cd"] * 20
    kernel = UserKernel(lambda a, b: float(len(set(a) & set(b))), declared=2.0)
    SemiInteractiveLearner(kernel=kernel, public_points=["ab", "cd"], alpha=0.1, classes=[0, 1]).fit(texts, y)
    sets = [frozenset(text) for text in texts]
    with pytest.raises(InvalidInput, match=REFUSED):
        SemiInteractiveLearner(kernel=kernel, public_points=sets[:2], alpha=0.1, classes=[0, 1]).fit(sets, y)


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_a_selection_looks_before_it_clones(strategy, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0, delta=1e-3)
    X, y = rows(), (rows()[:, 0] > 0).astype(int)
    model = LandmarkClassifier(kernel=Linear(1.0), landmarks=np.eye(3), rank=None, whitening=0.0, classes=[0, 1])
    pipeline = make_pipeline(FunctionTransformer(), model)
    leaky = LandmarkClassifier(kernel=Linear(1.0), landmarks=X[:5], classes=[0, 1])
    for estimator, grid in (
        (leaky, {"alpha": [0.1]}),
        (model, {"landmarks": [np.eye(3), X]}),
        (make_pipeline(BoundedScaler(bounds=(-1, 1)), leaky), {"landmarkclassifier__alpha": [0.1]}),
        (pipeline, [{"landmarkclassifier": [leaky]}]),
        (pipeline, {"landmarkclassifier__landmarks": [X[::2]]}),
    ):
        with pytest.raises(InvalidInput, match=REFUSED):
            PrivateSelection(estimator, grid, strategy=strategy, ledger=ledger).fit(X, y)
    assert ledger.history() == []
    PrivateSelection(model, {"landmarks": [np.eye(3), -np.eye(3)]}, strategy=strategy, stop=0.5).fit(X, y)


def test_a_job_looks_at_its_landmarks_as_they_were_given():
    from epsilearn.job import Job
    from epsilearn.schema import Schema
    from epsilearn.schema_columns import Column

    schema = Schema({"a": Column(bounds=(-1, 1)), "b": Column(bounds=(-1, 1)), "y": Column(categories=("no", "yes"))})
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(40, 2))
    job = Job(schema, "y", model="landmark", epsilon=1.0, delta=1e-6, landmarks=X[:10])
    with pytest.raises(InvalidInput, match=REFUSED):
        job.fit(X, (X[:, 0] > 0).astype(int))


def test_a_file_that_is_mapped_twice_is_one_table(tmp_path):
    np.save(tmp_path / "rows.npy", rows())
    first, second = (np.load(tmp_path / "rows.npy", mmap_mode="r") for _ in range(2))
    with pytest.raises(InvalidInput, match=REFUSED):
        check_apart(LandmarkClassifier(landmarks=second[:5]), first)
    np.save(tmp_path / "public.npy", rows())
    check_apart(LandmarkClassifier(landmarks=np.load(tmp_path / "public.npy", mmap_mode="r")), first)


def test_memory_behind_an_object_that_is_only_like_an_array():
    class Like:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return self.values

    X = rows()
    for settings, table in ((X[:5], Like(X)), (Like(X[:5]), X)):
        with pytest.raises(InvalidInput, match=REFUSED):
            check_apart(LandmarkClassifier(landmarks=settings), table)
