"""The page: tables in Markdown from the results, and what they say, losses included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from summary import compared

__all__ = ["comparisons", "page"]

Line = dict[str, Any]
OURS, LIMIT = "LogisticRegression", "scikit-learn"
PEERS = ("diffprivlib", "Opacus")
BEST, DEFAULTS = "best of grid", "defaults"
PLUS_MINUS = "\u00a0±\u00a0"  # a number and its error stay on one line


def table(heads: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown, columns of numbers to the right and those of words to the left."""
    heads, rows = list(heads), [[str(cell) for cell in line] for line in lines]
    rule = "".join("---:|" if all(map(_numeric, column)) else "---|" for column in zip(*rows, strict=True))
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)])


def _numeric(text: str) -> bool:
    return text in {"", "-", "none", "cannot run"} or text.lstrip("*+-")[:1].isdigit()


def find(results: Line, name: str, method: str, epsilon: float | None, kind: str) -> Line | None:
    """The one line of a method."""
    wanted = (name, method, epsilon, kind)
    for line in results["accuracy"]:
        if (line["table"], line["method"], line["epsilon"], line["kind"]) == wanted:
            return line
    return None


def names(results: Line) -> list[str]:
    """The tables, in order."""
    return [described["name"] for described in results["tables"]]


def epsilons(results: Line) -> list[float]:
    """The budgets, in order."""
    return sorted({line["epsilon"] for line in results["accuracy"] if line["epsilon"] is not None})


def comparisons(results: Line) -> list[Line]:
    """Ours at the defaults against each peer at the best of its grid, table by table."""
    found = []
    for name in names(results):
        for epsilon in epsilons(results):
            ours = find(results, name, OURS, epsilon, DEFAULTS)
            for peer in PEERS:
                theirs = find(results, name, peer, epsilon, BEST)
                line: Line = {"table": name, "epsilon": epsilon, "peer": peer}
                if ours and theirs and "mean" in ours and "mean" in theirs:
                    line |= compared(ours["accuracies"], theirs["accuracies"])
                else:
                    line["reason"] = next((x["reason"] for x in (ours, theirs) if x and "reason" in x), "not run")
                found.append(line)
    return found


def cell(line: Line | None, bold: bool = False) -> str:
    """An accuracy in percent with its standard error, or a dash with a reference to the reason."""
    if line is None:
        return ""
    if "mean" not in line:
        return "cannot run"
    shown = f"{100 * line['mean']:.2f}{PLUS_MINUS}{100 * line['error']:.2f}"
    return f"**{shown}**" if bold else shown


def accuracy_table(results: Line) -> str:
    """Ours, each peer twice, and the limit without privacy; the best private one is bold."""
    heads = [
        "table",
        "ε",
        "epsilearn",
        *(f"{peer}, {kind}" for peer in PEERS for kind in (DEFAULTS, BEST)),
        "no privacy",
    ]
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


def verdict_table(results: Line) -> str:
    """Differences to each peer's best, in points of accuracy, with both verdicts."""
    heads = ["table", "ε"]
    for peer in PEERS:
        heads += [f"{peer}: difference", "paired", "unpaired"]
    lines = []
    for name in names(results):
        for epsilon in epsilons(results):
            line = [name, f"{epsilon:g}"]
            for found in results["comparisons"]:
                if (found["table"], found["epsilon"]) == (name, epsilon):
                    line += _judged(found)
            lines.append(line)
    return table(heads, lines)


def _judged(found: Line) -> list[str]:
    if "paired" not in found:
        return ["cannot run", "", ""]
    gap = f"{100 * found['difference']:+.2f}{PLUS_MINUS}{100 * found['error']:.2f}"
    return [gap, found["paired"], found["unpaired"]]


def ahead_of_all(results: Line, epsilon: float, how: str = "paired") -> list[str]:
    """The tables where ours is ahead of every peer that can run at all."""
    found = []
    for name in names(results):
        here = [x for x in results["comparisons"] if (x["table"], x["epsilon"]) == (name, epsilon) and how in x]
        if here and all(line[how] == "ahead" for line in here):
            found.append(name)
    return found


def summary_text(results: Line) -> str:
    """Counts of wins at each epsilon, then every loss and draw."""
    total = len(names(results))
    parts = []
    for epsilon in epsilons(results):
        paired, unpaired = ahead_of_all(results, epsilon), ahead_of_all(results, epsilon, "unpaired")
        parts.append(f"- ε = {epsilon:g}: ahead of both on {len(paired)} of {total} tables ({len(unpaired)} unpaired)")
    return "\n".join(parts)


