"""Private learning with kernels (Jain and Thakurta 2013): everything is seen through K alone."""

from epsilearn.kernel.kernels import (
    RBF,
    HistogramIntersection,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    UserKernel,
)

__all__ = [
    "HistogramIntersection",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "RBF",
    "UserKernel",
]
