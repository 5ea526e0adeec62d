"""Who takes part, with which settings: ours at the defaults, every peer at its defaults and over a printed grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import conversion
from conversion import noise_multiplier
from store import Store, key

__all__ = ["EPSILONS", "METHODS", "OURS", "Facts", "Method", "edges", "grids_described", "kept_noise"]

EPSILONS = (0.1, 0.5, 1.0)
Settings = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """What is public about a table."""

    name: str
    rows: int  # of the training part
    columns: int
    classes: int
    sparse: bool
    quick: bool = False

    @property
    def delta(self) -> float:
        """One over the square of the number of rows."""
        return self.rows**-2.0

    @property
    def large(self) -> bool:
        """Whether a pass over all rows takes long."""
        return self.rows * self.columns > 10**7 and not self.sparse

    @property
    def wide(self) -> bool:
        """Whether there are many weights."""
        return self.columns * self.classes > 5000

    @property
    def runs(self) -> int:
        """How many splits: more where rows are few and noise is large, so that means can be told apart."""
        if self.quick:
            return 3
        return 40 if self.rows < 10_000 else 10

    @property
    def finalists(self) -> int:
        """How many settings of a grid run on all splits: more where rows are few and two splits could mislead."""
        if self.quick or self.large:
            return 1
        return 8 if self.rows < 10_000 else 3


@dataclass(frozen=True)
class Method:
    """One line of the scoreboard: a model of a library, its settings, and how a budget enters them."""

    name: str
    library: str
    defaults: Callable[[Facts], Settings]
    budget: Callable[[Settings, float, Facts], Settings]
    grid: Callable[[Facts], list[Settings]] = lambda _: []
    private: bool = True
    obstacle: Callable[[Facts], str | None] = lambda _: None  # why it cannot run

    @property
    def epsilons(self) -> tuple[float | None, ...]:
        """The budgets it is run with; without privacy there is none."""
        return EPSILONS if self.private else (None,)


def _ours(name: str, model: str, *, pure: bool = False, **bounds: Any) -> Method:
    def defaults(facts: Facts) -> Settings:
        return {"model": model, "data_norm": 1.0, "classes": list(range(facts.classes)), **bounds}

    def budget(settings: Settings, epsilon: float, facts: Facts) -> Settings:
        return settings | {"epsilon": epsilon, "delta": 0.0 if pure else facts.delta}

    return Method(name, "epsilearn", defaults, budget, obstacle=_OBSTACLES.get(name, lambda _: None))


_OBSTACLES: dict[str, Callable[[Facts], str | None]] = {
    "LinearSVC": lambda facts: None if facts.classes == 2 else "two classes only",
    "LogisticRegression, pure": lambda facts: (
        "left out: it would take too long" if facts.large and facts.wide else None
    ),
    "SparseLogisticRegression": lambda facts: None if facts.sparse else "meant for sparse rows of very many columns",
}
_OPENDP = "no classifier: OpenDP 0.16 has PCA and a regression on one column, and none for labels"


def _with_epsilon(settings: Settings, epsilon: float, facts: Facts) -> Settings:  # noqa: ARG001 pure privacy
    return settings | {"epsilon": epsilon}


def _diffprivlib_grid(facts: Facts) -> list[Settings]:
    intercepts = [True, False]
    if facts.quick:
        strengths, intercepts = [1e-2, 1.0], [True]
    elif facts.large:
        # Where its best lies: many rows allow little regularisation, a budget shared by ten classes asks for much. An
        # intercept costs it accuracy on all of these tables; its defaults have one.
        strengths = [1e-4, 1e-3, 1e-2, 1e-1] if facts.classes > 2 else [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]
        intercepts = [False]
    else:
        strengths = [1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 0.3, 1.0, 3.0, 10.0]
    return [
        {"C": strength, "fit_intercept": intercept, "max_iter": 1000}
        for strength, intercept in product(strengths, intercepts)
    ]


def _sklearn_grid(facts: Facts) -> list[Settings]:
    if facts.quick:
        return [{"C": 100.0}]
    if facts.wide:
        return [{"C": strength, "max_iter": 200} for strength in (1.0, 100.0)]
    # Newton's method where its matrix is small; there lbfgs would need thousands of passes.
    return [{"C": strength, "solver": "newton-cholesky"} for strength in (1.0, 100.0, 1e4)]


# Opacus has no defaults for these: batch, rate and clip are those of its README, the epochs those of its MNIST example.
_OPACUS_BATCH, _OPACUS_EPOCHS = 1024, 10


def _opacus_defaults(facts: Facts) -> Settings:
    sampling = min(_OPACUS_BATCH / facts.rows, 1.0)
    steps = round(_OPACUS_EPOCHS / sampling)
    return {"sampling": sampling, "steps": steps, "clip": 1.0, "rate": 0.05, "momentum": 0.0}


def _opacus_grid(facts: Facts) -> list[Settings]:
    """Minibatches and the whole table; gradients cut short or nearly all; rates over two orders of magnitude.

    Small clips make gradients of equal length, so rates are given for a clip of 1 and divided by the clip.
    """
    # On wide rows a step takes longest, and noise for privacy hides that of small batches.
    batch = min(1024 if facts.wide and not facts.sparse else 4096, facts.rows // 10) / facts.rows
    rates, both = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 1.0)
    if facts.sparse:
        rates = (0.03, *rates)
    if facts.quick:
        families = [(batch, 300, 0.9, both, (0.3, 1.0))]
    elif facts.large:
        # Where its best lies: many rows allow large rates, ten classes smaller ones.
        several = facts.classes > 2
        rates = (0.03, 0.1, 0.3, 1.0, 3.0) if several else (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
        families = [(batch, 1000, 0.9, both, rates)]
        families += [(batch, 300, 0.9, both, (0.3, 1.0, 3.0) if several else (3.0, 10.0, 30.0))]
        families += [(1.0, 30, 0.9, (1.0,), (1.0, 3.0, 10.0))]
    else:
        families = [(batch, 1000, 0.9, both, rates), (batch, 300, 0.9, both, rates)]
        families += [(1.0, 100, 0.9, (0.1, 0.3, 1.0), (0.3, 1.0, 3.0)), (1.0, 30, 0.0, both, (3.0, 10.0, 30.0))]
    return [
        {"sampling": sampling, "steps": steps, "clip": clip, "rate": round(rate / clip, 6), "momentum": momentum}
        for sampling, steps, momentum, clips, rates in families
        for clip, rate in product(clips, rates)
    ]


def _with_noise(settings: Settings, epsilon: float, facts: Facts) -> Settings:
    arguments = (epsilon, facts.delta, settings["sampling"], settings["steps"])
    return settings | {"noise": kept_noise(noise_multiplier, *arguments)}


@cache
def kept_noise(function: Callable[..., float], *arguments: float) -> float:
    """A noise multiplier, which takes a second or more, from the disk if it was ever asked for."""
    store = Store(Path(__file__).parent / ".results" / "noise.jsonl")
    name = key(code=Path(conversion.__file__).read_text(), function=function.__name__, arguments=arguments)
    result = store.get(name)
    if result is None:
        result = {"key": name, "noise": function(*arguments)}
        store.put(result)
    return float(result["noise"])


OURS = _ours("LogisticRegression", "LogisticRegression")
METHODS = (
    OURS,
    _ours("LogisticRegression, pure", "LogisticRegression", pure=True),
    _ours("LinearSVC", "LinearSVC"),
    _ours("SparseLogisticRegression", "SparseLogisticRegression", feature_bound=1.0),
    Method("diffprivlib", "diffprivlib", lambda _: {}, _with_epsilon, _diffprivlib_grid),
    Method("Opacus", "opacus", _opacus_defaults, _with_noise, _opacus_grid),
    Method("OpenDP", "opendp", lambda _: {}, _with_epsilon, obstacle=lambda _: _OPENDP),
    Method("scikit-learn", "sklearn", lambda _: {}, _with_epsilon, _sklearn_grid, private=False),
)


def grids_described(tables: list[Facts]) -> dict[str, str]:
    """Every grid as a sentence or a list, for those who read the page."""
    found = {}
    for method in METHODS:
        sizes: dict[str, list[str]] = {}
        for facts in tables:
            ranges = "; ".join(_described(method.grid(facts)))
            if ranges:
                sizes.setdefault(ranges, []).append(facts.name)
        if sizes:
            found[method.name] = "\n".join(f"- {', '.join(where)}: {ranges}" for ranges, where in sizes.items())
    return found


def edges(grid: list[Settings], chosen: Settings) -> list[str]:
    """Which of the chosen settings are the least or the greatest of all that were tried beside them."""
    if chosen not in grid:
        return []  # the defaults, which every grid is compared with
    family = [_scaled(settings) for settings in grid if _family(settings) == _family(chosen)]
    found = []
    for name, value in _scaled(chosen).items():
        tried = {settings[name] for settings in family}
        if len(tried) > 1 and not isinstance(value, bool) and value in (min(tried), max(tried)):
            found.append(f"{name} {'lowest' if value == min(tried) else 'highest'}")
    return found


def _family(settings: Settings) -> tuple[Any, ...]:
    """Settings that share these were tried together."""
    return (settings.get("sampling"), settings.get("steps"))


def _described(grid: list[Settings]) -> list[str]:
    """Families of settings that share their sampling and steps, each with all values that occur."""
    families: dict[tuple[Any, ...], list[Settings]] = {}
    for settings in grid:
        families.setdefault(_family(settings), []).append(settings)
    shown = [[_scaled(settings) for settings in family] for family in families.values()]
    return [
        ", ".join(f"{name} {_values(settings[name] for settings in family)}" for name in family[0]) for family in shown
    ]


def _scaled(settings: Settings) -> Settings:
    """Rates as the grid means them, times the clip."""
    if "rate" not in settings:
        return settings
    shown = {name: value for name, value in settings.items() if name != "rate"}
    return shown | {"rate x clip": round(settings["rate"] * settings["clip"], 4)}


def _values(values: Iterable[Any]) -> str:
    return " or ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in dict.fromkeys(values))
