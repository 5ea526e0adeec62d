"""Each loss's declared bounds against brute force over scores and targets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from scipy.special import log_softmax

from epsilearn.balls import ball, precision
from epsilearn.errors import InvalidInput
from epsilearn.losses import Custom, Huber, HuberisedHinge, Logistic, Softmax, Squared

LOSSES = [
    Logistic(),
    HuberisedHinge(0.5),
    HuberisedHinge(0.1),
    HuberisedHinge(1.5),
    Squared(1.0),
    Squared(3.0),
    Huber(1.0, 1.0),
    Huber(0.3, 2.0),
    Huber(5.0, 1.0),
]
SCORES = np.linspace(-30, 30, 60_001)


def targets(loss) -> list[float]:
    bound = 1.0 if loss.classifies else loss.target_bound
    return [-bound, bound] if loss.classifies else list(np.linspace(-bound, bound, 9))


def over_all(loss, function, scores: np.ndarray = SCORES) -> float:
    return max(float(np.max(function(scores, np.full_like(scores, y)))) for y in targets(loss))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
class TestEveryLoss:
    def test_slope_and_curvature_are_derivatives(self, loss):
        step = 1e-6
        for y in targets(loss):
            target = np.full_like(SCORES, y)
            numeric = (loss.value(SCORES + step, target) - loss.value(SCORES - step, target)) / (2 * step)
            np.testing.assert_allclose(loss.slope(SCORES, target), numeric, atol=1e-5)
            numeric = (loss.slope(SCORES + step, target) - loss.slope(SCORES - step, target)) / (2 * step)
            differs = np.abs(loss.curvature(SCORES, target) - numeric) > 1e-3
            assert differs.sum() <= 4  # only where the curvature jumps

    def test_it_is_convex_and_not_negative(self, loss):
        for y in targets(loss):
            target = np.full_like(SCORES, y)
            assert (loss.value(SCORES, target) >= 0).all()
            assert (np.diff(loss.slope(SCORES, target)) >= -1e-12).all()

    def test_bounds_hold_and_are_tight(self, loss):
        if math.isfinite(loss.lipschitz):
            steepest = over_all(loss, lambda s, y: np.abs(loss.slope(s, y)))
            assert loss.lipschitz * (1 - 1e-9) <= steepest <= loss.lipschitz or steepest > 0.999 * loss.lipschitz
        assert over_all(loss, loss.curvature) == pytest.approx(loss.smoothness, rel=1e-6)
        assert over_all(loss, loss.value, np.zeros(1)) == pytest.approx(loss.at_zero, rel=1e-12)

    def test_steepness_at_a_score(self, loss):
        for score in (0.0, 0.1, 0.7, 1.0, 2.5, 10.0):
            found = over_all(loss, lambda s, y: np.abs(loss.slope(s, y)), np.array([-score, score]))
            assert found <= loss.steepest(score) * (1 + 1e-12)

    def test_the_pull_outwards(self, loss):
        for reach in (0.05, 0.3, 0.9, 1.3, 4.0, 20.0):
            scores = np.linspace(-reach, reach, 20_001)
            found = over_all(loss, lambda s, y: -s * loss.slope(s, y), scores)
            assert found <= loss.pull(reach) * (1 + 1e-9)
            assert found >= loss.pull(reach) * (1 - 1e-3)

    def test_curvature_against_slope(self, loss):
        if not math.isfinite(loss.lipschitz):
            return
        for y in targets(loss):
            target = np.full_like(SCORES, y)
            slopes, curvatures = np.abs(loss.slope(SCORES, target)), loss.curvature(SCORES, target)
            assert all(c <= loss.curvature_at(s) + 1e-12 for s, c in zip(slopes[::50], curvatures[::50], strict=True))


def test_bad_parameters():
    for make in (lambda: HuberisedHinge(0.0), lambda: Squared(-1.0), lambda: Huber(math.nan), lambda: Huber(1.0, 0.0)):
        with pytest.raises(InvalidInput):
            make()


def test_logistic_far_out_does_not_overflow():
    scores = np.array([-1e4, 1e4])
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(Logistic().value(scores, np.ones(2))).all()
        np.testing.assert_allclose(Logistic().slope(scores, np.ones(2)), [-1, 0], atol=1e-300)


@pytest.mark.parametrize("loss", [*LOSSES, Softmax(3)], ids=repr)
def test_a_slope_has_one_sign_unless_the_loss_says_otherwise(loss):
    if isinstance(loss, Softmax):
        assert not loss.two_sided  # its gradients are mixtures of corners, which are counted one by one
        return
    slopes = [loss.slope(SCORES, np.full_like(SCORES, y)) for y in targets(loss)]
    assert loss.two_sided == any((s > 0).any() and (s < 0).any() for s in slopes)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_rounding_of_a_slope_is_bounded_in_balls(loss):
    generator = np.random.default_rng(1)
    for size in (1.0, 40.0, 1e8):
        scores = np.append(generator.uniform(-size, size, 60), [0.0, size, -size])
        for y in targets(loss):
            found = loss.slope(scores, np.full_like(scores, y))
            with precision(200):
                exact = [loss.slope_in_balls(ball(float(s)), ball(float(y))) for s in scores]
                errors = [float(abs(e - ball(float(f))).upper()) for e, f in zip(exact, found, strict=True)]
            # A score enters exactly here; its own rounding is counted elsewhere, times the smoothness.
            assert max(errors) <= loss.slope_rounding(size) + loss.smoothness * 2.0**-52 * (1 + size)


# ---------------------------------------------------------------- softmax


def scores_of(loss: Softmax, count: int, size: float, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    directions = generator.normal(size=(loss.outputs, count))
    return directions / np.linalg.norm(directions, axis=0) * size * generator.random(count)


@pytest.mark.parametrize("classes", [2, 3, 4, 9])
class TestSoftmax:
    def test_the_basis_leaves_out_one_direction(self, classes):
        basis = Softmax(classes).basis
        np.testing.assert_allclose(basis.T @ basis, np.eye(classes - 1), atol=1e-15)
        np.testing.assert_allclose(basis.sum(axis=0), 0, atol=1e-15)

    def test_the_value_is_minus_the_log_of_a_softmax(self, classes):
        loss, generator = Softmax(classes), np.random.default_rng(0)
        score, target = scores_of(loss, 500, 20.0), generator.integers(classes, size=500)
        expected = -log_softmax(loss.basis @ score, axis=0)[target, np.arange(500)]
        np.testing.assert_allclose(loss.value(score, target.astype(float)), expected, atol=1e-13)
        assert loss.at_zero >= np.log(classes) >= loss.at_zero * (1 - 1e-9)
        assert loss.value(np.zeros((classes - 1, 1)), np.zeros(1))[0] <= loss.at_zero

    def test_slopes_and_bends_are_derivatives(self, classes):
        loss, generator, step = Softmax(classes), np.random.default_rng(2), 1e-5
        score, target = scores_of(loss, 40, 4.0), generator.integers(classes, size=40).astype(float)
        slopes = loss.slope(score, target)
        for j in range(loss.outputs):
            shift = np.zeros((loss.outputs, 1))
            shift[j] = step
            numeric = (loss.value(score + shift, target) - loss.value(score - shift, target)) / (2 * step)
            np.testing.assert_allclose(slopes[j], numeric, atol=1e-8)
            turned = (loss.slope(score + shift, target) - loss.slope(score - shift, target)) / (2 * step)
            change = np.repeat(shift / step, 40, axis=1)
            np.testing.assert_allclose(loss.bend(loss.curvature(score, target), change), turned, atol=1e-8)

    def test_the_steepest_slope_is_bounded_and_attained(self, classes):
        loss = Softmax(classes)
        found = [
            np.linalg.norm(loss.slope(scores_of(loss, 2000, size, 3), np.full(2000, float(y))), axis=0).max()
            for size in (1.0, 10.0, 100.0, 1e4)
            for y in range(classes)
        ]
        assert 0.99 * loss.lipschitz < max(found) <= loss.lipschitz
        assert loss.lipschitz >= math.sqrt(2)
        assert all(loss.steepest(size) >= loss.lipschitz for size in (0.0, 1.0, 1e9))

    def test_curvature_over_the_whole_simplex(self, classes):
        """Largest eigenvalue 1/2, mean eigenvalue 1/K at most; both attained; and so the determinant's bound."""
        loss, generator = Softmax(classes), np.random.default_rng(4)
        shares = generator.dirichlet(np.full(classes, 0.5), 3000)
        shares[0], shares[1] = 1 / classes, 0.0
        shares[1, :2] = 0.5
        matrices = np.einsum("ni,ij->nij", shares, np.eye(classes)) - shares[:, :, None] * shares[:, None]
        reduced = loss.basis.T @ matrices @ loss.basis
        bends = np.linalg.eigvalsh(reduced)
        assert bends.max() == pytest.approx(loss.smoothness, rel=1e-12)
        assert bends.mean(axis=1).max() == pytest.approx(1 / classes, rel=1e-12)
        assert bends.mean(axis=1).max() <= loss.mean_curvature * (1 + 1e-13)
        np.testing.assert_allclose(loss.weights(shares.T), bends.mean(axis=1), atol=1e-15)
        for weight in (0.01, 1.0, 100.0):
            worst = np.log1p(weight * bends.clip(0)).sum(axis=1).max()
            assert worst <= loss.rank * math.log1p(loss.mean_curvature * weight) * (1 + 1e-12)
            assert worst >= 0.999 * loss.rank * math.log1p(loss.mean_curvature * weight)

    def test_the_pull_outwards(self, classes):
        """-<s, slope> over all directions and sizes, and the one formula (Lambert's W) for its peak."""
        loss = Softmax(classes)
        gaps = np.linspace(0, 40, 400_001)
        peak = (gaps * (classes - 1) / (np.exp(gaps) + classes - 1)).max()
        assert peak <= loss.pull(1e9) <= peak * (1 + 1e-9)
        for reach in (0.01, 0.3, 1.0, 2.0, 5.0, 30.0):
            score = scores_of(loss, 20_000, reach, 5)
            score[:, 0] = reach * loss.basis[0] / np.linalg.norm(loss.basis[0])
            pulls = -(score * loss.slope(score, np.zeros(20_000))).sum(axis=0)
            assert pulls.max() <= loss.pull(reach)

    def test_the_rounding_of_slopes_is_bounded_in_balls(self, classes):
        loss, generator = Softmax(classes), np.random.default_rng(6)
        worst = 0.0
        for size in (0.1, 3.0, 50.0, 1e6, 1e12):
            score, target = scores_of(loss, 25, size, 7), generator.integers(classes, size=25).astype(float)
            # Two classes level and far ahead of the others: that is where a score's rounding shows.
            logits = -size * generator.random((classes, 12))
            logits[generator.permutation(classes)[:2]] = size
            score[:, :12] = loss.basis.T @ logits
            found = loss.slope(score, target)
            for i in range(25):
                with precision(300):
                    exact = loss.slopes_in_balls([ball(float(s)) for s in score[:, i]], ball(float(target[i])))
                    gaps = [float(abs(e - ball(float(f))).upper()) for e, f in zip(exact, found[:, i], strict=True)]
                error = math.hypot(*gaps)
                assert error <= loss.slope_rounding(float(np.linalg.norm(score[:, i])))
                worst = max(worst, error)
        assert worst > 1e-6 or classes == 2  # the large scores' rounding is real
        assert loss.slope_rounding(1.0) < 1e-13 * classes**2

    def test_far_out_nothing_overflows(self, classes):
        loss = Softmax(classes)
        score = np.concatenate([scores_of(loss, 50, 1e5, 8), np.full((loss.outputs, 1), 1e300)], axis=1)
        target = np.zeros(51)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            assert np.isfinite(loss.value(score, target)).all()
            assert np.isfinite(loss.slope(score, target)).all()
            assert (loss.weights(loss.curvature(score, target)) >= 0).all()


