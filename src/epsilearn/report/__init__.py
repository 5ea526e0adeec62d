"""A released model on one page that needs nothing else: no network, no script, readable on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from epsilearn.guarantee import Guarantee
from epsilearn.ledger import Balance
from epsilearn.outlook import Outlook
from epsilearn.released import MODELS, LandmarkWeights, ReleasedModel
from epsilearn.report.figures import detection_figure, game_figure, range_figure
from epsilearn.schema import Schema

__all__ = ["report", "session_report"]

_SHOWN = 25  # coefficients drawn before the rest is folded away
_MOST_LISTED = 2000

# What privacy may cost at several budgets: epsilon, on an easy table, on a hard one.
Costs = Sequence[tuple[float, float, float]]


def report(
    model: ReleasedModel, foreseen: Outlook, costs: Costs, balance: Balance | None = None, digest: str = ""
) -> str:
    """The page, as HTML.

    Parameters
    ----------
    model : ReleasedModel
        What was released.
    foreseen : Outlook
        What was known of it beforehand.
    costs : sequence of (epsilon, low, high)
        What privacy may cost at several budgets; empty where no rule says so.
    balance : Balance, optional
        The ledger after this release.
    digest : str
        The model file's own.
    """
    sections = [
        _head(model, foreseen),
        _meaning(model.guarantee, "the model"),
        _promise(model.guarantee),
        _coefficients(model, foreseen),
        _expectation(model, foreseen, costs),
        _ledger(model.guarantee, balance),
        _public(model),
        _use(digest),
    ]
    return _whole_page(f"A private model of {model.target}", sections)


def session_report(
    name: str,
    target: str,
    guarantee: Guarantee,
    schema: Schema,
    public: Mapping[str, object],
    balance: Balance | None = None,
) -> str:
    """The page of something that is asked instead of sent: what it promises, and what was public about it.

    Parameters
    ----------
    name : str
        What kind of release it is, in words.
    target : str
        The column it is about.
    guarantee : Guarantee
        What was promised, for all answers together.
    schema : Schema
        What was public about the table.
    public : mapping
        Other public numbers.
    balance : Balance, optional
        The ledger after it was opened.
    """
    facts = [(key.replace("_", " "), f"{v:.6g}" if isinstance(v, float) else str(v)) for key, v in public.items()]
    head = (
        f'<p class="kicker">Private answers · {escape(name)}</p><h1>Private answers about {escape(target)}</h1>'
        f"<p>The rows stay where they are; whoever may ask gets answers about <b>{escape(target)}</b>, all of which "
        f"together keep this promise.</p>{_promise_box(guarantee, 'all the answers')}"
    )
    sections = [
        head,
        _meaning(guarantee, "all the answers"),
        _promise(guarantee),
        _ledger(guarantee, balance),
        f"<h2>What was public beforehand</h2>{_facts(facts)}{_schema_table(schema)}",
    ]
    return _whole_page(f"Private answers about {target}", sections)


def _whole_page(title: str, sections: Iterable[str]) -> str:
    style = files("epsilearn.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _promise_box(guarantee: Guarantee, seen: str) -> str:
    if guarantee.void_reason:
        words = f"Nothing is promised: {guarantee.void_reason}."
        return f'<div class="promise void"><strong>No promise</strong>{escape(words)}</div>'
    delta = f', <span class="whole">delta = {guarantee.delta:g}</span>' if guarantee.delta else ""
    chance = guarantee.explain().winning_probability
    return (
        f'<div class="promise"><strong><span class="whole">epsilon = {guarantee.epsilon:.6g}</span>{delta}, '
        f"per {escape(guarantee.unit)}</strong>Somebody who knows every other record, and sees {seen}, can "
        f"tell which of two values is yours at most {chance:.1%} of the time. Without: 50%.</div>"
    )


def _head(model: ReleasedModel, foreseen: Outlook) -> str:
    box = _promise_box(model.guarantee, "this model")
    return (
        f'<p class="kicker">Private model · {escape(MODELS[model.model])}</p>'
        f"<h1>A private model of {escape(model.target)}</h1>"
        f"<p>Predicts <b>{escape(model.target)}</b> from {foreseen.features:,} numbers made of "
        f"{_columns(model)}; fitted to {foreseen.rows:,} rows.</p>{box}"
    )


def _columns(model: ReleasedModel) -> str:
    named = model.schema.features(model.target)
    if model.schema.sparse:
        return "numbered columns"
    return f"{len(named)} column{'s' if len(named) > 1 else ''}"


def _meaning(guarantee: Guarantee, seen: str) -> str:
    if guarantee.void_reason:
        return ""
    meaning = guarantee.explain()
    rest = "".join(f"<p>{escape(sentence)}</p>" for sentence in meaning.sentences()[2:])
    return (
        "<h2>What epsilon means</h2>"
        "<p>A guessing game. Somebody knows every record but yours and is told that yours is one of two values. They "
        f"see {seen} and guess.</p>"
        f'<div class="pair"><figure>{game_figure(meaning)}<figcaption>How often they can be right, whatever they '
        f"compute. Without {seen} it is 50%.</figcaption></figure>"
        f"<figure>{detection_figure(meaning)}<figcaption>No test for one record does better than this line: share of "
        "records found, by share of false alarms.</figcaption></figure></div>"
        f"{rest}"
    )


def _promise(guarantee: Guarantee) -> str:
    facts = [
        ("proven", str(guarantee)),
        ("mechanism", guarantee.mechanism),
        ("theorem", guarantee.theorem),
        ("neighbours", "one record replaced by any other; the number of rows is public"),
        ("protects", f"each {guarantee.unit}"),
    ]
    if guarantee.claimed_epsilon is not None:
        facts.append(("claimed in print", f"epsilon = {guarantee.claimed_epsilon:g}"))
    assumptions = "".join(f"<li>{escape(text)}</li>" for text in guarantee.assumptions)
    return f"<h2>What was promised</h2>{_facts(facts)}<h3>The proof takes for granted</h3><ul>{assumptions}</ul>"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return '<dl class="facts">' + "".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in facts) + "</dl>"


def _coefficients(model: ReleasedModel, foreseen: Outlook) -> str:
    if isinstance(model.weights, LandmarkWeights):
        directions = model.weights.coefficients.shape[1]
        return (
            "<h2>What the model holds</h2>"
            f"<p>{directions} weights along directions that {len(model.weights.features.landmarks)} public landmarks "
            "span. They are not weights of single columns, so they are not drawn; they are in <code>model.json</code>."
            "</p>"
        )
    names = model.encoding.names
    classes = model.classes
    titles = [None] if len(model.weights.coefficients) == 1 else [str(value) for value in np.asarray(classes)]
    error = foreseen.weight_deviation if model.method == "output" else None
    blocks = [
        _bars(names, row, float(shift), title, error or 0.0)
        for row, shift, title in zip(model.weights.coefficients, model.weights.intercept, titles, strict=True)
    ]
    return f"<h2>Coefficients</h2>{_reading(model, foreseen)}{''.join(blocks)}"


def _reading(model: ReleasedModel, foreseen: Outlook) -> str:
    classes = model.classes
    if classes is None:
        towards = f"A positive weight raises the prediction of {model.target}"
    elif len(classes) == 2:
        towards = f"A positive weight speaks for {model.target} = {classes[1]}"
    else:
        towards = "A positive weight speaks for its class"
    text = (
        f"<p>{escape(towards)}. A number column runs from &minus;1 at its lower bound to 1 at its upper bound; a "
        "category counts 1 where it applies, and of one column's categories only the differences matter.</p>"
    )
    if model.method == "path":
        return text + "<p>Columns were chosen one by one, each privately; most of the others have no weight at all.</p>"
    if foreseen.weight_deviation is None:
        return text + (
            "<p>Rows were moved by a private mean and scaled by a private length before the fit, so the noise's "
            "standard error on a weight cannot be told from public numbers.</p>"
        )
    if model.method == "output":
        return (
            text + "<p>The thin lines are the noise's standard error, "
            f"<b>±{foreseen.weight_deviation:.3g}</b> on every weight: it was added to the result, and its law is "
            "public.</p>"
        )
    return (
        text + "<p>Noise entered the objective. The noise's standard error on a weight is <b>at most "
        f"±{foreseen.weight_deviation:.3g}</b>. That is a public bound, sd(b)/(nλ), and mostly far above the true one, "
        "which passes through the private rows and cannot be told; so it is not drawn.</p>"
    )


def _bars(names: Sequence[str], weights: Any, shift: float, title: str | None, error: float) -> str:
    order = np.argsort(-np.abs(weights), kind="stable")
    shown = [i for i in order[:_SHOWN] if weights[i] != 0]
    reach = (float(np.abs(weights).max()) + error) or 1.0
    rows = "".join(_bar(names[i], float(weights[i]), error, reach) for i in shown)
    rest = [i for i in order[len(shown) : _MOST_LISTED] if weights[i] != 0]
    head = f"<h3>{escape(title)}</h3>" if title is not None else ""
    table = _weight_table(names, weights, [*shown, *rest], shift)
    hidden = len(names) - len(shown)
    note = f'<p class="soft">The {len(shown)} largest of {len(names):,} weights.</p>' if hidden else ""
    return f'{head}<div class="weights">{rows}</div>{note}{table}'


def _bar(name: str, weight: float, error: float, reach: float) -> str:
    size, spread = 50 * abs(weight) / reach, 50 * error / reach
    left, kind = (50.0, "bar") if weight >= 0 else (50 - size, "bar down")
    end = 50 + 50 * weight / reach
    whisker = f'<span class="whisker" style="left:{end - spread:.2f}%;width:{2 * spread:.2f}%"></span>' if error else ""
    return (
        f'<div class="name">{escape(name)}</div><div class="track"><span class="{kind}" style="left:{left:.2f}%;'
        f'width:{size:.2f}%"></span>{whisker}</div><div class="value">{weight:+.3g}</div>'
    )


def _weight_table(names: Sequence[str], weights: Any, order: list[int], shift: float) -> str:
    rows = "".join(
        f'<tr><td>{escape(names[i])}</td><td class="number">{float(weights[i]):+.6g}</td></tr>' for i in order
    )
    return (
        "<details><summary>All weights that are not zero, as numbers</summary>"
        '<div class="wide"><table><tr><th>feature</th><th class="number">weight</th></tr>'
        f'<tr><td><i>intercept</i></td><td class="number">{shift:+.6g}</td></tr>{rows}</table></div></details>'
    )


def _expectation(model: ReleasedModel, foreseen: Outlook, costs: Costs) -> str:
    if foreseen.lost is None and foreseen.excess is None:
        return ""
    text = "<h2>What privacy costs in accuracy</h2>"
    numbers = model.classes is None
    if foreseen.lost is not None:
        low, high = (_cost(value, numbers) for value in foreseen.lost)
        what = "root mean squared error added" if numbers else "accuracy lost"
        text += (
            f"<p>Expected from public numbers alone, before the table was opened: <b>{low}</b> ({what}) if the "
            f"strongest directions of the table tell most of it, <b>{high}</b> if all directions matter. This is a "
            "rule of thumb, not a measurement and not a bound. Measuring costs privacy: "
            "<code>epsilearn evaluate</code> does it.</p>"
        )
    if costs:
        unit = "root mean squared error" if numbers else "points of accuracy"
        text += (
            f"<figure>{range_figure(costs, model.guarantee.epsilon, 1 if numbers else 100)}<figcaption>The same "
            f"range at other budgets, for this number of rows and columns; in {unit}.</figcaption></figure>"
        )
    if foreseen.excess is not None:
        how = "in the mean over the noise" if foreseen.method == "path" else "with probability 95% over the noise"
        text += (
            f"<p>Proven, whatever the rows are: the mean loss ends at most <b>{foreseen.excess:.3g}</b> above its "
            f"least value, {how}.</p>"
        )
    return text


def _cost(value: float, numbers: bool) -> str:
    return f"{value:.3g}" if numbers else f"{100 * value:.2g} points"


def _ledger(guarantee: Guarantee, balance: Balance | None) -> str:
    stamp = guarantee.ledger
    if stamp is not None and balance is None:
        facts = [("data set", stamp.dataset), ("this release", f"entry {stamp.entry}"), ("head", stamp.head)]
        return f"<h2>The ledger</h2><p>It was debited; what is left could not be read then.</p>{_facts(facts)}"
    if stamp is None or balance is None:
        return (
            "<h2>The ledger</h2><p>No ledger was debited. Promises about the same people add up, and nothing here "
            "knows of others.</p>"
        )
    delta = f", delta {balance.delta:g}" if balance.delta else ""
    facts = [
        ("data set", balance.dataset),
        ("budget", f"epsilon {balance.epsilon:g}{delta}, {balance.rule} rule"),
        ("this release", f"entry {stamp.entry}"),
        ("debits so far", f"{balance.debits}"),
        ("remaining", f"one more pure release of up to epsilon {balance.remaining_epsilon:g}"),
        ("head", stamp.head),
    ]
    share = min(max(balance.used, 0.0), 1.0)
    return (
        f"<h2>The ledger after this release</h2><p>{share:.1%} of the budget is used.</p>"
        f'<div class="meter" role="img" aria-label="{share:.1%} used"><span style="width:{100 * share:.2f}%"></span>'
        "</div>"
        f"{_facts(facts)}"
    )


def _public(model: ReleasedModel) -> str:
    schema, noise = model.schema, model.noise
    facts = [
        ("rows", f"{int(model.settings.get('rows', 0)):,}"),
        ("rows per person", str(schema.rows_per_person)),
        ("noise", f"{noise.kind}, scale {noise.scale:.6g}, {noise.dimension} numbers"),
        ("method", model.method),
    ]
    for name, label in (("alpha", "regularisation"), ("radius", "radius"), ("steps", "points of the path")):
        if name in model.settings:
            facts.append((label, f"{model.settings[name]:.6g}"))
    facts.append(("rows scaled to", "not scaled" if model.weights.norm is None else f"{model.weights.norm:.6g}"))
    return f"<h2>What was public beforehand</h2>{_facts(facts)}{_schema_table(schema)}"


def _schema_table(schema: Schema) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(_described(column))}</td></tr>"
        for name, column in list(schema.columns.items())[:_MOST_LISTED]
    )
    if schema.others is not None:
        low, high = schema.others.bounds
        rows += f"<tr><td>{schema.others.count:,} numbered columns</td><td>{low:g} to {high:g}</td></tr>"
    return (
        '<details><summary>The columns, as the schema states them</summary><div class="wide"><table>'
        f"<tr><th>column</th><th>values</th></tr>{rows}</table></div></details>"
    )


def _described(column: Any) -> str:
    if column.ignored:
        return "not used"
    if column.bounds is not None:
        text = f"{column.bounds[0]:g} to {column.bounds[1]:g}"
    else:
        text = ", ".join(str(value) for value in column.categories)
    return text if column.missing is None else f"{text}; if missing: {column.missing}"


def _use(digest: str) -> str:
    from epsilearn import __version__

    return (
        '<h2>Using it</h2><pre>import epsilearn\n\nmodel = epsilearn.load("model.json")\nmodel.predict(table)'
        "   # raw rows: a data frame or an Arrow table</pre>"
        "<p>or <code>epsilearn predict model.json rows.csv</code>. Whatever is done with the model "
        "costs the people it was fitted to nothing more. A prediction does say something of the row it is made for."
        "</p>"
        f"<footer>Made by epsilearn {escape(__version__)}. Digest of <code>model.json</code>: "
        f"<code>{escape(digest)}</code></footer>"
    )
