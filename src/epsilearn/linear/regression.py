"""Private linear regression."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.base import RegressorMixin

from epsilearn.calibration.regression import moments_sensitivity, noise_norm
from epsilearn.checks import LARGEST_SIZE, check_bounds, check_choice, check_fit_budget, check_size
from epsilearn.errors import InvalidInput
from epsilearn.linear.model import PrivateLinearModel, given_strength, public_bound
from epsilearn.losses import Huber, Loss, Squared
from epsilearn.losses.interface import Array
from epsilearn.mechanisms import gaussian, k_norm
from epsilearn.mechanisms.release import Release
from epsilearn.progress import passing
from epsilearn.rows import Parts, as_rows
from epsilearn.rows.interface import Moments
from epsilearn.rows.parts import applied

__all__ = ["LinearRegression", "clipped_targets", "public_targets"]

# How much of the noise's norm the ridge takes: on generated data a third does better than all of it.
_RIDGE_SHARE = 0.35
_METHODS = ("objective", "output", "sufficient-statistics")


def public_targets(y: Any, target_bound: Any) -> tuple[Any, float, float]:
    """Targets brought inside a public bound and centred, with the bound's middle and half-width."""
    if target_bound is None or np.ndim(target_bound) == 0:
        half = public_bound("target_bound", target_bound)
        return applied(partial(_centred, -half, half, 0.0, half), y), 0.0, half
    low, high = check_bounds(target_bound)
    if max(abs(low), abs(high)) > LARGEST_SIZE:
        raise InvalidInput(f"target_bound must lie within {LARGEST_SIZE:g} of 0, got ({low:g}, {high:g}); rescale y")
    middle, half = low / 2 + high / 2, check_size("half the width of target_bound", (high - low) / 2)
    return applied(partial(_centred, low, high, middle, half), y), middle, half


def _centred(low: float, high: float, middle: float, half: float, y: Array) -> Array:
    # Clipped first: a difference that overflows would say so.
    return np.clip(np.clip(y, low, high) - middle, -half, half)


