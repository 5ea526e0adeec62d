"""What all private linear models share: public bounds, one fit through `erm`, scores of new rows."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from epsilearn import erm
from epsilearn.calibration.centring import Centring, leaves_room, planned_centring, shifted_centring
from epsilearn.calibration.gradient import record_shift
from epsilearn.calibration.groups import per_record
from epsilearn.calibration.strength import automatic_strength, typical_score
from epsilearn.checks import check_choice, check_fit_budget, check_integer, check_size, check_unmasked, within_doubles
from epsilearn.errors import InvalidInput, PrivacyWarning
from epsilearn.fit_counts import CountedFits
from epsilearn.guarantee import Guarantee
from epsilearn.identity import check_apart
from epsilearn.losses import CappedSoftmax, Huber, HuberisedHinge, Logistic, Loss, Softmax, Squared
from epsilearn.losses.interface import Array
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.progress import fitting, passing
from epsilearn.quiet import aloud, quietly, tell
from epsilearn.rows import Bounds, Parts, as_rows
from epsilearn.rows.bounds import without_giants
from epsilearn.rows.parts import Targets, check_in_memory
from epsilearn.rows.rounding import public_rounding

__all__ = [
    "FLOATS", "PrivateLinearModel", "PrivateModel", "forget_fit", "given_strength", "public_bound", "validated",
]  # fmt: skip

FLOATS = [np.float64, np.float32]
# Losses whose bounds are proven here; any other's are its author's word.
_PROVEN = (Logistic, HuberisedHinge, Squared, Huber, Softmax, CappedSoftmax)
_DECLARED = (
    "the loss's declared bounds hold, and its functions are accurate",
    "the loss's functions are finite at every score, and keep no memory across records",
)
# The intercept's column, as a share of `data_norm`: long enough to be learned, short enough to cost 1 % of noise.
_INTERCEPT_SHARE = 0.15


def public_bound(name: str, given: float | None) -> float:
    """A public bound as given, or the constant 1 with a warning. Never anything read off the data."""
    if given is not None:
        return check_size(name, given)
    tell(
        f"{name} was not given: 1.0 is used, and whatever lies beyond it is brought inside. Pass {name} explicitly, "
        "as a number you know without looking at the data",
        PrivacyWarning,
    )
    return 1.0


def given_strength(alpha: float | str) -> float | None:
    """A regularisation that was given; None if a rule is to choose it from public numbers."""
    if not isinstance(alpha, str):
        return check_size("alpha", alpha)
    if alpha != "auto":
        raise InvalidInput(f"alpha must be a number above 0 or 'auto', got {alpha!r}")
    return None


_NOT_NUMBERS = "features, and the targets of a regression, must be numbers; encode everything else by a public rule"


def _without_values(message: str) -> str:
    """scikit-learn's text without the array or the value that some of them quote."""
    if message.startswith("Complex data not supported"):
        return "Complex data not supported; pass the real and imaginary parts as two columns"
    if message.startswith("Expected 2D array"):
        return (
            "Expected 2D array, got another. Reshape your data: array.reshape(-1, 1) makes a table of one column, "
            "array.reshape(1, -1) of one row"
        )
    if "could not convert" in message.lower() or "unable to convert" in message.lower():
        return _NOT_NUMBERS
    if "contains NaN" in message or "contains infinity" in message:
        # Not the rest of it, which advises to impute: that learns from private rows.
        first = message.splitlines()[0].rstrip(".")
        return f"{first}; drop or fill such values by a rule that does not look at the data"
    return message


def validated(model: Any, *given: Any, **options: Any) -> Any:
    """What scikit-learn makes of features, and of targets where they are given too: numbers, of the right shape.

    Arithmetic is silent: its own check for infinity warns where a sum of large numbers overflows, which would tell of
    records. What it has to say of shapes and names may be said.
    """
    fault = ""
    kind: type[Exception] = InvalidInput
    check_in_memory(given[0])
    check_unmasked(*given)
    try:
        with quietly(), aloud():
            return validate_data(model, *given, accept_sparse="csr", **{"dtype": FLOATS, **options})
    except ValueError as error:
        fault = _without_values(str(error))
    except TypeError:
        # In scikit-learn's words and of its kind, without the type of what it met.
        fault, kind = f"argument must be a string or a number: {_NOT_NUMBERS}", TypeError
    except OverflowError:
        fault = "a feature or a target is beyond the doubles; clip such numbers by a rule fixed beforehand"
    # Raised out here: the error that was caught may carry private values along.
    raise kind(fault)


