"""Differentially private learning of convex models, exact to the last bit that leaves the machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epsilearn import statistics as statistics
    from epsilearn.calibration.learning import excess_risk_bound as excess_risk_bound
    from epsilearn.calibration.learning import rows_needed as rows_needed
    from epsilearn.client import Client as Client
    from epsilearn.composition import compose as compose
    from epsilearn.composition import parallel as parallel
    from epsilearn.evaluation import private_score as private_score
    from epsilearn.explanation import explain as explain
    from epsilearn.guarantee import Guarantee as Guarantee
    from epsilearn.kernel import GaussianProcessRelease as GaussianProcessRelease
    from epsilearn.kernel import InteractiveLearner as InteractiveLearner
    from epsilearn.kernel import LandmarkClassifier as LandmarkClassifier
    from epsilearn.kernel import LandmarkRegressor as LandmarkRegressor
    from epsilearn.kernel import NonInteractiveLearner as NonInteractiveLearner
    from epsilearn.kernel import RandomFeatures as RandomFeatures
    from epsilearn.kernel import SemiInteractiveLearner as SemiInteractiveLearner
    from epsilearn.lasso import Lasso as Lasso
    from epsilearn.lasso import SparseLogisticRegression as SparseLogisticRegression
    from epsilearn.ledger import Ledger as Ledger
    from epsilearn.linear import ConvexERM as ConvexERM
    from epsilearn.linear import LinearRegression as LinearRegression
    from epsilearn.linear import LinearSVC as LinearSVC
    from epsilearn.linear import LogisticRegression as LogisticRegression
    from epsilearn.mechanisms import AboveThreshold as AboveThreshold
    from epsilearn.mechanisms import GaussianProcess as GaussianProcess
    from epsilearn.mechanisms import exponential as exponential
    from epsilearn.mechanisms import gaussian as gaussian
    from epsilearn.mechanisms import k_norm as k_norm
    from epsilearn.mechanisms import laplace as laplace
    from epsilearn.model_file import load as load
    from epsilearn.pipelines import check_pipeline as check_pipeline
    from epsilearn.preprocessing import BoundedScaler as BoundedScaler
    from epsilearn.rows.dask import DaskRows as DaskRows
    from epsilearn.rows.parquet import ParquetRows as ParquetRows
    from epsilearn.rows.spark import SparkRows as SparkRows
    from epsilearn.schema import Schema as Schema
    from epsilearn.selection import PrivateSelection as PrivateSelection

__version__ = "0.1.0"

# Imported when first used: `import epsilearn` should cost next to nothing.
_HOMES = {
    "AboveThreshold": "mechanisms",
    "BoundedScaler": "preprocessing",
    "Client": "client",
    "ConvexERM": "linear",
    "GaussianProcess": "mechanisms",
    "GaussianProcessRelease": "kernel",
    "Guarantee": "guarantee",
    "InteractiveLearner": "kernel",
    "LandmarkClassifier": "kernel",
    "LandmarkRegressor": "kernel",
    "Lasso": "lasso",
    "Ledger": "ledger",
    "LinearRegression": "linear",
    "LinearSVC": "linear",
    "LogisticRegression": "linear",
    "NonInteractiveLearner": "kernel",
    "DaskRows": "rows.dask",
    "ParquetRows": "rows.parquet",
    "SparkRows": "rows.spark",
    "PrivateSelection": "selection",
    "Schema": "schema",
    "RandomFeatures": "kernel",
    "SemiInteractiveLearner": "kernel",
    "SparseLogisticRegression": "lasso",
    "check_pipeline": "pipelines",
    "compose": "composition",
    "excess_risk_bound": "calibration.learning",
    "explain": "explanation",
    "exponential": "mechanisms",
    "gaussian": "mechanisms",
    "k_norm": "mechanisms",
    "laplace": "mechanisms",
    "load": "model_file",
    "parallel": "composition",
    "private_score": "evaluation",
    "rows_needed": "calibration.learning",
}

__all__ = [*_HOMES, "statistics"]  # noqa: PLE0604


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "statistics":
        return import_module("epsilearn.statistics")
    if name in _HOMES:
        return getattr(import_module(f"epsilearn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'epsilearn' has no attribute {name!r}")