def test_softmax_of_two_classes_is_the_logistic_loss():
    loss, scores = Softmax(2), np.linspace(-20, 20, 401)
    margin = math.sqrt(2) * scores
    for target, sign in ((0.0, 1.0), (1.0, -1.0)):
        expected = Logistic().value(margin, np.full(401, sign))
        np.testing.assert_allclose(loss.value(scores[None], np.full(401, target)), expected, atol=1e-12)


def test_softmax_needs_two_classes():
    for classes in (1, 0, 2.5, True):
        with pytest.raises(InvalidInput):
            Softmax(classes)


# ---------------------------------------------------------------- losses of one's own


def root(s, y):
    return np.sqrt(1 + (s - y) ** 2) - 1


def root_slope(s, y):
    return (s - y) / np.sqrt(1 + (s - y) ** 2)


def root_curvature(s, y):
    return (1 + (s - y) ** 2) ** -1.5


FINE = {"declared_lipschitz": 1.0, "declared_smoothness": 1.0, "binary": False, "target_bound": 2.0}


def test_a_custom_loss_takes_its_declaration_at_its_word():
    loss = Custom(root, root_slope, root_curvature, **FINE)
    # And a little more: the check lets a declaration be short by a billionth.
    for found in (loss.lipschitz, loss.smoothness, loss.mean_curvature, loss.curvature_at(0.5), loss.steepest(0.0)):
        assert 1.0 < found <= 1 + 1e-8
    assert 3.0 < loss.pull(3.0) <= 3 + 1e-8
    assert (loss.rank, loss.outputs) == (1, 1)
    assert loss.at_zero == math.inf
    assert loss.two_sided
    assert not loss.classifies
    assert not loss.exact
    with pytest.raises(NotImplementedError):
        loss.slope_in_balls(arb(0), arb(0))
    np.testing.assert_array_equal(loss.slope(np.ones(3), np.zeros(3)), root_slope(np.ones(3), np.zeros(3)))


