"""The catalogue: everything of this library that can be audited by name, each with its universe of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import epsilearn
from epsilearn.audit.neighbours import Case, Universe, pairs
from epsilearn.checks import check_budget, check_choice, check_integer
from epsilearn.errors import InvalidInput

__all__ = ["SUBJECTS", "Column", "Noise", "Options", "Subject", "subject"]

_CLASSES = (0.0, 1.0)
_DELTA = 0.01  # of what cannot be pure; a larger one is easier to see something at


@dataclass(frozen=True)
class Options:
    """How to build what is audited; what is left out is the subject's own affair, or the search's.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    method, calibration : str, optional
        As the estimator takes them.
    alpha : float, optional
        The regularisation; several are tried if left out.
    rows : int, optional
        How many records the tables have; several numbers are tried if left out.
    columns : int
        How many features.
    intercept, centre : bool
        Whether to fit an intercept, and whether to move rows by a private mean first.
    margin : float, optional
        As the estimator takes it.
    rows_per_person : int, optional
        How many records one person has; the tables then differ in so many.
    """

    epsilon: float = 1.0
    delta: float | None = None
    method: str | None = None
    calibration: str | None = None
    alpha: float | None = None
    rows: int | None = None
    columns: int = 1
    intercept: bool = False
    centre: bool = False
    margin: float | None = None
    rows_per_person: int | None = None


@dataclass(frozen=True)
class Subject:
    """Something that can be audited by name.

    Attributes
    ----------
    title : str
        What it is.
    make : callable
        From a number of columns to an estimator, everything but the budget decided.
    universe : callable
        From a number of columns to the records it is for.
    alphas : tuple of float
        Regularisations to try; none where there is nothing to regularise.
    rows : tuple of int
        Numbers of records to try.
    delta : float
        The delta, if nobody says.
    statistic : callable, optional
        What its releases show.
    places : tuple of bool
        Whether the replaced record is tried as the first row, as the last, or both.
    """

    title: str
    make: Callable[[int], Any]
    universe: Callable[[int], Universe]
    alphas: tuple[float, ...] = ()
    rows: tuple[int, ...] = (1, 2)
    delta: float = 0.0
    statistic: Callable[[Any], Any] | None = None
    places: tuple[bool, ...] = (False,)

    def cases(self, options: Options) -> list[Case]:
        """Mechanisms and neighbours to try."""
        columns, universe = options.columns, self.universe(check_integer("--columns", options.columns))
        sizes = self.rows if options.rows is None else (check_integer("--rows", options.rows),)
        copies = check_integer("--rows-per-person", 1 if options.rows_per_person is None else options.rows_per_person)
        alphas = self.alphas if options.alpha is None else (options.alpha,)
        found = []
        for alpha, rows in product(alphas or (None,), sizes):
            estimator = self._estimator(columns, options, alpha)
            setting = ", ".join(([] if alpha is None else [f"alpha = {alpha:g}"]) + [f"n = {max(rows, copies)}"])
            found += [
                Case.of(estimator, pair, universe, self.statistic, f"{setting}: ")
                for pair in pairs(universe, rows, self.places, copies)
            ]
        return found

    def _estimator(self, columns: int, options: Options, alpha: float | None) -> Any:
        estimator = self.make(columns)
        known = estimator.get_params()
        wanted = {
            "epsilon": options.epsilon,
            "delta": self.delta if options.delta is None else options.delta,
            "method": options.method,
            "calibration": options.calibration,
            "alpha": alpha,
            "fit_intercept": True if options.intercept or options.centre else None,
            "centre": True if options.centre else None,
            "margin": options.margin,
            "rows_per_person": options.rows_per_person,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        for name in given:
            if name not in known:
                word = "intercept" if name == "fit_intercept" else name.replace("_", "-")
                raise InvalidInput(f"--{word} has no meaning here: {type(estimator).__name__} has no such setting")
        return estimator.set_params(**given)


@dataclass(frozen=True)
class Noise:
    """A mechanism of the library, on two values that its sensitivity allows.

    Attributes
    ----------
    title : str
        What it is.
    release : callable
        From a value, and a budget by name, to a release.
    first, second : object
        The values.
    delta : float
        The delta, if nobody says.
    laplace : bool
        Whether it is one number with Laplace noise, whose floats a bit-level audit knows best.
    """

    title: str
    release: Callable[..., Any]
    first: Any
    second: Any
    delta: float = 0.0
    laplace: bool = False

    def cases(self, options: Options) -> list[Case]:
        """The one there is."""
        _check_budget_alone(options)
        delta = self.delta if options.delta is None else options.delta
        if delta and not self.delta:
            raise InvalidInput("this mechanism is pure; leave --delta out")
        if self.delta and not delta:
            raise InvalidInput("this mechanism has no pure promise; --delta must lie strictly between 0 and 1")
        epsilon, _ = check_budget(options.epsilon, delta)
        settings = {"sensitivity": 1.0, "epsilon": epsilon, **({"delta": delta} if delta else {})}
        release = self.release
        return [
            Case(
                lambda value: release(value, **settings),
                self.first,
                self.second,
                f"{self.first} against {self.second}, sensitivity 1",
                settings={"function": release.__name__, **settings},
                float_noise=((self.first, self.second), 1 / epsilon) if self.laplace else None,
            )
        ]


@dataclass(frozen=True)
class Column:
    """A statistic of the library, on two columns that differ in one number.

    Attributes
    ----------
    title : str
        What it is.
    release : callable
        From a column, and an epsilon by name, to a release.
    """

    title: str
    release: Callable[..., Any]

    def cases(self, options: Options) -> list[Case]:
        """One number at either end of the bounds, beside others in the middle or at an end."""
        _check_budget_alone(options)
        if options.delta:
            raise InvalidInput("statistics are pure; leave --delta out")
        epsilon, _ = check_budget(options.epsilon)
        release = self.release

        def mechanism(column: Any) -> Any:
            return release(column, epsilon=epsilon)

        return [
            Case(
                mechanism, np.append(others, 0.0), np.append(others, 1.0), f"0 against 1, after {words}",
                settings={"statistic": self.title, "epsilon": epsilon}, labels=(False,),
            )
            for words, others in (("4 of 0", np.zeros(4)), ("4 of 0.5", np.full(4, 0.5)), ("4 of 1", np.ones(4)))
        ]  # fmt: skip


def _check_budget_alone(options: Options) -> None:
    if options != Options(epsilon=options.epsilon, delta=options.delta):
        raise InvalidInput("this has a budget and no other settings; leave the other options out")


def subject(name: str) -> Subject | Noise | Column:
    """What goes by this name."""
    check_choice("the subject", name, tuple(SUBJECTS))
    return SUBJECTS[name]


def _labelled(columns: int) -> Universe:
    return Universe(columns)


def _measured(columns: int) -> Universe:
    return Universe(columns, targets=(-1.0, 1.0), numbers=True)


def _along_axes(columns: int) -> Any:
    return np.vstack([np.eye(columns), -np.eye(columns)])


def _answers(model: Any) -> Any:
    """What a kernel machine says of public points on the axes."""
    return model.decision_function(_along_axes(model.n_features_in_)[: model.n_features_in_])


def _session(model: Any) -> Any:
    """Answers in the order of the questions, and which of them came from the private model."""
    answers = model.ask(_along_axes(model.n_features_in_))
    return [number for answer in answers for number in (answer.value, answer.source == "private model")]


def _path(model: Any) -> Any:
    return np.concatenate([np.ravel(model.coef_), np.ravel(model.intercept_), getattr(model, "selected_", ())])


def _selected(model: Any) -> Any:
    best = model.best_estimator_
    return np.concatenate([np.ravel(best.coef_), np.ravel(best.intercept_), [model.best_params_["alpha"]]])


def _linear(kind: Callable[..., Any], **settings: Any) -> Callable[[int], Any]:
    return lambda _columns: kind(**{"data_norm": 1.0, "fit_intercept": False, "verbose": False, **settings})


def _smooth_hinge() -> Any:
    from epsilearn.losses import HuberisedHinge

    return HuberisedHinge(0.5)


def _kernel(kind: Callable[..., Any], **settings: Any) -> Callable[[int], Any]:
    """A kernel machine with the linear kernel, under which the pairs of linear models are the worst as well."""
    from epsilearn.kernel import Linear

    return lambda _columns: kind(kernel=Linear(1.0), classes=_CLASSES, verbose=False, **settings)


def _on_landmarks(kind: Callable[..., Any], **settings: Any) -> Callable[[int], Any]:
    from epsilearn.kernel import RBF

    def make(columns: int) -> Any:
        return kind(kernel=RBF(0.5), landmarks=_along_axes(columns), rank=1, verbose=False, **settings)

    return make


def _waves(_columns: int) -> Any:
    from epsilearn.kernel import RBF

    return epsilearn.RandomFeatures(kernel=RBF(0.5), n_features=2, classes=_CLASSES, verbose=False)


def _semi_interactive(columns: int) -> Any:
    from epsilearn.kernel import Linear

    return epsilearn.SemiInteractiveLearner(
        kernel=Linear(1.0), public_points=np.eye(columns), classes=_CLASSES, verbose=False
    )


def _selection(_columns: int) -> Any:
    model = epsilearn.LogisticRegression(data_norm=1.0, fit_intercept=False, classes=_CLASSES, verbose=False)
    return epsilearn.PrivateSelection(model, {"alpha": [1.0, 100.0]})


_STRENGTHS = (100.0, 1.0, 0.01)


def _catalogue() -> Iterator[tuple[str, Subject | Noise | Column]]:
    erm: dict[str, Any] = {"alphas": _STRENGTHS, "rows": (1, 2, 20)}
    # The defaults of a fit whose alpha is left out. Each run takes dozens of steps: fewer cases are tried.
    few: dict[str, Any] = {"alphas": (100.0, 0.01), "rows": (1, 20)}
    descent: dict[str, Any] = {**few, "delta": _DELTA}
    yield (
        "logistic",
        Subject(
            "LogisticRegression, two classes", _linear(epsilearn.LogisticRegression, classes=_CLASSES), _labelled, **erm
        ),
    )
    yield (
        "softmax",
        Subject(
            "LogisticRegression, three classes",
            _linear(epsilearn.LogisticRegression, classes=(0.0, 1.0, 2.0)),
            lambda columns: Universe(columns, targets=(0.0, 1.0, 2.0)),
            **erm,
        ),
    )
    yield (
        "logistic-centred",
        Subject(
            "LogisticRegression of centred rows",
            _linear(epsilearn.LogisticRegression, classes=_CLASSES, centre=True, fit_intercept=True, margin=3.0),
            _labelled,
            **few,
        ),
    )
    yield (
        "logistic-gradient",
        Subject(
            "LogisticRegression, two classes, noisy gradients",
            _linear(epsilearn.LogisticRegression, classes=_CLASSES, method="gradient", margin=3.0),
            _labelled,
            **descent,
        ),
    )
    yield (
        "softmax-gradient",
        Subject(
            "LogisticRegression, three classes, noisy gradients",
            _linear(epsilearn.LogisticRegression, classes=(0.0, 1.0, 2.0), method="gradient", margin=3.0),
            lambda columns: Universe(columns, targets=(0.0, 1.0, 2.0)),
            **descent,
        ),
    )
    yield "svc", Subject("LinearSVC", _linear(epsilearn.LinearSVC, classes=_CLASSES), _labelled, **erm)
    yield (
        "linear-regression",
        Subject("LinearRegression", _linear(epsilearn.LinearRegression, target_bound=1.0), _measured, **erm),
    )
    yield "convex", Subject(
        "ConvexERM, a rounded hinge", _linear(epsilearn.ConvexERM, loss=_smooth_hinge(), classes=_CLASSES), _labelled,
        **erm,
    )  # fmt: skip
    yield (
        "lasso",
        Subject(
            "Lasso, two private steps",
            lambda _columns: epsilearn.Lasso(feature_bound=1.0, target_bound=1.0, n_steps=3, verbose=False),
            lambda columns: Universe(columns, box=True, targets=(-1.0, 1.0), numbers=True),
            statistic=_path,
        ),
    )
    yield (
        "sparse-logistic",
        Subject(
            "SparseLogisticRegression, two private steps",
            lambda _columns: epsilearn.SparseLogisticRegression(
                feature_bound=1.0, classes=_CLASSES, n_steps=3, verbose=False
            ),
            lambda columns: Universe(columns, box=True),
            statistic=_path,
        ),
    )
    kernels: dict[str, Any] = {"alphas": (100.0,)}
    yield (
        "landmark",
        Subject(
            "LandmarkClassifier", _on_landmarks(epsilearn.LandmarkClassifier, classes=_CLASSES), _labelled, **kernels
        ),
    )
    yield (
        "landmark-regressor",
        Subject(
            "LandmarkRegressor", _on_landmarks(epsilearn.LandmarkRegressor, target_bound=1.0), _measured, **kernels
        ),
    )
    yield "random-features", Subject("RandomFeatures", _waves, _labelled, **kernels)
    yield "gaussian-process", Subject(
        "GaussianProcessRelease", _kernel(epsilearn.GaussianProcessRelease), _labelled, delta=_DELTA,
        statistic=_answers,
        **kernels,
    )  # fmt: skip
    yield "interactive", Subject(
        "InteractiveLearner, two questions for each feature",
        lambda columns: _kernel(epsilearn.InteractiveLearner, questions=2 * columns)(columns),
        _labelled, delta=_DELTA, statistic=_session, **kernels,
    )  # fmt: skip
    yield "semi-interactive", Subject(
        "SemiInteractiveLearner", _semi_interactive, _labelled, delta=_DELTA,
        statistic=lambda model: model.dual_coef_, **kernels,
    )  # fmt: skip
    yield "non-interactive", Subject(
        "NonInteractiveLearner", _kernel(epsilearn.NonInteractiveLearner), _labelled, delta=_DELTA, statistic=_answers,
        **kernels,
    )  # fmt: skip
    yield "selection", Subject(
        "PrivateSelection of a regularisation", _selection, _labelled, rows=(8,), statistic=_selected,
        places=(False, True),
    )  # fmt: skip
    yield "laplace", Noise("Laplace noise on a number", epsilearn.laplace, 0.0, 1.0, laplace=True)
    yield "gaussian", Noise("Gaussian noise on a number", epsilearn.gaussian, 0.0, 1.0, delta=_DELTA)
    yield "k-norm", Noise("K-norm noise on two numbers", epsilearn.k_norm, [0.0, 0.0], [0.6, 0.8])
    # One candidate gains what all others lose: the more of them, the nearer to the bound.
    yield "exponential", Noise("a choice among ten", epsilearn.exponential, [1.0] + [0.0] * 9, [0.0] + [1.0] * 9)
    bounds: dict[str, Any] = {"bounds": (0.0, 1.0)}
    yield "count", Column("how many numbers exceed 0.5", lambda c, **b: epsilearn.statistics.count(c > 0.5, **b))
    yield "sum", Column("a sum", lambda c, **b: epsilearn.statistics.sum(c, **bounds, **b))
    yield "mean", Column("a mean", lambda c, **b: epsilearn.statistics.mean(c, **bounds, **b))
    yield "variance", Column("a variance", lambda c, **b: epsilearn.statistics.variance(c, **bounds, **b))
    yield "histogram", Column("a histogram", lambda c, **b: epsilearn.statistics.histogram(c, edges=(0, 0.5, 1), **b))
    yield "quantile", Column("a median", lambda c, **b: epsilearn.statistics.quantile(c, q=0.5, **bounds, **b))


SUBJECTS: dict[str, Subject | Noise | Column] = dict(_catalogue())