def losses(results: Line) -> str:
    """Where ours is not ahead: in accuracy beside every peer's best, in time and memory beside every library."""
    found = []
    for line in results["comparisons"]:
        if line.get("paired", "ahead") != "ahead":
            place = f"level with {line['peer']}" if line["paired"] == "level" else f"behind {line['peer']}"
            gap = f"{100 * line['difference']:+.2f} ± {100 * line['error']:.2f} points"
            found.append(f"- Accuracy on {line['table']} at ε = {line['epsilon']:g}: {place} ({gap}).")
    for name in names(results):
        found += _more(results["speed"]["seconds"], name, "seconds", "Time")
        found += _more(results["speed"]["memory"], name, "rise", "Memory")
    imports = results["speed"]["import"]
    if "reason" not in imports:
        ours = imports["epsilearn"]
        slower = [(who, kind) for who in imports for kind in ours if ours[kind] > imports[who][kind]]
        found += [f"- Time to import ({kind}): more than {who}." for who, kind in slower]
    return "\n".join(found) or "- Nowhere in this run."


def _more(lines: list[Line], name: str, field: str, word: str) -> list[str]:
    here = {line["who"]: line[field] for line in lines if line["table"] == name and field in line}
    ours = here.pop("epsilearn", None)
    less = [who for who, value in here.items() if ours is not None and ours > value]
    return [f"- {word} on {name}: more than {_listed(less)}."] if less else []


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(f"{word}" for word in words[:-1]), words[-1]] if words[1:] else words)


def seconds_table(results: Line) -> str:
    """Our seconds, and each peer's as a multiple of them."""
    lines = results["speed"]["seconds"]
    whos = [who for who in dict.fromkeys(line["who"] for line in lines) if who != "epsilearn"]
    shown = []
    for name in names(results):
        here = {line["who"]: line for line in lines if line["table"] == name}
        ours = here.get("epsilearn", {}).get("seconds")
        cells = [_multiple(here.get(who), ours) for who in whos]
        shown.append([name, f"{ours:.2f} s" if ours else "cannot run", *cells])
    return table(["table", "epsilearn", *whos], shown)


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
    """Why an entry is missing, each reason once."""
    found: dict[str, set[str]] = {}
    for line in results["accuracy"]:
        if "reason" in line and line["library"] != "epsilearn":
            found.setdefault(f"{line['method']}: `{line['reason']}`", set()).add(line["table"])
    everywhere = len(names(results))
    return "\n".join(
        f"- {reason} ({'all tables' if len(where) == everywhere else ', '.join(sorted(where))})"
        for reason, where in found.items()
    )


def chosen_table(results: Line) -> str:
    """The settings that won."""
    lines = []
    for line in results["accuracy"]:
        if line["kind"] == BEST and "mean" in line:
            told = {name: value for name, value in line["settings"].items() if name != "epsilon"}
            settings = ", ".join(f"{name} {_short(value)}" for name, value in told.items()) or "defaults"
            epsilon = "none" if line["epsilon"] is None else f"{line['epsilon']:g}"
            more = f"{line['group_noise'] / line['settings']['noise']:.2f}" if "group_noise" in line else ""
            lines.append([line["table"], line["method"], epsilon, settings, more])
    return table(["table", "library", "ε", "settings", "group privacy: noise x"], lines)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def grids_text(results: Line) -> str:
    """Every grid as printed by its maker."""
    return "\n\n".join(f"{name}:\n\n{text}" for name, text in results["grids"].items())


def machine_text(results: Line) -> str:
    """The machine and the versions."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory']} GB of memory, {machine['system']}, "
        f"Python {machine['python']}; {versions}. The whole benchmark took {results['minutes']:.0f} minutes"
        f"{' (some results were kept from an earlier run)' if results['resumed'] else ''}."
    )


def tables_table(results: Line) -> str:
    """What is public about the tables."""
    lines = [
        [x["name"], f"{x['rows']:,}", f"{x['columns']:,}", x["classes"], f"{x['delta']:.1e}"] for x in results["tables"]
    ]
    return table(["table", "training rows", "columns", "classes", "δ"], lines)


def page(results: Line, template: str) -> str:
    """The whole page."""
    makers = {
        "summary": summary_text, "verdicts": verdict_table, "losses": losses, "accuracy": accuracy_table,
        "others": others_table, "seconds": seconds_table, "memory": memory_table, "start": start_table,
        "reasons": reasons, "chosen": chosen_table, "grids": grids_text, "machine": machine_text,
        "tables": tables_table,
    }  # fmt: skip
    for name, make in makers.items():
        template = template.replace("{{" + name + "}}", make(results))
    return template.replace("{{runs}}", str(results["runs"]))