def test_a_kinked_custom_loss_is_accepted():
    known = Huber(0.5, 2.0)
    declared = {"declared_lipschitz": 0.5, "declared_smoothness": 1.0, "binary": False, "target_bound": 2.0}
    assert Custom(known.value, known.slope, known.curvature, **declared).lipschitz == pytest.approx(0.5)


def logistic_parts():
    return Logistic().value, Logistic().slope, Logistic().curvature


CONTRADICTIONS = {
    "steeper than declared": ((root, root_slope, root_curvature), {"declared_lipschitz": 0.99}, "slope is"),
    "more curved than declared": ((root, root_slope, root_curvature), {"declared_smoothness": 0.99}, "curvature is"),
    "not convex": (
        (lambda s, y: np.sin(s), lambda s, y: np.cos(s), lambda s, y: -np.sin(s)),
        {},
        "not convex",
    ),
    "concave with a curvature that denies it": (
        (lambda s, y: -root(s, y), lambda s, y: -root_slope(s, y), root_curvature),
        {},
        "not convex",
    ),
    "a slope of something else": (
        (root, lambda s, y: root_slope(s, y) - 0.02, root_curvature),
        {"declared_lipschitz": 1.1},
        "derivative does not match its values",
    ),
    "a curvature of something else": (
        (root, root_slope, lambda s, y: 0.9 * root_curvature(s, y)),
        {},
        "second derivative",
    ),
    "a slope that jumps": (
        (lambda s, y: np.abs(s - y), lambda s, y: np.sign(s - y), lambda s, y: np.zeros_like(s)),
        {},
        "rises faster",
    ),
    "not a number far out": (
        (root, root_slope, lambda s, y: np.where(np.abs(s) > 5000, np.nan, root_curvature(s, y))),
        {},
        "finite",
    ),
    "one number for all": ((lambda s, y: 0.0, root_slope, root_curvature), {}, "for each score"),
    "an error": ((lambda s, y: {}[0], root_slope, root_curvature), {}, "value raised KeyError"),
    "a warning and no number": ((root, root_slope, lambda s, y: np.log(s - 1e4)), {}, "finite"),
    "a look at other records": ((root, lambda s, y: root_slope(s - s.mean(), y), root_curvature), {}, "on the others"),
    "steep far out": (
        (
            lambda s, y: np.where(s > 1000, 2 * s - 1000, s) - y,
            lambda s, y: np.where(s > 1000, 2.0, 1.0),
            lambda s, y: np.zeros_like(s),
        ),
        {},
        "slope is",
    ),
    "steep for the lowest target only": (
        (lambda s, y: root(s, 0) * (1 - 0.1 * y), lambda s, y: root_slope(s, 0) * (1 - 0.1 * y), root_curvature),
        {"declared_smoothness": 2.0},
        "slope is",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_declaration_that_is_contradicted_is_refused(case):
    functions, changes, message = CONTRADICTIONS[case]
    with pytest.raises(InvalidInput, match=message):
        Custom(*functions, **{**FINE, **changes})


def test_binary_custom_losses_are_checked_for_both_labels():
    value, slope, curvature = logistic_parts()
    loss = Custom(value, slope, curvature, declared_lipschitz=1.0, declared_smoothness=0.25)
    assert loss.classifies
    assert loss.two_sided  # nobody declared that its slope has one sign

    def steep(s, y):
        return slope(s, y) * np.where(y < 0, 1.1, 1.0)

    with pytest.raises(InvalidInput, match="slope is"):
        Custom(value, steep, curvature, declared_lipschitz=1.0, declared_smoothness=0.25)


@pytest.mark.parametrize("name", ["declared_lipschitz", "declared_smoothness", "target_bound"])
@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf, "1", None])
def test_a_custom_loss_needs_proper_numbers(name, number):
    with pytest.raises(InvalidInput):
        Custom(root, root_slope, root_curvature, **{**FINE, name: number})


def test_a_custom_loss_cannot_be_changed_after_its_check():
    loss = Custom(root, root_slope, root_curvature, **FINE)
    with pytest.raises(AttributeError):
        loss.declared_lipschitz = 0.1
