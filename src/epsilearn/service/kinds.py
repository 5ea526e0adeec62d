"""What a data set can be opened for: a process, an interactive session, a model. Each knows its price, how it is opened
and how it goes on in another process or after a restart.

Statistics are a fourth; they are debited one by one, and live in `epsilearn.service.leave`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import GaussianShift, ZeroConcentrated
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.checks import check_fit_budget
from epsilearn.encoding import Encoding
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.job import Job, Stated, kernel_of, within
from epsilearn.kernel import GaussianProcessRelease, InteractiveLearner
from epsilearn.kernel.erm import MOST_GRAM_ROWS
from epsilearn.kernel.interactive_sessions import PRIVATE_MODEL
from epsilearn.kernel.kept_session import was_private
from epsilearn.ledger import Held
from epsilearn.mechanisms.session import JournalEntry
from epsilearn.model_file import model_from_json
from epsilearn.quiet import quietly
from epsilearn.release_folder import foresee, release_texts
from epsilearn.released import ReleasedModel
from epsilearn.report import session_report
from epsilearn.schema import Schema
from epsilearn.service.kept import DatabaseSession
from epsilearn.service.messages import Interactive, Model, Process
from epsilearn.service.tables import DataSet, Tables

__all__ = ["Kind", "Live", "Opened", "Stored", "kind_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Opened:
    """What is public about a release once it is open."""

    guarantee: Guarantee
    facts: dict[str, Any]
    documents: dict[str, str]


@dataclass(frozen=True)
class Stored:
    """What the database holds of a release that is open."""

    session: DatabaseSession
    facts: dict[str, Any]
    documents: dict[str, str]


class Live(ABC):
    """A release in this process, ready to be asked. One thread at a time asks it."""

    def __init__(self, schema: Schema, target: str) -> None:
        self.schema, self.target = schema, target
        self.encoding = Encoding(schema, target)

    @abstractmethod
    def answers(self, X: Any) -> list[dict[str, Any]]:
        """An answer for each encoded point."""

    def left(self) -> dict[str, float | None]:
        """What may still be asked."""
        return {}

    def rest(self) -> bool:
        """Let go of memory that can be had again, unless it is in use; whether it did."""
        return False

    def _told(self, scores: Array) -> list[dict[str, Any]]:
        """Scores of one output each, as predictions."""
        classes = self.encoding.class_values()
        if classes is None:
            low, high = self.schema.columns[self.target].bounds or (-np.inf, np.inf)
            return [{"prediction": float(np.clip(score, low, high)), "score": float(score)} for score in scores]
        labels = classes.tolist()
        return [{"prediction": labels[int(score > 0)], "score": float(score)} for score in scores]


class Kind(ABC):
    """One way of opening a data set.

    Parameters
    ----------
    dataset : DataSet
    settings : Process, Interactive or Model
        As they were asked for.
    """

    #: Whether the path to an answer depends on private values, so that its time must not tell.
    padded = False
    #: Tells which answers came from the private model, where not all do.
    private: Callable[[JournalEntry], bool] | None = None

    def __init__(self, dataset: DataSet, settings: Any) -> None:
        self.dataset, self.settings = dataset, settings
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse what can never be opened, before anything else."""

    @abstractmethod
    def promise(self) -> Guarantee:
        """What would be debited, from public numbers alone."""

    def points(self) -> int:
        """At how many points noise can ever be drawn, where it is drawn as questions come."""
        return 0

    def memory(self) -> int:
        """Bytes that opening takes beside the rows, where they are many."""
        return 0

    @abstractmethod
    def open(self, tables: Tables, ledger: Held, session: DatabaseSession, balance: Any) -> Opened:
        """Read the rows, debit, fit. ``balance`` tells where the ledger stands, for the report."""

    @abstractmethod
    def live(self, tables: Tables, stored: Stored) -> Live:
        """The release as it was opened, in this process."""

    def left(self, stored: Stored) -> dict[str, float | None]:  # noqa: ARG002 - most have no limit
        """What may still be asked, read off what was answered; nothing where there is no limit."""
        return {}


