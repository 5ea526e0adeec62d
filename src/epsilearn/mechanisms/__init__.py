"""The basic mechanisms: a value with declared sensitivity in, a private release and its promise out."""

from epsilearn.mechanisms.additive import gaussian, k_norm, laplace
from epsilearn.mechanisms.process import GaussianProcess
from epsilearn.mechanisms.release import NoiseLaw, Release
from epsilearn.mechanisms.selection import AboveThreshold, exponential

__all__ = ["AboveThreshold", "GaussianProcess", "NoiseLaw", "Release", "exponential", "gaussian", "k_norm", "laplace"]
