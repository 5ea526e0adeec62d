"""Any convex loss of one linear score."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if

from epsilearn.errors import InvalidInput
from epsilearn.linear.classification import class_targets, public_labels
from epsilearn.linear.model import PrivateLinearModel
from epsilearn.linear.regression import clipped_targets, public_targets
from epsilearn.losses import Logistic, Loss, Softmax
from epsilearn.losses.interface import Array

__all__ = ["ConvexERM"]


def _classifies(model: Any) -> bool:
    return bool(model._the_loss.classifies)


class ConvexERM(PrivateLinearModel):
    """A private linear model for a convex loss of your own; a classifier or a regressor, as the loss says.

    Parameters
    ----------
    loss : Loss, optional
        From `epsilearn.losses`: `Custom` with declared bounds, which are checked numerically, or any of the others.
        The logistic loss if left out.
    epsilon, delta, alpha, method, calibration, data_norm, fit_intercept, rows_per_person, ledger, random_state, verbose
        As for `LogisticRegression`.
    classes : sequence of two labels, optional
        The public label set of a classification loss.

    Notes
    -----
    Targets of a regression loss are clipped to the loss's own ``target_bound``.

    Examples
    --------
    A smooth relative of the absolute error, whose slope and curvature never exceed 1:

    >>> import numpy as np
    >>> from epsilearn import ConvexERM
    >>> from epsilearn.losses import Custom
    >>> loss = Custom(
    ...     lambda s, y: np.sqrt(1 + (s - y) ** 2) - 1,
    ...     lambda s, y: (s - y) / np.sqrt(1 + (s - y) ** 2),
    ...     lambda s, y: (1 + (s - y) ** 2) ** -1.5,
    ...     declared_lipschitz=1.0, declared_smoothness=1.0, binary=False, target_bound=1.0,
    ... )
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-0.5, 0.5, size=(20_000, 2))
    >>> model = ConvexERM(loss=loss, epsilon=1.0, delta=1e-9, data_norm=0.75).fit(X, X[:, 0])
    >>> bool(model.score(X, X[:, 0]) > 0.5)
    True
    """

    classes: Any
    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        loss: Loss | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        alpha: float | str = "auto",
        method: str = "objective",
        calibration: str = "tight",
        data_norm: float | None = None,
        fit_intercept: bool = True,
        classes: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.method = method
        self.calibration = calibration
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _the_loss(self) -> Loss:
        loss = Logistic() if self.loss is None else self.loss
        if not isinstance(loss, Loss) or isinstance(loss, Softmax):
            raise InvalidInput("loss must be a loss of one score from epsilearn.losses, such as Custom(...)")
        return loss

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> ConvexERM:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features), or a table in parts
            The features; each row is scaled down to ``data_norm`` if it is longer.
        y : array of shape (rows,)
            Labels or targets, as the loss wants. A table in parts has its own.

        Returns
        -------
        self
        """
        loss = self._the_loss
        X, y = self._validated(X, y, unsupported, y_numeric=not loss.classifies)
        if loss.classifies:
            labels, positions, assumptions = public_labels(y, self.classes)
            if len(labels) != 2:
                raise InvalidInput(
                    f"Only binary classification is supported by ConvexERM, not {len(labels)} classes; "
                    "use LogisticRegression"
                )
            target = class_targets(positions, loss.outputs)
        else:
            target, _, half = public_targets(y, loss.target_bound)  # type: ignore[attr-defined]
            assumptions = clipped_targets(half)
        weights = self._fit_weights(X, target, loss, assumptions)
        if loss.classifies:
            self.classes_ = labels
        self._keep(weights)
        return self

    def _public_loss(self, method: str) -> tuple[Loss, tuple[str, ...]]:  # noqa: ARG002
        loss = self._the_loss
        return loss, () if loss.classifies else clipped_targets(loss.target_bound)  # type: ignore[attr-defined]

    def predict(self, X: Any) -> NDArray[Any]:
        """The class, or the predicted target, of each row."""
        scores = self._scores(X).ravel()
        return self.classes_[(scores > 0).astype(int)] if self._the_loss.classifies else scores

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Each row's score; positive means the second class."""
        return self._scores(X).ravel()

    def score(self, X: Any, y: Any) -> float:
        """Accuracy of a classifier, R squared of a regressor. Not private: see `private_score`."""
        kind = ClassifierMixin if self._the_loss.classifies else RegressorMixin
        return float(kind.score(self, X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # A classifier or a regressor, whichever the loss makes of this.
        if self._the_loss.classifies:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=False)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags(poor_score=True)
        tags.target_tags.required = True
        return tags
