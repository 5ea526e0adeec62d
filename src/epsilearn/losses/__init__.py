"""Losses as small frozen objects that know their own bounds.

A loss is a function of scores <w, x> and a target y. Everything a calibration asks of one is public: how steep and how
curved it is, how the two trade off, and what that means at a given score.
"""

from epsilearn.losses.custom import Custom
from epsilearn.losses.interface import Loss
from epsilearn.losses.scores import Huber, HuberisedHinge, Logistic, Squared
from epsilearn.losses.softmax import CappedSoftmax, Softmax

__all__ = ["CappedSoftmax", "Custom", "Huber", "HuberisedHinge", "Logistic", "Loss", "Softmax", "Squared"]
