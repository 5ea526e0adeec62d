"""A released model as an ONNX graph, from raw columns to predictions, in double precision.

Each column is an input of shape (rows, 1): numbers as double, texts as string, booleans as bool. The graph does what
the schema says: bounds, categories with their aliases, what stands for missing values and for others. It cannot refuse:
where `ReleasedModel` raises an error, a category that is not listed counts as none of them, and blanks around texts are
not taken away. The guarantee travels along in the metadata.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from epsilearn.errors import InvalidInput
from epsilearn.kernel.kernels import RBF, Polynomial
from epsilearn.released import LandmarkWeights, ReleasedModel
from epsilearn.schema_columns import Column

__all__ = ["to_onnx"]

_OPSET, _ML_OPSET, _IR = 18, 3, 9
_SHARE = 1 - 2.0**-40  # what `BoundedScaler` keeps below the bound
_OWN = "epsilearn: "  # how the graph's own names begin


def to_onnx(model: ReleasedModel) -> bytes:
    """The model as a serialised ONNX graph.

    Parameters
    ----------
    model : ReleasedModel
        From `epsilearn.load`.

    Returns
    -------
    bytes
        What to write to ``model.onnx``. Outputs: ``prediction``, and ``probabilities`` where the model has them.
    """
    try:
        import onnx
    except ModuleNotFoundError:
        raise InvalidInput("exporting to ONNX needs the package onnx: pip install 'epsilearn[onnx]'") from None
    for name in model.schema.features(model.target):
        if not name or name in _outputs_of(model) or name.startswith(_OWN):
            raise InvalidInput(f"a column called {name!r} cannot be an input beside the graph's own names; rename it")
    graph = _Graph(onnx)
    features = _features(graph, model)
    _outputs(graph, model, _scores(graph, model, features))
    made = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "epsilearn", graph.inputs, graph.outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET)],
        ir_version=_IR,
        producer_name="epsilearn",
    )
    onnx.helper.set_model_props(made, {"guarantee": model.guarantee.to_json(), "target": model.target})
    onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content


def _outputs_of(model: ReleasedModel) -> tuple[str, ...]:
    if model.classes is None:
        return ("prediction",)
    return ("prediction", "probabilities" if model.has_probabilities else "scores")


class _Graph:
    """Nodes, inputs and constants, added one after the other."""

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.helper = onnx, onnx.helper
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, domain: str = "", name: str | None = None, **attributes: Any) -> str:
        """One more node; the name of what it computes."""
        result = name or f"{_OWN}value {len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [result], domain=domain, **attributes))
        return result

    def constant(self, value: Any) -> str:
        """A constant of the graph: doubles, whole numbers or texts."""
        array, name = np.asarray(value), f"{_OWN}constant {len(self.constants)}"
        kinds = {"f": self.onnx.TensorProto.DOUBLE, "i": self.onnx.TensorProto.INT64, "b": self.onnx.TensorProto.BOOL}
        if array.dtype.kind == "U":
            words = [word.encode() for word in array.ravel().tolist()]
            tensor = self.helper.make_tensor(name, self.onnx.TensorProto.STRING, array.shape, words)
        else:
            tensor = self.helper.make_tensor(name, kinds[array.dtype.kind], array.shape, array.ravel().tolist())
        self.constants.append(tensor)
        return name

    def input(self, name: str, kind: str, width: int) -> str:
        types = self.onnx.TensorProto
        kinds = {"number": types.DOUBLE, "text": types.STRING, "boolean": types.BOOL}
        self.inputs.append(self.helper.make_tensor_value_info(name, kinds[kind], ["rows", width]))
        return name

    def output(self, name: str, kind: Any, *shape: Any) -> None:
        self.outputs.append(self.helper.make_tensor_value_info(name, kind, list(shape)))


def _features(graph: _Graph, model: ReleasedModel) -> str:
    schema = model.schema
    if schema.sparse:
        assert schema.others is not None
        assert schema.others.count is not None
        low, high = schema.others.bounds
        inside = graph.add("Clip", graph.input("X", "number", schema.others.count), *_constants(graph, low, high))
        return graph.add("Div", inside, graph.constant(float(max(abs(low), abs(high)))))
    blocks = [_block(graph, name, schema.columns[name], schema.file.missing) for name in schema.features(model.target)]
    return graph.add("Concat", *blocks, axis=1)


def _constants(graph: _Graph, *numbers: float) -> list[str]:
    return [graph.constant(float(number)) for number in numbers]


def _block(graph: _Graph, name: str, column: Column, unknown: tuple[str, ...]) -> str:
    if column.bounds is not None:
        return _number(graph, _filled(graph, graph.input(name, "number", 1), column.missing), *column.bounds)
    assert column.categories is not None
    if isinstance(column.categories[0], str):
        return _texts(graph, graph.input(name, "text", 1), column, unknown)
    if isinstance(column.categories[0], bool):
        value = graph.add("Cast", graph.input(name, "boolean", 1), to=graph.onnx.TensorProto.DOUBLE)
    else:
        value = _filled(graph, graph.input(name, "number", 1), column.missing)
    return _one_hot(graph, value, [float(category) for category in column.categories], column)


def _filled(graph: _Graph, value: str, missing: Any) -> str:
    """What stands for a missing number, where the input is NaN."""
    if missing is None:
        return value
    return graph.add("Where", graph.add("IsNaN", value), graph.constant(float(missing)), value)


def _number(graph: _Graph, value: str, low: float, high: float) -> str:
    """Clipped, and brought to [-1, 1] as `BoundedScaler` does, operation by operation."""
    bottom, top = _constants(graph, low, high)
    inside = graph.add("Clip", value, bottom, top)
    distance = graph.add("Sub", graph.add("Sub", inside, bottom), graph.add("Sub", top, inside))
    return graph.add("Mul", graph.add("Div", distance, graph.constant(high - low)), graph.constant(_SHARE))


def _one_hot(graph: _Graph, value: str, categories: list[float], column: Column) -> str:
    hits = graph.add("Cast", graph.add("Equal", value, graph.constant(np.array([categories]))), to=_double(graph))
    if column.other is not None:
        # Whatever is none of them counts as the one that stands for the others.
        assert column.categories is not None
        place = np.array([[float(category == column.other) for category in column.categories]])
        none = graph.add("Sub", graph.constant(1.0), graph.add("ReduceMax", hits, graph.constant([1]), keepdims=1))
        hits = graph.add("Add", hits, graph.add("Mul", none, graph.constant(place)))
    return graph.add("Mul", hits, graph.constant(_SHARE))


def _texts(graph: _Graph, value: str, column: Column, unknown: tuple[str, ...]) -> str:
    """Texts, their aliases and what means "not known", as numbers, and those as one-hot rows."""
    assert column.categories is not None
    numbers: dict[str, int] = {str(category): i for i, category in enumerate(column.categories)}
    numbers |= {alias: numbers[meaning] for alias, meaning in column.aliases.items()}
    if column.missing is not None:
        numbers |= {word: numbers[str(column.missing)] for word in unknown}
    width = len(column.categories)
    rest = numbers[str(column.other)] if column.other is not None else width  # beyond them all: none of them
    found = graph.add(
        "LabelEncoder", value, domain="ai.onnx.ml", keys_strings=list(numbers), values_int64s=list(numbers.values()),
        default_int64=rest,
    )  # fmt: skip
    return _hits(graph, graph.add("Equal", found, graph.constant(np.arange(width)[None])))


def _hits(graph: _Graph, truths: str) -> str:
    return graph.add("Mul", graph.add("Cast", truths, to=_double(graph)), graph.constant(_SHARE))


def _double(graph: _Graph) -> Any:
    return graph.onnx.TensorProto.DOUBLE


def _scores(graph: _Graph, model: ReleasedModel, features: str) -> str:
    weights = model.weights
    if weights.norm is not None:
        features = _shortened(graph, features, weights.norm)
    if isinstance(weights, LandmarkWeights):
        features = _along_landmarks(graph, weights, features)
    product = graph.add("MatMul", features, graph.constant(weights.coefficients.T))
    return graph.add("Add", product, graph.constant(weights.intercept))


def _shortened(graph: _Graph, rows: str, norm: float) -> str:
    """Rows no longer than this: multiplied by norm / max(norm, length)."""
    limit = graph.constant(float(norm))
    length = graph.add("ReduceL2", rows, graph.constant([1]), keepdims=1)
    return graph.add("Mul", rows, graph.add("Div", limit, graph.add("Max", limit, length)))


def _along_landmarks(graph: _Graph, weights: LandmarkWeights, rows: str) -> str:
    landmarks, kernel = np.asarray(weights.features.landmarks), weights.features.kernel
    products = graph.add("MatMul", rows, graph.constant(landmarks.T))
    if isinstance(kernel, RBF):
        own = graph.add("ReduceSumSquare", rows, graph.constant([1]), keepdims=1)
        twice = graph.add("Mul", graph.constant(2.0), products)
        sums = graph.add("Add", own, graph.constant((landmarks**2).sum(axis=1)))
        values = graph.add("Exp", graph.add("Mul", graph.constant(-float(kernel.gamma)), graph.add("Sub", sums, twice)))
    else:
        assert isinstance(kernel, Polynomial)
        base = graph.add("Add", products, graph.constant(float(kernel.constant)))
        values = base
        for _ in range(kernel.degree - 1):
            values = graph.add("Mul", values, base)
    found = graph.add("MatMul", values, graph.constant(weights.features.projection))
    if weights.features.factors is not None:
        found = graph.add("Mul", found, graph.constant(weights.features.factors))
    return _shortened(graph, found, weights.features.bound * _SHARE)


def _outputs(graph: _Graph, model: ReleasedModel, scores: str) -> None:
    types = graph.onnx.TensorProto
    if model.classes is None:
        bounds = model.schema.columns[model.target].bounds
        assert bounds is not None
        graph.add("Clip", scores, *_constants(graph, *bounds), name="prediction")
        graph.output("prediction", types.DOUBLE, "rows", 1)
        return
    two = len(model.classes) == 2
    flat = graph.constant([-1])
    if two:
        above = graph.add("Greater", scores, graph.constant(0.0))
        which = graph.add("Reshape", graph.add("Cast", above, to=types.INT64), flat)
    else:
        which = graph.add("ArgMax", scores, axis=1, keepdims=0)
    kinds = {"U": types.STRING, "i": types.INT64, "f": types.DOUBLE, "b": types.BOOL}
    graph.add("Gather", graph.constant(model.classes), which, name="prediction")
    graph.output("prediction", kinds[model.classes.dtype.kind], "rows")
    if not model.has_probabilities:
        graph.add("Identity", scores, name="scores")
        graph.output("scores", types.DOUBLE, "rows", 1)
        return
    if two:
        second = graph.add("Sigmoid", scores)
        graph.add("Concat", graph.add("Sub", graph.constant(1.0), second), second, axis=1, name="probabilities")
    else:
        graph.add("Softmax", scores, axis=1, name="probabilities")
    graph.output("probabilities", types.DOUBLE, "rows", len(model.classes))
