"""Private learning with kernels (Jain and Thakurta 2013): everything is seen through K alone."""

from epsilearn.kernel.interactive import Answer, InteractiveLearner
from epsilearn.kernel.kernels import (
    RBF,
    HistogramIntersection,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
)
from epsilearn.kernel.linear_features import LandmarkClassifier, LandmarkRegressor, RandomFeatures
from epsilearn.kernel.non_interactive import NonInteractiveLearner, ball_net
from epsilearn.kernel.objects import Precomputed, UserKernel
from epsilearn.kernel.process_release import GaussianProcessRelease
from epsilearn.kernel.semi_interactive import SemiInteractiveLearner

__all__ = [
    "Answer",
    "GaussianProcessRelease",
    "HistogramIntersection",
    "InteractiveLearner",
    "Kernel",
    "LandmarkClassifier",
    "LandmarkRegressor",
    "Laplacian",
    "Linear",
    "NonInteractiveLearner",
    "Polynomial",
    "Precomputed",
    "RBF",
    "RandomFeatures",
    "SemiInteractiveLearner",
    "UserKernel",
    "ball_net",
]
