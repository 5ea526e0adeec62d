"""Convex sets of weights, known by their linear minimisers. Everything here is public geometry: no set ever sees data.

Private Frank-Wolfe (Talwar, Thakurta and Zhang 2015, "Nearly Optimal Private LASSO") walks inside such a set. Call
``check`` once before the other methods: they take it that the set lives in R^features.
"""

from epsilearn.constraints.balls import GroupBall, L1Ball, L2Ball, LqBall, Simplex, named_set
from epsilearn.constraints.interface import ConstraintSet, CoordinateCorners, Corners, PointCorners
from epsilearn.constraints.polytope import Polytope
from epsilearn.constraints.probing import probe

__all__ = [
    "ConstraintSet", "CoordinateCorners", "Corners", "GroupBall", "L1Ball", "L2Ball", "LqBall", "OWN_SETS",
    "PointCorners", "Polytope", "Simplex", "named_set", "probe",
]  # fmt: skip

# Sets whose minimisers need no probing.
OWN_SETS = (L1Ball, Simplex, L2Ball, LqBall, GroupBall, Polytope)