def _checked_numbers(y: NDArray[Any]) -> Array:
    """Targets that are numbers."""
    if y.dtype.kind not in "biuf":
        raise InvalidInput(_NOT_NUMBERS)
    # Once more: None only becomes NaN after scikit-learn has looked.
    if not np.isfinite(y).all():
        raise InvalidInput("Input y contains NaN; drop or fill such values by a rule that looks at no data")
    return y.astype(np.float64, copy=False)


def forget_fit(model: Any) -> None:
    """A fit that fails must not leave an earlier one's model behind under new bounds or labels."""
    for name in [name for name in vars(model) if name.endswith("_") and not name.endswith("__")]:
        delattr(model, name)


# Whatever is given to these may be private: what a model is fitted to, and rows that it is judged by.
_SEES_RECORDS = ("fit", "predict", "decision_function", "predict_proba", "predict_log_proba", "ask")


class PrivateModel(CountedFits):
    """What every private estimator shares: how private rows come in, and what it tells scikit-learn."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Here, so that no model can forget it: whatever sees records does so in silence.
        for name in _SEES_RECORDS:
            if inspect.isfunction(method := vars(cls).get(name)):
                setattr(cls, name, quietly()(method))

    def _validated(self, X: Any, y: Any, unsupported: dict[str, Any], **options: Any) -> tuple[Any, Any]:
        """Features and targets in the shape the rows want, without a copy where possible; an error costs nothing."""
        check_apart(self, X, y)
        if "sample_weight" in unsupported:
            raise TypeError(
                "sample_weight is not supported: a weight would multiply what one record can reveal. "
                "Leave it out, or repeat no row"
            )
        if unsupported:
            raise TypeError(f"fit got unexpected arguments: {', '.join(sorted(unsupported))}")
        forget_fit(self)
        if isinstance(X, Parts):
            return self._in_parts(X, y, numeric=bool(options.get("y_numeric")))
        X, y = validated(self, X, y, **options)
        return X, _checked_numbers(y) if options.get("y_numeric") else y

    def _in_parts(self, X: Parts, y: Any, numeric: bool) -> tuple[Parts, Targets]:
        """A table that is elsewhere, with its targets; its rows are checked when they are first read."""
        if y is not None:
            raise InvalidInput("a table in parts brings its targets along: name their column there, and leave y out")
        self.n_features_in_ = X.shape[1]
        if len(X.names) == X.shape[1]:
            self.feature_names_in_ = np.array(X.names, dtype=object)
        return X, Targets((_checked_numbers,)) if numeric else Targets()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


class PrivateLinearModel(PrivateModel):
    """Weights that minimise a regularised convex loss, released with a promise."""

    epsilon: float
    delta: float
    alpha: float | str
    method: str
    calibration: str
    data_norm: float | None
    fit_intercept: bool
    # Only what tells classes apart asks for more.
    centre: bool | str = False
    rows_per_person: int
    ledger: Any
    random_state: Any
    verbose: bool | None

    coef_: Array
    intercept_: Any
    guarantee_: Guarantee
    noise_: NoiseLaw
    alpha_: float
    method_: str

    def _fit_weights(
        self, X: Any, target: Array | Targets, loss: Loss, assumptions: tuple[str, ...], method: str | None = None
    ) -> Array:
        """Plan, debit, draw, solve, release: the weights as an array of shape (outputs, columns)."""
        bounds = self._public_bounds()
        in_parts = isinstance(X, Parts)
        with passing(self.verbose, X) if in_parts else nullcontext():
            rows = as_rows(X, target, bounds)
            table = erm.Table.of(rows)
            made = self._planned(loss, table, bounds, assumptions, method or self.method)
            # One bar at a time: that of the passes says more of a table in parts.
            with fitting(False if in_parts else self.verbose, made.certificate) as progress:
                release = erm.execute(
                    made,
                    loss,
                    rows,
                    ledger=self._account,
                    purpose=f"{type(self).__name__}.fit",
                    random_state=self.random_state,
                    progress=progress,
                )
        self._bounds_, self.guarantee_ = bounds, release.guarantee
        self.noise_, self.alpha_, self.method_ = made.law, made.strength, made.method
        weights: Array = release.value.reshape(loss.outputs, table.columns)
        return weights

    def plan(self, *, rows: int, features: int) -> erm.Plan:
        """What a fit to so many rows would do and promise, from public numbers alone.

        Parameters
        ----------
        rows, features : int
            How many the table has.

        Returns
        -------
        Plan
            The noise, the regularisation and the promise: those of the fit, wherever its rows are kept.
        """
        check_integer("rows", rows)
        width = check_integer("features", features) + bool(self.fit_intercept)
        method = self._chosen_method(features)
        loss, assumptions = self._public_loss(method)
        bounds = self._public_bounds()
        table = erm.Table(rows, width, bounds.norm, public_rounding(rows, features, bounds))
        return self._planned(loss, table, bounds, assumptions, method)

    def _chosen_method(self, features: int) -> str:  # noqa: ARG002 - some models choose by it
        """Where the noise goes for a table of so many columns."""
        return self.method

    def _public_loss(self, method: str) -> tuple[Loss, tuple[str, ...]]:
        """The loss, as far as public numbers decide it, and what the promise then assumes."""
        raise NotImplementedError

    @within_doubles()
    def _planned(
        self, loss: Loss, table: erm.Table, bounds: Bounds, assumptions: tuple[str, ...], method: str
    ) -> erm.Plan:
        epsilon, delta, people = check_fit_budget(self.epsilon, self.delta, self.rows_per_person)
        centring, row_bound = self._centring(loss, table, method), table.norm
        if centring is not None:
            table = table.in_units(bounds.data_norm)
        if type(loss) not in _PROVEN:
            assumptions = (*assumptions, *_DECLARED)
        return erm.plan(
            loss,
            table,
            strength=self._strength(loss, table, method),
            epsilon=epsilon,
            delta=delta,
            method=method,
            calibration=self.calibration,
            rows_per_person=people,
            assumptions=assumptions,
            centring=centring,
            row_bound=row_bound,
        )

    def _centring(self, loss: Loss, table: erm.Table, method: str) -> Centring | None:
        """How to move rows first, if at all: from public numbers."""
        if self.centre not in (True, False, "auto"):
            raise InvalidInput(f"centre must be True, False or 'auto', got {self.centre!r}")
        if not self.centre:
            return None
        budget, asked = self._budget(), self.centre is True
        usual = method != "output" and self.calibration == "tight" and self.fit_intercept
        usual = usual and (method == "gradient" or leaves_room(*budget, loss.rank))
        if asked and not usual:
            raise InvalidInput(
                "centre=True needs an intercept, calibration='tight' and noise elsewhere than on the result; in the "
                "objective it also needs a delta of 0, or two classes and a delta of at most 0.001 and epsilon / 100. "
                "Use 'auto' or False"
            )
        if not usual or (self.alpha != "auto" and not asked):
            return None
        size = table.rows, table.columns - 1
        if method == "gradient" and self.delta:
            centring = shifted_centring(*size, record_shift(self.epsilon, self.delta, self.rows_per_person))
        else:
            centring = planned_centring(*size, *budget)
        return centring if asked or centring.worthwhile else None

    def _public_bounds(self) -> Bounds:
        norm = public_bound("data_norm", self.data_norm)
        return Bounds(norm, _INTERCEPT_SHARE * norm if self.fit_intercept else 0.0)

    def _strength(self, loss: Loss, table: erm.Table, method: str) -> float:
        given = given_strength(self.alpha)
        if given is not None:
            return given
        check_choice("method", method, ("objective", "output", "gradient"))
        if method == "gradient" and not self.delta:
            raise InvalidInput("noisy gradients need a delta above 0; use method='objective' for a pure promise")
        size = table.rows, table.columns, table.norm
        return automatic_strength(loss, *size, *self._budget(), method, *self._typical_score(loss, method))

    def _typical_score(self, loss: Loss, method: str) -> tuple[float, bool]:
        """The size of a score to expect on a row at the bound, and whether it grows as noise shrinks."""
        bound = None if loss.classifies else loss.target_bound  # type: ignore[attr-defined]
        return typical_score(method, loss.outputs + 1, bound), False

    def _budget(self) -> tuple[float, float]:
        """The budget of a record, of which a person may have several."""
        return per_record(*check_fit_budget(self.epsilon, self.delta, self.rows_per_person))

    def _keep(self, weights: Array) -> None:
        """Store weights of shape (outputs, columns) as coefficients and intercepts."""
        if self.fit_intercept:
            self.coef_, self.intercept_ = weights[:, :-1], weights[:, -1] * self._bounds_.intercept
        else:
            self.coef_, self.intercept_ = weights, np.zeros(len(weights))

    @quietly()
    def _scores(self, X: Any) -> Array:
        """Scores of new rows, of shape (rows, outputs), each row brought inside the bounds as in training."""
        check_is_fitted(self, "coef_")
        X, norms = without_giants(validated(self, X, reset=False))
        factors = self._bounds_.factors(norms, X.shape[1])
        # A power of two is kept apart, so that no product with a long row overflows before the row is scaled down.
        power = int(np.frexp(np.abs(self.coef_).max())[1])
        scores = (X @ np.ldexp(np.atleast_2d(self.coef_), -power).T) * factors[:, None]
        whole: Array = np.ldexp(scores, power) + self.intercept_
        return whole
