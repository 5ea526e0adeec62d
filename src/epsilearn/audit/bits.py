"""The bit-level audit: does the set of floats that can be released differ between neighbours?

Noise that is computed in floating point and added to a value leaves traces of the value in how the sum is rounded
(Mironov 2012). A look at magnitudes does not see them. Here each release is reduced to what its bits show, and those
features are judged like any other release: chosen events, fresh counts.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.audit.finding import Claim, Finding
from epsilearn.audit.trials import as_releases, judge
from epsilearn.checks import check_positive

__all__ = ["BitFinding", "audit_bits", "bit_features", "reachable"]

Array = NDArray[np.float64]

_OF_ZERO = 1100  # in place of the lowest bit of 0, which has none: above that of every double
_NEIGHBOURS = np.arange(-8, 9)  # a logarithm and its inverse are off by less than so many steps of the uniform


@dataclass(frozen=True)
class BitFinding:
    """What the bits of releases show.

    Attributes
    ----------
    finding : Finding
        What was judged: events of the bits alone.
    grids : tuple of int
        The finest bit that was ever set, on the first data set and on the second: -53 is the bit worth 2**-53.
    """

    finding: Finding
    grids: tuple[int, int]

    @property
    def refuted(self) -> bool:
        """Whether the bits alone refute the claim."""
        return self.finding.refuted

    def __str__(self) -> str:
        first, second = self.grids
        return f"{self.finding}\nfinest bit set: 2**{first} on the first data set, 2**{second} on the second"

    def to_dict(self) -> dict[str, Any]:
        return {**self.finding.to_dict(), "kind": "bits", "finest_bits": self.grids}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


def audit_bits(
    first: Any,
    second: Any,
    claim: Claim,
    confidence: float = 0.999,
    *,
    centres: tuple[Any, Any] | None = None,
    scale: float | None = None,
) -> BitFinding:
    """Judge releases by their bits alone.

    Parameters
    ----------
    first, second : array of shape (trials,) or (trials, numbers)
        A release in each row, from either of two neighbours.
    claim : Claim
        What to put to the test.
    confidence : float
        How sure the bound is.
    centres : tuple, optional
        The values without noise on the two data sets, each a number or one for each number released. With a ``scale``
        each release is also asked whether Laplace noise computed in floats could have led to it from there.
    scale : float, optional
        The scale of that noise.

    Returns
    -------
    BitFinding

    Examples
    --------
    Noise as it is found in textbooks, on the neighbours 0 and 1:

    >>> from epsilearn.audit import Claim, audit_bits
    >>> generator = np.random.default_rng(0)
    >>> audit_bits(0 + generator.laplace(size=2000), 1 + generator.laplace(size=2000), Claim(1.0)).refuted
    True
    """
    tables = as_releases(first, second)
    shown = [bit_features(table, centres, scale) for table in tables]
    finding = judge(shown[0], shown[1], claim, confidence)
    grids = [int(_lowest_bits(table).min()) for table in tables]
    return BitFinding(finding, (grids[0], grids[1]))


def bit_features(releases: Array, centres: tuple[Any, Any] | None = None, scale: float | None = None) -> Array:
    """What the bits of each release show: its lowest bit and, if the noise is known, whence it can be reached.

    How many bits there are is left out: with the lowest it would tell the magnitude, which is another audit's affair.
    """
    features: list[NDArray[Any]] = [_lowest_bits(releases)]
    if centres is not None and scale is not None:
        check_positive("scale", scale)
        features += [reachable(releases, np.broadcast_to(centre, releases.shape), scale) for centre in centres]
    return np.column_stack(features).astype(np.float64)


def _lowest_bits(releases: Array) -> NDArray[np.int64]:
    """The exponent of the lowest bit that is set."""
    mantissa, exponent = np.frexp(releases)
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    zeros = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    lowest: NDArray[np.int64] = np.where(releases == 0, _OF_ZERO, exponent - 53 + zeros)
    return lowest


def reachable(releases: Array, centres: Array, scale: float) -> Array:
    """Whether a centre plus Laplace noise from a uniform float can be exactly this release: 1 or 0.

    numpy's ``Generator.laplace`` and the textbook's ``-scale * sign(u) * log(1 - 2 |u|)`` both add or subtract
    ``scale * log(v)`` with v a multiple of 2**-53, so there are few candidates for v, and each can be tried.
    """
    away = releases - centres
    steps = np.rint(np.exp(-np.abs(away) / scale) * 2.0**53)[..., None] + _NEIGHBOURS
    steps = np.clip(steps, 1, 2.0**53)
    # The logarithm of the C library, which numpy's generators use, and numpy's own, which may differ in the last bit.
    logarithms = np.vectorize(math.log, otypes=[np.float64]), np.log
    signs = np.where(away < 0, -1.0, 1.0)[..., None]
    reached = [centres[..., None] - signs * scale * log(steps * 2.0**-53) == releases[..., None] for log in logarithms]
    found: Array = np.any(reached, axis=(0, -1)).astype(np.float64)
    return found