class LinearRegression(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Private linear regression.

    Parameters
    ----------
    epsilon, delta : float
        The budget of one fit, per person. ``delta=0`` is pure; above 0 the noise is Gaussian, and less.
    method : {"objective", "output", "sufficient-statistics"}
        Noise in the objective of the Huber loss; noise on the least-squares solution with a ridge (the lecture's
        noisy linear regression, repaired); or noisy X'X and X'y with a ridge fitted to the noise (AdaSSP), after which
        other ridges or subsets of columns cost nothing more.
    alpha : float or "auto"
        The ridge: (1/n) sum of losses + (alpha/2) ||w||**2. "auto" takes it from public numbers only. For
        "sufficient-statistics" "auto" also looks at the noisy moments, which costs nothing more.
    threshold : float, optional
        Where the Huber loss of "objective" becomes linear; a quarter of the target's bound if left out.
    calibration : {"tight", "paper"}
        This project's theorems, or the constants as printed, with what is proven for them.
    data_norm : float, optional
        A public bound on the l2 norm of a row; longer rows are scaled down to it. 1.0, with a warning, if left out.
    target_bound : float or (float, float), optional
        A public bound on |y|, or a public range; targets are clipped to it. 1.0, with a warning, if left out.
    fit_intercept : bool
        Whether to add a constant column; it is regularised and noised like the others.
    rows_per_person : int
        How many records one person may have; the promise is per person.
    ledger : Ledger, optional
        Debited before anything is released.
    random_state : int, optional
        For studies and tests only: the guarantee is then void.
    verbose : bool, optional
        Whether to show a progress bar; by default on a terminal, for fits that take longer than two seconds.

    Attributes
    ----------
    coef_ : array of shape (features,)
    intercept_ : float
    guarantee_ : Guarantee
        What was promised.
    noise_ : NoiseLaw
        The noise in the objective, on the result or on the moments; public.
    alpha_ : float
        The ridge used; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import LinearRegression
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-0.5, 0.5, size=(20_000, 3))
    >>> y = X @ [1.0, -1.0, 0.5] + generator.normal(scale=0.1, size=20_000)
    >>> model = LinearRegression(
    ...     method="sufficient-statistics", epsilon=1.0, delta=1e-9, data_norm=0.9, target_bound=1.5
    ... ).fit(X, y)
    >>> model.coef_.round(1).tolist()
    [1.0, -1.0, 0.5]
    """

    target_bound: Any
    threshold: float | None

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        alpha: float | str = "auto",
        threshold: float | None = None,
        method: str = "objective",
        calibration: str = "tight",
        data_norm: float | None = None,
        target_bound: Any = None,
        fit_intercept: bool = True,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.threshold = threshold
        self.method = method
        self.calibration = calibration
        self.data_norm = data_norm
        self.target_bound = target_bound
        self.fit_intercept = fit_intercept
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> LinearRegression:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features), or a table in parts
            The features; each row is scaled down to ``data_norm`` if it is longer.
        y : array of shape (rows,)
            The targets, clipped to ``target_bound``. A table in parts has its own.

        Returns
        -------
        self
        """
        check_choice("method", self.method, _METHODS)
        X, y = self._validated(X, y, unsupported, y_numeric=True)
        target, middle, half = public_targets(y, self.target_bound)
        if self.method == "sufficient-statistics":
            weights = self._fit_moments(X, target, half, clipped_targets(half))
        else:
            weights = self._fit_weights(X, target, self._loss_within(half), clipped_targets(half))
        self._keep(weights)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0] + middle)
        return self

    def _public_loss(self, method: str) -> tuple[Loss, tuple[str, ...]]:  # noqa: ARG002
        if self.method == "sufficient-statistics":
            raise InvalidInput(
                "what noisy moments lead to is not known beforehand; plan 'objective' or 'output' instead"
            )
        check_choice("method", self.method, _METHODS)
        _, _, half = public_targets(np.zeros(0), self.target_bound)
        return self._loss_within(half), clipped_targets(half)

    def _loss_within(self, half: float) -> Loss:
        """The loss for targets of at most this size."""
        if self.method == "output":
            return Squared(half)
        return Huber(half / 4 if self.threshold is None else check_size("threshold", self.threshold), half)

    def predict(self, X: Any) -> Array:
        """The predicted target of each row."""
        return self._scores(X).ravel()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With a few dozen rows, as in scikit-learn's checks, a private model is mostly noise.
        tags.regressor_tags.poor_score = True
        return tags

    def _fit_moments(self, X: Any, target: Any, half: float, assumptions: tuple[str, ...]) -> Array:
        """Noisy X'X and X'y, and then a ridge as large as the noise asks for; only the noise costs privacy."""
        if self.calibration != "tight":
            raise InvalidInput("method='sufficient-statistics' is not in the papers; use calibration='tight'")
        bounds = self._public_bounds()
        strength = given_strength(self.alpha)
        with passing(self.verbose, X) if isinstance(X, Parts) else nullcontext():
            rows = as_rows(X, target, bounds)
            if not rows.dense:
                raise InvalidInput(
                    f"method='sufficient-statistics' needs a matrix of {rows.d} by {rows.d} noisy moments; "
                    "with so many columns use method='objective'"
                )
            moments = rows.moments()
        release = self._release_moments(moments, rows.n, rows.norm, half, assumptions)
        assert release.noise is not None  # numbers were released
        self._bounds_, self.guarantee_, self.noise_ = bounds, release.guarantee, release.noise
        self.method_ = self.method
        gram, cross = _unpack(release.value, rows.d, rows.norm, half)
        weights, self.alpha_ = _solve(gram, cross, rows.n, self.noise_.deviation * rows.norm**2, strength)
        return weights[None]

    def _release_moments(
        self, moments: Moments, rows: int, norm: float, half: float, assumptions: tuple[str, ...]
    ) -> Release:
        # Each part was rounded by at most `error` of its largest size, and once or twice more when scaled.
        rounding = math.sqrt(2) * rows * (moments.error + 2.0**-48)
        epsilon, delta, people = check_fit_budget(self.epsilon, self.delta, self.rows_per_person)
        options: dict[str, Any] = {
            "sensitivity": moments_sensitivity() + 2 * rounding,
            "epsilon": epsilon,
            "rows_per_person": people,
            "assumptions": (f"rows are scaled to a norm of at most {norm:g}", *assumptions),
            "ledger": self._account,
            "purpose": f"{type(self).__name__}.fit",
            "random_state": self.random_state,
        }
        values = _pack(moments, norm, half)
        return gaussian(values, delta=delta, **options) if delta else k_norm(values, **options)


def clipped_targets(half: float) -> tuple[str, ...]:
    """What a promise then assumes."""
    return (f"targets are clipped to a range of half-width {half:g}",)


def _pack(moments: Moments, norm: float, half: float) -> Array:
    """The moments as one vector whose l2 norm is the Frobenius norm of the first part and the norm of the second."""
    upper = np.triu_indices(len(moments.cross))
    weights = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    return np.concatenate([moments.gram[upper] * weights / norm**2, moments.cross / (norm * half)])


def _unpack(values: Array, columns: int, norm: float, half: float) -> tuple[Array, Array]:
    upper = np.triu_indices(columns)
    weights = np.where(upper[0] == upper[1], 1.0, 1 / math.sqrt(2))
    gram = np.zeros((columns, columns))
    gram[upper] = values[: len(weights)] * weights * norm**2
    gram = gram + np.triu(gram, 1).T
    return gram, values[len(weights) :] * norm * half


def _solve(gram: Array, cross: Array, rows: int, deviation: float, strength: float | None) -> tuple[Array, float]:
    """Ridge regression from noisy moments; public numbers only, since the noise is already in them."""
    lengths, directions = eigh(gram)
    if strength is None:
        # AdaSSP: a ridge against the noise in the moments, less what the data's own spread provides for certain.
        noise = noise_norm(len(cross), deviation, 0.05)
        spread = max(float(lengths[0]) - noise, 0.0)
        strength = max(_RIDGE_SHARE * noise - spread, 0.0) / rows
    # Whatever the ridge, directions that noise has made negative carry nothing.
    stiff = np.maximum(lengths + strength * rows, deviation)
    weights: Array = directions @ ((directions.T @ cross) / stiff)
    return weights, strength