class _Learner(Kind):
    """What processes and interactive sessions share: a kernel machine that stays private."""

    settings: Process | Interactive
    name: str

    def _check(self) -> None:
        schema, target = self.dataset.schema, self.settings.target
        check_fit_budget(self.settings.epsilon, self.settings.delta, schema.rows_per_person)
        if schema.sparse:
            raise InvalidInput("a table of numbered columns can be opened as a model, not for questions")
        column = schema.check_target(target)
        if self.settings.kernel == "rbf" and self.dataset.rows > MOST_GRAM_ROWS:
            raise InvalidInput(
                f"the rbf kernel takes at most {MOST_GRAM_ROWS:,} rows here; choose the linear or polynomial kernel, "
                "or open a landmark model"
            )
        if column.categories is not None and len(column.categories) != 2:
            raise InvalidInput("questions are about numbers or two classes; open a logistic or landmark model for more")

    def memory(self) -> int:
        # All values of a kernel without a finite feature map; others are opened by their features.
        return 8 * self.dataset.rows**2 if self.settings.kernel == "rbf" else 0

    def _options(self) -> dict[str, Any]:
        schema, settings = self.dataset.schema, self.settings
        column = schema.columns[settings.target]
        options: dict[str, Any] = {
            "kernel": kernel_of(settings.kernel, schema.length(settings.target)),
            "alpha": settings.alpha,
            "epsilon": settings.epsilon,
            "delta": settings.delta,
            "rows_per_person": schema.rows_per_person,
            "verbose": False,
        }
        if column.categories is None:
            return {**options, "loss": "huber", "target_bound": column.bounds}
        return {**options, "loss": "logistic", "classes": range(2)}

    @abstractmethod
    def _estimator(self, **options: Any) -> GaussianProcessRelease | InteractiveLearner:
        """The one that answers."""

    def _fitted(self, tables: Tables, session: DatabaseSession, ledger: Held | None) -> Any:
        X, y = tables.encoded(self.dataset, self.settings.target)
        spender = None if ledger is None else Stated(ledger)
        estimator = self._estimator(state=session, ledger=spender, **self._options())
        with quietly():
            return estimator.fit(self._points(X), y)

    def _points(self, X: Any) -> Array:
        return within(X, self.dataset.schema.length(self.settings.target))

    def open(self, tables: Tables, ledger: Held, session: DatabaseSession, balance: Any) -> Opened:
        fitted = self._fitted(tables, session, ledger)
        facts = {"alpha": fitted.alpha_, **self._facts(fitted)}
        report = session_report(
            self.name, self.settings.target, fitted.guarantee_, self.dataset.schema,
            {"rows": self.dataset.rows, "kernel": self.settings.kernel, **facts}, balance(),
        )  # fmt: skip
        return Opened(
            fitted.guarantee_, facts, {"report.html": report, "guarantee.json": fitted.guarantee_.to_json() + "\n"}
        )

    @abstractmethod
    def _facts(self, fitted: Any) -> dict[str, Any]:
        """What else is public."""


class ProcessKind(_Learner):
    """Any number of answers for one budget."""

    settings: Process
    name = "Gaussian process release"

    def _estimator(self, **options: Any) -> GaussianProcessRelease:
        return GaussianProcessRelease(max_points=self.settings.max_points, **options)

    def points(self) -> int:
        return self.settings.max_points if self.settings.kernel == "rbf" else 0

    def promise(self) -> Guarantee:
        epsilon, delta = self.settings.epsilon, self.settings.delta
        return Guarantee(
            epsilon, delta, mechanism=self.name, rows_per_person=self.dataset.schema.rows_per_person,
            curve=GaussianShift(gaussian_shift(epsilon, delta)),
        )  # fmt: skip

    def _facts(self, fitted: Any) -> dict[str, Any]:
        limit = None if fitted.points_left_ is None else self.settings.max_points
        return {"noise_deviation": fitted.noise_.deviation, "points": limit}

    def live(self, tables: Tables, stored: Stored) -> Live:
        return _LiveProcess(self, self._fitted(tables, stored.session, None), stored)

    def left(self, stored: Stored) -> dict[str, float | None]:
        limit = stored.facts["points"]
        return {"points": None if limit is None else limit - stored.session.count()}


class _LiveSession(Live):
    """What processes and interactive sessions share in a process that answers for them."""

    def __init__(self, kind: _Learner, fitted: Any, stored: Stored) -> None:
        super().__init__(kind.dataset.schema, kind.settings.target)
        self._kind, self._fitted, self._stored = kind, fitted, stored

    def left(self) -> dict[str, float | None]:
        return self._kind.left(self._stored)


