"""Small figures for a page that must look right on a phone, on paper and in the dark: SVG coloured by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from epsilearn.explanation import Explanation, detection_rate, winning_probability

__all__ = ["detection_figure", "game_figure", "range_figure"]

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 16, 38

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Panel:
    """A plane with a scale on either side; ``log`` for the one below."""

    low: float
    high: float
    bottom: float
    top: float
    log: bool = False

    def x(self, value: float) -> float:
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return _HEIGHT - _BOTTOM - min(max(share, 0.0), 1.0) * (_HEIGHT - _TOP - _BOTTOM)

    def path(self, points: Points) -> str:
        return "M" + " L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)

    def frame(self, below: str, ticks: Sequence[float], levels: Sequence[float], level: Callable[[float], str]) -> str:
        floor = _HEIGHT - _BOTTOM
        parts = [f'<path class="axis" d="M{_LEFT} {_TOP} V{floor} H{_WIDTH - _RIGHT}"/>']
        for tick in ticks:
            parts.append(_text(self.x(tick), floor + 14, f"{tick:g}", "middle"))
        for height in levels:
            parts.append(f'<path class="axis" d="M{_LEFT} {self.y(height):.1f} H{_WIDTH - _RIGHT}" opacity=".5"/>')
            parts.append(_text(_LEFT - 6, self.y(height) + 4, level(height), "end"))
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, below, "middle"))
        return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    label = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{label}>{escape(words)}</text>'


def _svg(title: str, *parts: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        + "".join(parts)
        + "</svg>"
    )


def game_figure(meaning: Explanation) -> str:
    """The guessing game: how often somebody who knows all but one record names the right one of two values."""
    reach = max(3.0, 1.4 * meaning.epsilon)
    panel = _Panel(0.0, reach, 0.5, 1.0)
    grid = [reach * i / 120 for i in range(1, 121)]
    curve = [(0.0, 0.5), *((e, winning_probability(e, meaning.delta)) for e in grid)]
    here = meaning.epsilon, meaning.winning_probability
    beside = here[0] < 0.6 * reach
    return _svg(
        f"At epsilon {here[0]:g} they guess right at most {here[1]:.1%} of the time",
        panel.frame("epsilon", _steps(reach), (0.5, 0.75, 1.0), lambda v: f"{v:.0%}"),
        f'<path class="curve" d="{panel.path(curve)}"/>',
        f'<circle class="dot" cx="{panel.x(here[0]):.1f}" cy="{panel.y(here[1]):.1f}" r="5"/>',
        _text(
            panel.x(here[0]) + (10 if beside else -10), panel.y(here[1]) + 16, f"at most {here[1]:.1%}",
            "start" if beside else "end", "mark",
        ),
        _text(_WIDTH - _RIGHT - 2, panel.y(0.5) - 5, "blind guessing", "end"),
    )  # fmt: skip


def detection_figure(meaning: Explanation) -> str:
    """What the best test for one record can find, at every rate of false alarms."""
    panel = _Panel(0.0, 1.0, 0.0, 1.0)
    alarms = [1e-4, 1e-3, *(i / 100 for i in range(1, 100)), 0.9999]
    rates = [(alarm, detection_rate(meaning.epsilon, meaning.delta, alarm)) for alarm in alarms]
    found = [(0.0, meaning.delta), *rates, (1.0, 1.0)]
    here = 0.05, meaning.detection_rate
    area = panel.path([*found, (0.0, 0.0)])
    return _svg(
        f"At 5% false alarms a test finds a record at most {here[1]:.1%} of the time",
        panel.frame("false alarms, as a share", (0, 0.25, 0.5, 0.75, 1), (0.0, 0.5, 1.0), lambda v: f"{v:.0%}"),
        f'<path class="band" d="{area} Z"/>',
        f'<path class="curve" d="{panel.path(found)}"/>',
        f'<path class="axis" d="{panel.path([(0, 0), (1, 1)])}"/>',
        f'<circle class="dot" cx="{panel.x(here[0]):.1f}" cy="{panel.y(here[1]):.1f}" r="5"/>',
        _text(panel.x(0.42), panel.y(0.13), f"{here[1]:.1%} at 5% false alarms", "start", "mark"),
    )


def range_figure(costs: Sequence[tuple[float, float, float]], here: float, factor: float) -> str:
    """What privacy may cost at each epsilon, from an easy table to a hard one, times a factor."""
    points = [(epsilon, factor * low, factor * high) for epsilon, low, high in costs]
    top = _nice(max(high for _, _, high in points))
    panel = _Panel(points[0][0], points[-1][0], 0.0, top, log=True)
    band = [(e, low) for e, low, _ in points] + [(e, high) for e, _, high in reversed(points)]
    ticks = [t for t in (0.01, 0.1, 1, 10, 100) if points[0][0] <= t <= points[-1][0]]
    return _svg(
        f"What privacy may cost, by epsilon; this release is at {here:g}",
        panel.frame("epsilon", ticks, (0.0, top / 2, top), lambda v: f"{v:.3g}"),
        f'<path class="band" d="{panel.path(band)} Z"/>',
        f'<path class="curve" d="{panel.path([(e, high) for e, _, high in points])}"/>',
        f'<path class="curve" d="{panel.path([(e, low) for e, low, _ in points])}"/>',
        f'<path class="rule" d="M{panel.x(here):.1f} {_TOP} V{_HEIGHT - _BOTTOM}"/>',
        _text(panel.x(here), _TOP - 5, "this release", "middle", "mark"),
    )


def _nice(value: float, steps: tuple[int, ...] = (1, 2, 4, 5, 6, 8, 10)) -> float:
    """A round number not below the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in steps if step * power >= value * (1 - 1e-12)))


def _steps(reach: float) -> list[float]:
    step = _nice(reach / 4, (1, 2, 5, 10))
    return [step * i for i in range(int(reach / step) + 1)]
