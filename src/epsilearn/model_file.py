"""A released model as plain JSON: ``docs/model-file.md`` describes every field.

A file says which version it is of, and carries a digest of everything else in it. The digest notices damage; it is no
signature, so whoever can change the file can change the digest as well.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.checks import check_choice, check_integer
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.features import Landmarks
from epsilearn.kernel.kernels import RBF, Kernel, Polynomial
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.plain_json import parse_json
from epsilearn.released import (
    MODELS,
    PATHS,
    LandmarkWeights,
    LinearWeights,
    ReleasedModel,
    check_task,
    check_weights,
)
from epsilearn.schema import Schema
from epsilearn.schema_columns import one_line

__all__ = ["FILE_NAME", "load", "model_from_json", "model_to_json"]

Array = NDArray[np.float64]

FILE_NAME = "model.json"
_FORMAT, _VERSION = "epsilearn model", 1
_MOST_BYTES = 1 << 30
_KERNELS: dict[str, type[Any]] = {"rbf": RBF, "polynomial": Polynomial}
_FIELDS = {
    "format", "version", "made_by", "model", "target", "schema", "features", "weights", "noise", "method", "settings",
    "guarantee", "digest",
}  # fmt: skip


def load(path: str | Path) -> ReleasedModel:
    """A released model from its file, or from the folder that `epsilearn fit` wrote.

    Parameters
    ----------
    path : str or path
        ``model.json``, or the folder it is in.

    Returns
    -------
    ReleasedModel

    Raises
    ------
    InvalidInput
        If the file is damaged, of another version, or holds anything that is not a model.

    Examples
    --------
    >>> import epsilearn
    >>> epsilearn.load("no-such-folder")
    Traceback (most recent call last):
    ...
    epsilearn.errors.InvalidInput: there is no model file no-such-folder
    """
    place = Path(path)
    place = place / FILE_NAME if place.is_dir() else place
    if not place.is_file():
        raise InvalidInput(f"there is no model file {place}")
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"{place} is larger than a model can be")
        text = place.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{place} is not a model file: it is not UTF-8 text") from None
    except OSError as error:
        raise InvalidInput(f"cannot read the model {place}: {error.strerror}") from None
    try:
        return model_from_json(text)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


def model_to_json(model: ReleasedModel) -> str:
    """The model as text, the same for the same model."""
    from epsilearn import __version__

    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "made_by": f"epsilearn {__version__}",
        "model": model.model,
        "target": model.target,
        "schema": model.schema.to_dict(),
        "features": [] if model.schema.sparse else model.encoding.names,
        "weights": _weights_to_dict(model.weights),
        "noise": {"kind": model.noise.kind, "scale": model.noise.scale, "dimension": model.noise.dimension},
        "method": model.method,
        "settings": model.settings,
        "guarantee": model.guarantee.to_dict(),
    }
    content["digest"] = _digest(content)
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def model_from_json(text: str) -> ReleasedModel:
    """The model in a text, checked: version, digest, every field and every size."""
    content = parse_json(text, "a model file")
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InvalidInput("not a model file: it does not say that it is one")
    if content.get("version") != _VERSION:
        raise InvalidInput(
            f"model file of version {one_line(content.get('version'))}; this epsilearn reads version {_VERSION}"
        )
    if set(content) != _FIELDS:
        raise InvalidInput("not a model file of this version: fields are missing, or there are others")
    digest = content.pop("digest")
    try:
        if digest != _digest(content):
            raise InvalidInput("the file was changed after its release, as its digest tells; get the original")
        return _model(content)
    except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        message = str(error) if isinstance(error, InvalidInput) else "a field has the wrong type or size"
        raise InvalidInput(f"not a model file: {message}") from None


def _model(content: dict[str, Any]) -> ReleasedModel:
    schema = Schema.from_dict(content["schema"])
    target, kind = content["target"], content["model"]
    if kind not in MODELS:
        raise InvalidInput(f"it holds a model of an unknown kind, {str(kind)[:40]!r}")
    column = schema.check_target(target)
    check_task(kind, column)
    outputs = len(column.categories) if column.categories is not None and len(column.categories) > 2 else 1
    weights = _weights(content["weights"], outputs, schema.width(target))
    if isinstance(weights, LandmarkWeights) != (kind == "landmark"):
        raise InvalidInput("its weights are not those of its kind of model")
    method, ways = content["method"], ("path",) if kind in PATHS else ("objective", "output", "gradient")
    check_choice("method", method, ways)
    settings = content["settings"]
    if not isinstance(settings, dict) or not all(type(number) in (int, float) for number in settings.values()):
        raise InvalidInput("settings must be numbers")
    law = _noise(content["noise"])
    guarantee = Guarantee.from_dict(content["guarantee"])
    model = ReleasedModel(kind, target, schema, weights, guarantee, law, method, settings)
    if content["features"] != ([] if schema.sparse else model.encoding.names):
        raise InvalidInput("the features' names are not those of its schema")
    return model


def _noise(data: dict[str, Any]) -> NoiseLaw:
    law = NoiseLaw(data["kind"], _positive(data["scale"], "the noise's scale"), data["dimension"])
    check_integer("the noise's dimension", law.dimension)
    _ = law.deviation  # an unknown kind has none
    return law


def _weights_to_dict(weights: LinearWeights | LandmarkWeights) -> dict[str, Any]:
    shared = {
        "coefficients": [_vector_to_data(row) for row in weights.coefficients],
        "intercept": weights.intercept.tolist(),
        "norm": weights.norm,
    }
    if isinstance(weights, LinearWeights):
        return {"kind": "linear", **shared}
    features = weights.features
    return {
        "kind": "landmark",
        **shared,
        "kernel": _kernel_to_dict(features.kernel),
        "landmarks": [_vector_to_data(row) for row in np.asarray(features.landmarks)],
        "projection": features.projection.tolist(),
        "factors": None if features.factors is None else features.factors.tolist(),
        "bound": features.bound,
    }


def _kernel_to_dict(kernel: Kernel) -> dict[str, Any]:
    name = next(name for name, kind in _KERNELS.items() if type(kernel) is kind)
    return {"name": name, **vars(kernel)}


def _vector_to_data(vector: Array) -> Any:
    """A list of numbers, or only those that are not zero where few are."""
    places = np.flatnonzero(vector)
    if len(vector) < 100 or 4 * len(places) > len(vector):
        return vector.tolist()
    return {"size": len(vector), "at": places.tolist(), "values": vector[places].tolist()}


def _weights(data: dict[str, Any], outputs: int, width: int) -> LinearWeights | LandmarkWeights:
    kind = data["kind"]
    own = {"kernel", "landmarks", "projection", "factors", "bound"} if kind == "landmark" else set()
    if kind not in ("linear", "landmark") or set(data) != {"kind", "coefficients", "intercept", "norm"} | own:
        raise InvalidInput("its weights are of an unknown kind")
    intercept = _numbers(data["intercept"], (outputs,), "intercept")
    norm = None if data["norm"] is None else _positive(data["norm"], "norm")
    # Before anything is made: a row of zeros takes no room in a file, and any amount in memory.
    rows = outputs if kind == "linear" else len(data["landmarks"])
    check_weights(rows, width)
    if kind == "linear":
        return LinearWeights(_rows(data["coefficients"], outputs, width, "coefficients"), intercept, norm)
    landmarks = _rows(data["landmarks"], len(data["landmarks"]), width, "landmarks")
    columns = len(data["projection"][0])
    check_weights(max(rows, outputs), columns)
    projection = _numbers(data["projection"], (len(landmarks), columns), "projection")
    factors = None if data["factors"] is None else _numbers(data["factors"], (columns,), "factors")
    features = Landmarks.restored(
        _kernel(data["kernel"]), landmarks, projection, factors, _positive(data["bound"], "bound")
    )
    coefficients = _rows(data["coefficients"], outputs, columns, "coefficients")
    return LandmarkWeights(features, coefficients, intercept, _positive(norm, "norm"))


def _kernel(data: dict[str, Any]) -> Kernel:
    kind = _KERNELS[data["name"]]
    parameters = {name: value for name, value in data.items() if name != "name"}
    if set(parameters) != {field.name for field in fields(kind)}:
        raise InvalidInput("its kernel lacks a parameter, or has another")
    kernel: Kernel = kind(**parameters)
    return kernel


def _rows(data: Any, count: int, width: int, name: str) -> Array:
    if not isinstance(data, list) or len(data) != count or not data:
        raise InvalidInput(f"{name} must be {count} rows")
    found = np.zeros((count, width))
    for row, content in zip(found, data, strict=True):
        _fill(row, content, name)
    return found


def _fill(row: Array, data: Any, name: str) -> None:
    """Write a row's numbers into it: all of them, or those that are not zero at their places."""
    width = len(row)
    if not isinstance(data, dict):
        row[:] = _numbers(data, (width,), name)
        return
    if set(data) != {"size", "at", "values"} or data["size"] != width:
        raise InvalidInput(f"{name} must have {width} numbers in a row")
    at = np.array(data["at"])
    if at.size and (
        at.dtype.kind != "i" or at.ndim != 1 or at.min() < 0 or at.max() >= width or (np.diff(at) < 1).any()
    ):
        raise InvalidInput(f"{name} must name places that rise and lie within its {width}")
    row[at.astype(np.int64)] = _numbers(data["values"], (at.size,), name)


def _numbers(data: Any, shape: tuple[int, ...], name: str) -> Array:
    array = np.array(data, dtype=object)
    if array.shape != shape or not all(type(number) in (int, float) for number in array.ravel()):
        raise InvalidInput(f"{name} must be numbers, {' by '.join(map(str, shape))} of them")
    found = array.astype(np.float64)
    if not np.isfinite(found).all():
        raise InvalidInput(f"{name} must be finite")
    return found


def _positive(number: Any, name: str) -> float:
    found = float(_numbers([number], (1,), name)[0])
    if found <= 0:
        raise InvalidInput(f"{name} must be above 0")
    return found