class _LiveProcess(_LiveSession):
    def rest(self) -> bool:
        return bool(self._fitted.rest())

    def answers(self, X: Any) -> list[dict[str, Any]]:
        ask, points = self._fitted.decision_function, self._kind._points(X)
        # Noise that is drawn as questions come is kept with its answer; otherwise answers are computed each time.
        return self._told(one_by_one(ask, points) if self._stored.facts["points"] is None else ask(points))


class InteractiveKind(_Learner):
    """Answers that are private only where a public hypothesis is off."""

    settings: Interactive
    name = "interactive session"
    padded = True
    private = staticmethod(was_private)

    def _estimator(self, **options: Any) -> InteractiveLearner:
        return InteractiveLearner(questions=self.settings.questions, failure=self.settings.failure, **options)

    def promise(self) -> Guarantee:
        epsilon, delta = self.settings.epsilon, self.settings.delta
        return Guarantee(
            epsilon, delta, mechanism=self.name, rows_per_person=self.dataset.schema.rows_per_person,
            curve=ZeroConcentrated(concentrated_budget(epsilon, delta)),
        )  # fmt: skip

    def _facts(self, fitted: Any) -> dict[str, Any]:
        return {"tolerance": fitted.tolerance_, "updates": fitted.session_.updates}

    def live(self, tables: Tables, stored: Stored) -> Live:
        return _LiveInteractive(self, self._fitted(tables, stored.session, None), stored)

    def left(self, stored: Stored) -> dict[str, float | None]:
        session = stored.session
        updates = stored.facts["updates"] - session.private_count()
        return {"questions": self.settings.questions - session.count(), "updates": updates}


class _LiveInteractive(_LiveSession):
    def answers(self, X: Any) -> list[dict[str, Any]]:
        found = self._fitted.ask(self._kind._points(X))
        told = self._told(np.array([answer.value for answer in found]))
        return [{**one, "private": answer.source == PRIVATE_MODEL} for one, answer in zip(told, found, strict=True)]


class ModelKind(Kind):
    """A model that leaves the server whole."""

    settings: Model

    def _check(self) -> None:
        self._job()

    def _job(self) -> Job:
        settings = self.settings
        if settings.kernel != "rbf" and settings.model != "landmark":
            raise InvalidInput("kernel is for landmark models")
        return Job(
            self.dataset.schema, settings.target, settings.model, settings.epsilon, settings.delta, settings.alpha,
            kernel=settings.kernel,
        )  # fmt: skip

    def promise(self) -> Guarantee:
        return self._job().outlook(self.dataset.rows).guarantee

    def open(self, tables: Tables, ledger: Held, session: DatabaseSession, balance: Any) -> Opened:  # noqa: ARG002
        job = self._job()
        foreseen = foresee(job, self.dataset.rows)
        X, y = tables.encoded(self.dataset, self.settings.target)
        model = job.fit(X, y, ledger, verbose=False)
        texts = release_texts(model, foreseen, balance())
        return Opened(model.guarantee, {"noise_deviation": model.noise.deviation, "method": model.method}, texts)

    def live(self, tables: Tables, stored: Stored) -> Live:  # noqa: ARG002 - it left the rows behind
        return _LiveModel(model_from_json(stored.documents["model.json"]))


class _LiveModel(Live):
    def __init__(self, model: ReleasedModel) -> None:
        super().__init__(model.schema, model.target)
        self._model = model

    def answers(self, X: Any) -> list[dict[str, Any]]:
        scores = one_by_one(self._model.weights.scores, X)
        if scores.shape[1] == 1:
            return self._told(scores[:, 0])
        return [{"prediction": label, "score": None} for label in self._model.predictions(scores).tolist()]


def one_by_one(scores: Callable[[Any], Array], X: Any) -> Array:
    """Scores of rows, each by itself: a library adds up otherwise in other company, and the last bit would tell."""
    return np.concatenate([scores(X[i : i + 1]) for i in range(X.shape[0])])


_KINDS: dict[str, type[Kind]] = {"process": ProcessKind, "interactive": InteractiveKind, "model": ModelKind}


def kind_of(dataset: DataSet, settings: Any) -> Kind:
    """The kind that these settings ask for."""
    return _KINDS[settings.kind](dataset, settings)
