"""Who is ahead of whom, under which promise, and every place where ours is not."""

from __future__ import annotations

from typing import Any

from scoreboard import (
    BEST,
    DEFAULTS,
    OURS,
    PEERS,
    PLUS_MINUS,
    PURE,
    epsilons,
    find,
    has_mean,
    listed,
    names,
    table,
)  # fmt: skip
from summary import compared

__all__ = ["ahead_of_all", "comparisons", "losses", "summary_text", "verdict_table"]

Line = dict[str, Any]
# Which of our entries stands against which peers: with a delta to spend, and without.
CONTESTS = {OURS: PEERS, PURE: ("diffprivlib",)}
LEFT_BEHIND = dict.fromkeys(("paired", "corrected", "unpaired"), "behind")


def comparisons(results: Line) -> list[Line]:
    """Ours at the defaults against each peer at the best of its grid, table by table."""
    return [
        {"table": name, "epsilon": epsilon, "ours": ours, "peer": peer} | _outcome(results, name, epsilon, ours, peer)
        for ours, peers in CONTESTS.items()
        for name in names(results)
        for epsilon in epsilons(results)
        for peer in peers
    ]


def _outcome(results: Line, name: str, epsilon: float, ours: str, peer: str) -> Line:
    mine, theirs = find(results, name, ours, epsilon, DEFAULTS), find(results, name, peer, epsilon, BEST)
    if mine and theirs and has_mean(mine) and has_mean(theirs):
        return compared(mine["accuracies"], theirs["accuracies"])
    if not has_mean(theirs):
        return {"reason": "it cannot run"}
    if mine and mine.get("left_out"):
        return {"reason": f"ours is {mine['reason']}"}
    # Whoever fails where another succeeds is behind.
    return LEFT_BEHIND | {"reason": f"ours failed: {mine['reason'] if mine else 'not run'}"}


def _contest(results: Line, ours: str, epsilon: float | None = None, name: str | None = None) -> list[Line]:
    """The comparisons of one of our entries, if wanted at one budget or on one table."""
    wanted = {"ours": ours, "epsilon": epsilon, "table": name}
    filters = {field: value for field, value in wanted.items() if value is not None}
    return [line for line in results["comparisons"] if all(line[field] == value for field, value in filters.items())]


def tables_compared(results: Line, epsilon: float, ours: str = OURS) -> list[str]:
    """The tables with a verdict about at least one peer."""
    return [name for name in names(results) if any("paired" in x for x in _contest(results, ours, epsilon, name))]


def ahead_of_all(results: Line, epsilon: float, how: str = "paired", ours: str = OURS) -> list[str]:
    """The tables where ours is ahead of every peer that can run at all."""
    found = []
    for name in tables_compared(results, epsilon, ours):
        here = [line[how] for line in _contest(results, ours, epsilon, name) if how in line]
        if all(verdict == "ahead" for verdict in here):
            found.append(name)
    return found


def summary_text(results: Line, ours: str = OURS) -> str:
    """Counts of wins at each epsilon, then what could not be compared."""
    who = "every peer that runs" if len(CONTESTS[ours]) > 1 else CONTESTS[ours][0]
    parts = []
    for epsilon in epsilons(results):
        paired, clearly, unpaired = (
            len(ahead_of_all(results, epsilon, how, ours)) for how in ("paired", "corrected", "unpaired")
        )
        total = len(tables_compared(results, epsilon, ours))
        counts = f"{paired} of {total} tables (clearly on {clearly}; unpaired on {unpaired})"
        parts.append(f"- ε = {epsilon:g}: ahead of {who} on {counts}")
    return "\n".join(parts + _not_compared(results, ours))


def _not_compared(results: Line, ours: str) -> list[str]:
    where: dict[tuple[str, str], list[str]] = {}
    for line in _contest(results, ours):
        if "paired" not in line:
            where.setdefault((line["peer"], line["reason"]), []).append(line["table"])
    # A table is there once for each budget.
    return [
        f"- Not compared with {peer}: {listed(list(dict.fromkeys(places)))} ({reason})"
        for (peer, reason), places in where.items()
    ]


def verdict_table(results: Line, ours: str = OURS) -> str:
    """Differences to each peer's best, in points of accuracy, with both verdicts."""
    heads = ["table", "ε"]
    for peer in CONTESTS[ours]:
        heads += [f"{peer}: difference", "paired", "unpaired"]
    lines = []
    for name in names(results):
        for epsilon in epsilons(results):
            shown = [_judged(found) for found in _contest(results, ours, epsilon, name)]
            lines.append([name, f"{epsilon:g}", *(cell for cells in shown for cell in cells)])
    return table(heads, lines)


def _judged(found: Line) -> list[str]:
    if "paired" not in found:
        return ["not compared", "", ""]
    return [_gap(found), _clearly(found), found["unpaired"]]


def _gap(found: Line) -> str:
    if "difference" not in found:
        return "ours failed"
    return f"{100 * found['difference']:+.2f}{PLUS_MINUS}{100 * found['error']:.2f}"


def _clearly(found: Line) -> str:
    """The verdict, and whether it holds by the corrected error too."""
    verdict = str(found["paired"])
    return f"clearly {verdict}" if verdict != "level" and found["corrected"] == verdict else verdict


def losses(results: Line) -> str:
    """Where ours is not ahead: in accuracy beside every peer's best, in time and memory beside every library."""
    found = []
    for line in results["comparisons"]:
        if line.get("paired", "ahead") != "ahead":
            promise = ", pure" if line["ours"] == PURE else ""
            place = f"level with {line['peer']}" if line["paired"] == "level" else f"{_clearly(line)} {line['peer']}"
            gap = f"{_gap(line)} points" if "difference" in line else line["reason"]
            found.append(f"- Accuracy on {line['table']} at ε = {line['epsilon']:g}{promise}: {place} ({gap}).")
    for name in names(results):
        found += _more(results["speed"]["seconds"], name, "seconds", "Time")
        found += _more(results["speed"]["memory"], name, "rise", "Memory")
    return "\n".join(found + _slower_imports(results["speed"]["import"])) or "- Nowhere in this run."


def _more(lines: list[Line], name: str, field: str, word: str) -> list[str]:
    here = {line["who"]: line[field] for line in lines if line["table"] == name and field in line}
    ours = here.pop("epsilearn", None)
    if ours is None:
        return [f"- {word} on {name}: ours could not be measured."]
    less = [who for who, value in here.items() if ours > value]
    return [f"- {word} on {name}: more than {listed(less)}."] if less else []


def _slower_imports(imports: Line) -> list[str]:
    if "reason" in imports:
        return ["- Time to import: could not be measured."]
    ours = imports["epsilearn"]
    slower = [(who, kind) for who in imports for kind in ours if ours[kind] > imports[who][kind]]
    return [f"- Time to import ({kind}): more than {who}." for who, kind in slower]
