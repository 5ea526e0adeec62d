"""Real data for the studies: from a folder of the reader's, or downloaded through scikit-learn."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.errors import InvalidInput

__all__ = ["MissingData", "covertype", "loader", "rcv1"]

VARIABLE = "EPSILEARN_DATA"


class MissingData(InvalidInput):
    """Data that are neither in the reader's folder nor to be had from the network."""


def covertype() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """CoverType: 581,012 rows of 54 columns, and the kind of forest, 1 to 7."""
    with _explained("CoverType"):
        local = loader()
        if local is not None:
            return local.covertype()  # type: ignore[no-any-return]
        from sklearn.datasets import fetch_covtype

        return fetch_covtype(return_X_y=True)  # type: ignore[no-any-return]


def rcv1() -> tuple[Any, NDArray[np.int64]]:
    """RCV1: more than 23,000 sparse rows of 47,236 columns, each of norm 1, and a label of -1 or 1."""
    with _explained("RCV1"):
        local = loader()
        if local is not None:
            return local.rcv1()  # type: ignore[no-any-return]
        from sklearn.datasets import fetch_rcv1

        found = fetch_rcv1(subset="train")
    corporate = found.target[:, list(found.target_names).index("CCAT")].toarray().ravel()
    return found.data, 2 * corporate.astype(np.int64) - 1


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Say what to do where data cannot be had: no file, no function for it, no network."""
    try:
        with warnings.catch_warnings():
            # Of retries; what matters is said below.
            warnings.simplefilter("ignore", UserWarning)
            yield
    except (OSError, AttributeError) as error:
        raise MissingData(
            f"{name} cannot be loaded ({type(error).__name__}): set {VARIABLE} to a folder whose load.py has a "
            "function for it, or leave it unset and connect to the network, so that scikit-learn can download it"
        ) from None


def loader() -> ModuleType | None:
    """``load.py`` of the folder that the environment names, if it does."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return None
    path = Path(folder) / "load.py"
    if not path.is_file():
        raise MissingData(f"{VARIABLE} names a folder without load.py; unset it to download the data instead")
    description = importlib.util.spec_from_file_location("epsilearn_data", path)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module
