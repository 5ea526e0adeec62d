"""What Opacus is asked to do: logistic regression by DP-SGD; runs inside its own environment.

One linear layer with a bias, cross entropy, Poisson sampling, plain SGD with momentum, Opacus' own clipping and noise
(ghost clipping: the same sums as by gradients of single rows, in less time). Rows stay in one tensor: a DataLoader
would take longer than the steps.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import opacus
import torch
from job import Split, serve
from opacus.grad_sample import GradSampleModuleFastGradientClipping, register_norm_sampler
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from scipy import sparse
from torch import nn

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


class _Product(torch.autograd.Function):
    """Sparse rows times dense weights."""

    @staticmethod
    def forward(context: Any, weight: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        context.columns = columns
        return rows @ weight.T

    @staticmethod
    def backward(context: Any, slopes: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return (context.columns @ slopes).T, None, None


class SparseLinear(nn.Linear):
    """A linear layer for sparse rows, which Opacus' own sampler for linear layers does not take."""

    def forward(self, norms: torch.Tensor) -> torch.Tensor:
        """Scores of the rows at hand; the input is only their norms, all that clipping needs of them."""
        assert len(norms) == self.rows.shape[0]
        return _Product.apply(self.weight, self.rows, self.columns) + self.bias

    def hold(self, rows: sparse.csr_matrix) -> None:
        """The rows of the next step."""
        self.rows, self.columns = _tensor(rows), _tensor(rows.T.tocsr())


@register_norm_sampler(SparseLinear)
def _sparse_norms(layer: SparseLinear, activations: Any, backprops: torch.Tensor) -> dict[Any, torch.Tensor]:
    slopes = backprops.norm(dim=1)
    return {layer.weight: slopes * activations[0].squeeze(1), layer.bias: slopes}


def _tensor(rows: sparse.csr_matrix) -> torch.Tensor:
    parts = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
    return torch.sparse_csr_tensor(*parts, size=rows.shape)


class Rows:
    """Rows, dense or sparse, of which any may be taken."""

    def __init__(self, X: Any) -> None:
        self.sparse = sparse.issparse(X)
        self.X = X.astype(np.float32) if self.sparse else torch.from_numpy(np.asarray(X, np.float32))
        if self.sparse:
            squares = np.asarray(self.X.multiply(self.X).sum(axis=1))
            self.norms = torch.from_numpy(np.sqrt(squares).astype(np.float32))
        self.last: Any = None

    def scores(self, model: Any, chosen: torch.Tensor | None = None) -> torch.Tensor:
        """Scores of the chosen rows, or of all."""
        if not self.sparse:
            return model(self.X if chosen is None else self.X[chosen])
        layer = getattr(model, "_module", model)
        if chosen is not None or self.last is not layer:
            layer.hold(self.X if chosen is None else self.X[chosen.numpy()])
            self.last = layer if chosen is None else None
        return model(self.norms if chosen is None else self.norms[chosen])


def poisson(count: int, sampling: float, generator: np.random.Generator) -> torch.Tensor:
    """Each row with the same probability, independently: first how many, then which."""
    size = generator.binomial(count, sampling)
    return torch.from_numpy(generator.choice(count, size, replace=False, shuffle=False))


def fit(rows: Rows, y: torch.Tensor, outputs: int, settings: dict[str, Any], seed: int) -> nn.Module:
    """A linear model after so many noisy steps."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    count, sampling = len(y), settings["sampling"]
    layer = (SparseLinear if rows.sparse else nn.Linear)(rows.X.shape[1], outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    model = GradSampleModuleFastGradientClipping(layer, max_grad_norm=settings["clip"])
    plain = torch.optim.SGD(model.parameters(), lr=settings["rate"], momentum=settings["momentum"])
    optimizer = DPOptimizerFastGradientClipping(
        plain, noise_multiplier=settings["noise"], max_grad_norm=settings["clip"], expected_batch_size=sampling * count
    )
    criterion = nn.BCEWithLogitsLoss() if outputs == 1 else nn.CrossEntropyLoss()
    loss = DPLossFastGradientClipping(model, optimizer, criterion)
    for _ in range(settings["steps"]):
        chosen = None if sampling == 1 else poisson(count, sampling, generator)
        target = y if chosen is None else y[chosen]
        if len(target) == 0:
            raise RuntimeError("an empty batch")
        scores = rows.scores(model, chosen)
        loss(scores.squeeze(1) if outputs == 1 else scores, target).backward()
        optimizer.step()
    return layer


def trained(X: Any, y: Any, settings: dict[str, Any]) -> nn.Module:
    """A model of a table, rows brought into tensors first."""
    outputs = 1 if y.max() == 1 else int(y.max()) + 1
    return fit(Rows(X), _target(y, outputs), outputs, settings, 0)


def _target(y: Any, outputs: int) -> torch.Tensor:
    return torch.from_numpy(y.astype(np.float32 if outputs == 1 else np.int64))


def accuracy(split: Split, settings: dict[str, Any], run: int) -> float:
    """Share of test rows that are right."""
    outputs = 1 if split.classes == 2 else split.classes
    model = fit(split.kept("train", Rows), _target(split.y_train, outputs), outputs, settings, run)
    with torch.no_grad():
        scores = split.kept("test", Rows).scores(model).numpy()
    found = (scores[:, 0] > 0).astype(np.int64) if outputs == 1 else scores.argmax(axis=1)
    return float(np.mean(found == split.y_test))


if __name__ == "__main__":
    serve(trained, accuracy, {"opacus": opacus.__version__, "torch": torch.__version__})
