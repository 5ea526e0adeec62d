"""The page: tables in Markdown from the results, and what they say, losses included."""

from __future__ import annotations

from functools import partial
from typing import Any

from scoreboard import BEST, DEFAULTS, LIMIT, OURS, PEERS, PURE, cell, epsilons, find, names, table
from verdicts import losses, summary_text, verdict_table

__all__ = ["edges_text", "page"]

Line = dict[str, Any]


def accuracy_table(results: Line) -> str:
    """Ours, each peer twice, and the limit without privacy; the best private one is bold."""
    peers = [f"{peer}, {kind}" for peer in PEERS for kind in (DEFAULTS, BEST)]
    heads = ["table", "ε", "epsilearn", *peers, "no privacy"]
    lines = []
    for name in names(results):
        limit = find(results, name, LIMIT, None, BEST)
        for epsilon in epsilons(results):
            found = [find(results, name, OURS, epsilon, DEFAULTS)]
            found += [find(results, name, peer, epsilon, kind) for peer in PEERS for kind in (DEFAULTS, BEST)]
            top = max((line["mean"] for line in found if line and "mean" in line), default=None)
            cells = [cell(line, bool(line) and line.get("mean") == top) for line in found]
            lines.append([name, f"{epsilon:g}", *cells, cell(limit)])
    return table(heads, lines)


def others_table(results: Line) -> str:
    """Our other models, at their defaults."""
    methods = dict.fromkeys(
        line["method"] for line in results["accuracy"] if line["library"] == "epsilearn" and line["method"] != OURS
    )
    lines = []
    for name in names(results):
        for epsilon in epsilons(results):
            found = [find(results, name, method, epsilon, DEFAULTS) for method in methods]
            shown = ["-" if line and "mean" not in line else cell(line) for line in found]
            lines.append([name, f"{epsilon:g}", *shown])
    return table(["table", "ε", *methods], lines)


def seconds_table(results: Line) -> str:
    """Our seconds, each peer's as a multiple of them, and how many fits the medians are of."""
    lines = results["speed"]["seconds"]
    whos = [who for who in dict.fromkeys(line["who"] for line in lines) if who != "epsilearn"]
    shown = []
    for name in names(results):
        here = {line["who"]: line for line in lines if line["table"] == name}
        ours = here.get("epsilearn", {}).get("seconds")
        cells = [_multiple(here.get(who), ours) for who in whos]
        fits = max((line.get("fits", 0) for line in here.values()), default=0)
        shown.append([name, f"{ours:.2f} s" if ours else "cannot run", *cells, fits])
    return table(["table", "epsilearn", *whos, "fits"], shown)


def _multiple(line: Line | None, ours: float | None) -> str:
    if line is None or "seconds" not in line:
        return "cannot run"
    return f"{line['seconds'] / ours:.2f} x" if ours else f"{line['seconds']:.2f} s"


def memory_table(results: Line) -> str:
    """Peak memory above the input, in units of the input."""
    lines = results["speed"]["memory"]
    whos = list(dict.fromkeys(line["who"] for line in lines))
    shown = []
    for name in names(results):
        here = {line["who"]: line for line in lines if line["table"] == name}
        cells = [f"{here[who]['rise']:.2f}" if "rise" in here.get(who, {}) else "cannot run" for who in whos]
        shown.append([name, *cells])
    return table(["table", *whos], shown)


def start_table(results: Line) -> str:
    """Imports, the first fit and noise; what could not be measured with its reason."""
    speed = results["speed"]
    lines = _import_lines(speed["import"]) + _first_lines(speed["first fit"])
    for name, (ratio, limit) in speed["noise"].get("ratios", {}).items():
        lines.append([f"noise: {name}", f"{ratio:.2g}", f"{limit:g}"])
    missing = [what for what in ("import", "first fit", "noise") if speed[what].get("reason")]
    lines += [[what, speed[what]["reason"], ""] for what in missing]
    return table(["what", "measured", "at most"], lines)


def _import_lines(imports: Line) -> list[list[str]]:
    if "reason" in imports:
        return []
    lines = []
    for kind, limit in (("import", "0.6"), ("model", "")):
        ours = imports["epsilearn"][kind]
        what = "`import epsilearn`" if kind == "import" else "the same, until `LogisticRegression` is there"
        lines.append([what, f"{ours:.2f} s", ""])
        for peer in imports:
            if peer != "epsilearn":
                share = f"{ours / imports[peer][kind]:.2f}"
                lines.append([f"as a share of {peer}", share, limit if peer == "diffprivlib" else ""])
    return lines


