"""Private linear models with scikit-learn's manners."""

from epsilearn.linear.classification import LinearSVC, LogisticRegression
from epsilearn.linear.convex import ConvexERM
from epsilearn.linear.regression import LinearRegression

__all__ = ["ConvexERM", "LinearRegression", "LinearSVC", "LogisticRegression"]
