from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from epsilearn import Ledger
from epsilearn.job import Job
from epsilearn.release_folder import foresee, write_release
from epsilearn.report import report
from epsilearn.schema import Schema

VOID = {"meta", "br", "hr", "img", "link", "input", "path", "circle"}
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b", "</title>", "'; --", "</style>"]


class Page(HTMLParser):
    """What a page is made of; an error if its tags do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


FORESEEN = {}


def page_of(releases, name, model=None, **changes):
    if name not in FORESEEN:
        FORESEEN[name] = foresee(releases.job(name), releases.clinic.rows)
    return report(model or releases[name], FORESEEN[name].outlook, FORESEEN[name].costs, **changes)


def test_every_page_stands_by_itself_and_says_what_was_promised(release, releases):
    text, model = page_of(releases, release), releases[release]
    page = Page(text)
    assert set(page.tags).isdisjoint({"script", "img", "link", "iframe", "object", "embed"})
    assert not re.search(r"https?://|url\(|@import", text)
    assert not any(name.startswith("on") or name in ("src", "href") for name, _ in page.attributes)
    said = page.text
    assert "epsilon = 5" in said
    assert model.guarantee.theorem in said
    for assumption in model.guarantee.assumptions:
        assert " ".join(assumption.split()) in said
    assert model.guarantee.unit in said
    assert f"fitted to {releases.clinic.rows:,} rows" in said


def test_a_bound_is_called_a_bound_and_an_error_an_error(releases):
    objective, output = page_of(releases, "linear"), page_of(releases, "output")
    bound = releases.job("linear").outlook(releases.clinic.rows).weight_deviation
    assert f"at most ±{bound:.3g}" in Page(objective).text
    assert "public bound" in Page(objective).text
    assert 'class="whisker"' not in objective
    error = releases.job("output").outlook(releases.clinic.rows).weight_deviation
    assert f"±{error:.3g}" in Page(output).text
    assert "standard error" in Page(output).text
    assert "at most ±" not in Page(output).text
    assert output.count('class="whisker"') == 15
    assert "chosen one by one" in Page(page_of(releases, "lasso")).text
    assert releases.job("logistic").outlook(releases.clinic.rows).weight_deviation is None
    assert "moved by a private mean" in Page(page_of(releases, "logistic")).text


def test_weights_are_on_the_page_as_numbers(releases):
    text = Page(page_of(releases, "logistic")).text
    model = releases["logistic"]
    for name, weight in zip(model.encoding.names, model.weights.coefficients[0], strict=True):
        assert f"{name} {weight:+.6g}" in text


def test_widths_stay_on_the_page(release, releases):
    styles = re.findall(r'style="left:(-?[\d.]+)%;width:([\d.]+)%"', page_of(releases, release))
    assert all(float(left) >= -1e-6 and float(left) + float(width) <= 100.01 for left, width in styles)


def test_a_void_promise_is_said_to_be_none(releases):
    model = releases["logistic"]
    void = replace(model, guarantee=model.guarantee.void("seeded"))
    text = Page(page_of(releases, "logistic", void)).text
    assert "No promise" in text
    assert "Nothing is promised: seeded" in text
    assert "at most" not in text.split("What was promised")[0]


@pytest.mark.parametrize("target", ["class", "number"])
def test_hostile_names_stay_text(target, tmp_path):
    columns = {name: {"bounds": [0, 1]} for name in HOSTILE[:3]}
    columns["category"] = {"categories": HOSTILE}
    columns[HOSTILE[1] + "y"] = {"categories": HOSTILE[:3]} if target == "class" else {"bounds": [0, 1]}
    schema = Schema.from_dict({"version": 1, "columns": columns})
    model = "logistic" if target == "class" else "linear"
    job = Job(schema, HOSTILE[1] + "y", model, 1.0)
    chance = np.random.default_rng(0)
    X = chance.uniform(-0.1, 0.1, (50, schema.width(job.target)))
    ledger = Ledger.create(tmp_path / "b.db", dataset=HOSTILE[0], epsilon=3.0)
    made = job.fit(X, chance.integers(0, 2, 50), ledger)
    (tmp_path / "out").mkdir()
    write_release(tmp_path / "out", made, foresee(job, 50), ledger.balance())
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page(text)
    assert set(page.tags).isdisjoint({"script", "img"})
    assert page.tags.count("title") == text.count("<svg") + 1
    assert page.tags.count("style") == 1
    for name in HOSTILE[:3]:
        assert name in page.text
    assert not any(name.startswith("on") for name, _ in page.attributes)


def test_the_ledger_is_on_the_page(releases, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="patients", epsilon=10.0)
    job = releases.job("linear")
    y = job.encoding.targets(releases.clinic.arrow())
    model = job.fit(job.encoding.matrix(releases.clinic.arrow()), y, ledger)
    text = Page(page_of(releases, "linear", model, balance=ledger.balance(), digest="sha256:abc")).text
    assert "50.0% of the budget is used" in text
    assert model.guarantee.ledger.head in text
    assert "sha256:abc" in text
    assert "No ledger was debited" in Page(page_of(releases, "linear")).text


@pytest.mark.parametrize("epsilon", [1e-4, 0.02, 1e6])
@pytest.mark.parametrize("name", ["logistic", "linear"])
def test_pages_at_every_budget(releases, name, epsilon):
    job = releases.job(name, epsilon)
    y = job.encoding.targets(releases.clinic.arrow())
    model = job.fit(job.encoding.matrix(releases.clinic.arrow()), y)
    foreseen = foresee(job, releases.clinic.rows)
    text = report(model, foreseen.outlook, foreseen.costs)
    Page(text)
    assert "nan" not in text.lower().replace("financ", "")