def _first_lines(first: Line) -> list[list[str]]:
    if "reason" in first:
        return []
    return [
        ["first fit after installation, interpreter included", f"{first['first']:.1f} s", "15 s"],
        ["the same again", f"{first['second']:.1f} s", ""],
    ]


def reasons(results: Line) -> str:
    """Why an entry is missing, ours included, each reason once."""
    found: dict[str, list[str]] = {}
    missing = [(line["method"], line) for line in results["accuracy"]]
    missing += [(f"time of {line['who']}", line) for line in results["speed"]["seconds"]]
    missing += [(f"memory of {line['who']}", line) for line in results["speed"]["memory"]]
    for what, line in missing:
        if "reason" in line:
            where = found.setdefault(f"{what}: `{line['reason']}`", [])
            where += [line["table"]] if line["table"] not in where else []
    everywhere = len(names(results))
    shown = [
        f"- {reason} ({'all tables' if len(where) == everywhere else ', '.join(where)})"
        for reason, where in found.items()
    ]
    return "\n".join(shown) or "- There are none."


def chosen_table(results: Line) -> str:
    """The settings that won."""
    lines = []
    for line in _winners(results):
        told = {name: value for name, value in line["settings"].items() if name != "epsilon"}
        settings = ", ".join(f"{name} {_short(value)}" for name, value in told.items()) or "defaults"
        epsilon = "none" if line["epsilon"] is None else f"{line['epsilon']:g}"
        more = f"{line['group_noise'] / line['settings']['noise']:.2f}" if "group_noise" in line else ""
        lines.append([line["table"], line["method"], epsilon, settings, ", ".join(line["edges"]), more])
    return table(["table", "library", "ε", "settings", "on an edge of its grid", "group privacy: noise x"], lines)


def _winners(results: Line) -> list[Line]:
    return [line for line in results["accuracy"] if line["kind"] == BEST and "mean" in line]


def edges_text(results: Line) -> str:
    """How many winners might have found better settings outside their grids."""
    counts = []
    for method in dict.fromkeys(line["method"] for line in _winners(results)):
        edges = [line["edges"] for line in _winners(results) if line["method"] == method]
        counts.append(f"{method} {sum(map(bool, edges))} of {len(edges)}")
    return f"Winners on an edge of their grids: {', '.join(counts) or 'none'}."


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def grids_text(results: Line) -> str:
    """Every grid as printed by its maker."""
    return "\n\n".join(f"{name}:\n\n{text}" for name, text in results["grids"].items())


def machine_text(results: Line) -> str:
    """The machine, the code and the versions."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    memory = f"{machine['memory']} GB of memory, " if machine["memory"] else ""
    commit = f"commit {machine['commit']}" if machine["commit"] else "no commit known"
    return (
        f"{machine['cores']} cores ({machine['processor']}), {memory}{machine['system']}, "
        f"Python {machine['python']}; {versions}; {commit}{', with changes on top' if machine['changed'] else ''}. "
        f"The whole benchmark took {results['minutes']:.0f} minutes"
        f"{' (some results were kept from an earlier run)' if results['resumed'] else ''}."
    )


def tables_table(results: Line) -> str:
    """What is public about the tables."""
    lines = [
        [x["name"], f"{x['rows']:,}", f"{x['columns']:,}", x["classes"], f"{x['delta']:.1e}", x["splits"]]
        for x in results["tables"]
    ]
    return table(["table", "training rows", "columns", "classes", "δ", "splits"], lines)


def page(results: Line, template: str) -> str:
    """The whole page."""
    makers = {
        "summary": summary_text, "verdicts": verdict_table, "losses": losses, "accuracy": accuracy_table,
        "pure summary": partial(summary_text, ours=PURE), "pure verdicts": partial(verdict_table, ours=PURE),
        "others": others_table, "seconds": seconds_table, "memory": memory_table, "start": start_table,
        "reasons": reasons, "chosen": chosen_table, "edges": edges_text, "grids": grids_text,
        "machine": machine_text, "tables": tables_table,
    }  # fmt: skip
    for name, make in makers.items():
        template = template.replace("{{" + name + "}}", make(results))
    return template.replace("{{starts}}", str(results["speed"]["starts"]))
