"""Minimisers that see data only through rows' sums, and return a point with a certificate. They know no privacy."""

from epsilearn.solvers.descent import descend
from epsilearn.solvers.newton import Problem, Solution, minimise

__all__ = ["Problem", "Solution", "descend", "minimise"]
