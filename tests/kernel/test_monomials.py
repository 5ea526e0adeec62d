"""The polynomial kernel's features: inner products, size, and sparsity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from epsilearn.errors import InvalidInput
from epsilearn.kernel import Polynomial
from epsilearn.kernel.monomials import monomial_count, monomials


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("constant", [0.0, 1.0, 2.5])
def test_inner_products_are_the_kernel(degree, constant):
    generator = np.random.default_rng(degree)
    X = np.where(generator.random((30, 7)) < 0.4, generator.normal(size=(30, 7)), 0.0)
    X[0] = 0.0
    rows = monomials(X, degree, constant)
    expected = Polynomial(degree, constant, 1.0).matrix(X, X)
    np.testing.assert_allclose((rows @ rows.T).toarray(), expected, rtol=1e-10, atol=1e-10)
    assert rows.shape == (30, monomial_count(7, degree))
    entries = np.count_nonzero(X, axis=1) + (constant > 0)
    assert np.diff(rows.indptr).tolist() == [math.comb(m + degree - 1, degree) if m else 0 for m in entries]


def test_every_monomial_has_a_column_of_its_own():
    rows = monomials(np.ones((1, 6)), 3, 1.0)
    assert sorted(rows.indices.tolist()) == list(range(monomial_count(6, 3)))
    # Squared weights are multinomial coefficients: they sum to (6 + 1)**3.
    assert (rows.data**2).sum() == pytest.approx(343)


def test_sparse_rows_stay_sparse_and_need_not_be_tidy():
    untidy = sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 1000))
    tidy = np.zeros((1, 1000))
    tidy[0, [0, 2]] = 2.0, 4.0
    rows, expected = monomials(untidy, 3, 1.0), monomials(tidy, 3, 1.0)
    assert rows.nnz == expected.nnz == math.comb(3 + 2, 3)
    assert (rows != expected).nnz == 0
    assert untidy.nnz == 3


def test_twelve_entries_have_455_monomials_of_degree_three():
    assert monomials(np.ones((1, 12)), 3, 1.0).nnz == 455


def test_more_columns_than_numbers_are_refused():
    with pytest.raises(InvalidInput, match="landmarks"):
        monomials(sparse.csr_array((1, 10**6)), 20, 1.0)
