"""Packages that are missing where the rows are: an error that is not the table's."""

from __future__ import annotations

import re

__all__ = ["missing_package"]

# What a worker imports to sum rows. Of no other name is it known that it is public.
_NEEDED = {"epsilearn", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "numba", "threadpoolctl", "joblib"}


def missing_package(error: BaseException) -> str | None:
    """The package that a worker could not import, if that is what an error, or one behind it, says.

    Examples
    --------
    >>> missing_package(RuntimeError("... ModuleNotFoundError: No module named 'epsilearn.rows'"))
    'epsilearn'
    >>> missing_package(ModuleNotFoundError("No module named 'patient_4711'")) is None
    True
    """
    behind: BaseException | None = error
    while behind is not None:
        for name in re.findall(r"(?:No module named|import of) '?(\w+)", str(behind)):
            if name in _NEEDED:
                return str(name)
        behind = behind.__cause__ or behind.__context__
    return None
