"""Files that somebody made to do harm: small ones that ask for gigabytes, or for hours, or that mean two things."""

from __future__ import annotations

import hashlib
import json
import tracemalloc

import numpy as np
import pytest

from epsilearn import Guarantee, Schema
from epsilearn.errors import InvalidInput, TamperedLedger
from epsilearn.job import Job
from epsilearn.ledger import Ledger
from epsilearn.model_file import model_from_json, model_to_json
from epsilearn.plain_json import parse_json
from epsilearn.released import MOST_WEIGHTS

EMPTY = {"at": [], "values": []}


def sealed(content: dict) -> str:
    content = {name: value for name, value in content.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest()})


def numbered(content: dict, count: int, classes: int) -> dict:
    """A model of so many numbered columns and classes, none of whose weights is written down."""
    schema = content["schema"]
    schema = {
        **schema,
        "columns": {"target": {"categories": [f"c{i}" for i in range(classes)]}},
        "others": {**schema["others"], "count": count},
    }
    rows = [{"size": count, **EMPTY}] * (classes if classes > 2 else 1)
    weights = {**content["weights"], "coefficients": rows, "intercept": [0.0] * len(rows)}
    return {**content, "schema": schema, "weights": weights}


@pytest.fixture(scope="module")
def content(releases) -> dict:
    return json.loads(model_to_json(releases["numbered"]))


@pytest.fixture(scope="module")
def landmarks(releases) -> dict:
    return json.loads(model_to_json(releases["landmark"]))


def most_memory(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is too large: 33,554,432 is the most"):
        model_from_json(text)


def test_a_small_file_does_not_ask_for_gigabytes(content):
    text = sealed(numbered(content, 10_000_000, 400))
    assert len(text) < 30_000
    assert most_memory(lambda: refused(text)) < 10_000_000


def test_neither_do_landmarks(content, landmarks):
    """Rows of zeros that are public points."""
    weights = {
        **landmarks["weights"],
        "landmarks": [{"size": 10_000_000, **EMPTY}] * 400,
        "projection": [[0.0]] * 400,
        "factors": None,
        "coefficients": [[0.0]],
    }
    text = sealed({**numbered(content, 10_000_000, 2), "model": "landmark", "weights": weights})
    assert len(text) < 40_000
    assert most_memory(lambda: refused(text)) < 10_000_000


def test_a_wide_model_takes_the_room_of_its_weights(content):
    """Ten million columns are allowed: 80 MB for the weights, and no names that nobody asked for."""
    data = numbered(content, 10_000_000, 2)
    data["weights"]["coefficients"] = [{"size": 10_000_000, "at": [5, 9_999_999], "values": [0.5, -2.0]}]
    text, found = sealed(data), []
    assert most_memory(lambda: found.append(model_from_json(text))) < 100_000_000
    names = []
    assert most_memory(lambda: names.append(found[0].encoding.names[9_999_999])) < 100_000
    assert names == ["10000000"]


@pytest.mark.parametrize(("classes", "columns", "fits"), [(400, 10_000_000, False), (3, 10_000_000, True)])
def test_what_could_not_be_read_again_is_not_fitted(classes, columns, fits):
    """Known before the table is opened; a release that nobody can load would have been paid for."""
    schema = Schema.from_dict(
        {
            "version": 1,
            "file": {"format": "libsvm"},
            "columns": {"target": {"categories": list(range(classes))}},
            "others": {"bounds": [0, 1], "count": columns},
        }
    )
    assert (classes * columns <= MOST_WEIGHTS) == fits
    if fits:
        Job(schema, "target", "logistic", 1.0)
        return
    with pytest.raises(InvalidInput, match="too large"):
        Job(schema, "target", "logistic", 1.0)
    with pytest.raises(InvalidInput, match="too large"):
        Job(schema, "target", "landmark", 1.0, landmarks=np.broadcast_to(0.0, (4, columns)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "holds 'c' twice"),
        ('{"a": NaN}', "NaN, which is no number"),
        ('{"a": -Infinity}', "-Infinity, which is no number"),
        ('{"a": 1e999}', "beyond the doubles"),
        ('{"a": 1' + "0" * 309 + "}", "beyond the doubles"),
        ('{"a": -1' + "0" * 1_000_000 + "}", "beyond the doubles"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('{"a":' * 100_000, "nested too deeply|not JSON"),
        ('{"a": "\\ud800"}', "half a character"),
        ("{", "not JSON"),
        ("", "not JSON"),
    ],
    ids=range(11),
)
def test_json_that_is_refused(text, says):
    with pytest.raises(InvalidInput, match=f"^not a thing: .*({says})"):
        parse_json(text, "a thing")
    with pytest.raises(InvalidInput, match=f"^not a guarantee: .*({says})"):
        Guarantee.from_json(text)
    with pytest.raises(InvalidInput, match=f"^not a model file: .*({says})"):
        model_from_json(text)


def test_json_that_is_read():
    text = '{"a": [1, -2.5e-3, "\\u00e9\\ud83d\\ude00", true, null, {"a": {"a": 0}}], "b": 1' + "0" * 300 + "}"
    assert parse_json(text, "a thing") == json.loads(text)


def test_a_model_that_says_something_twice_is_refused(content):
    """The digest is of what was read: with the last one taken, the first could say anything to another reader."""
    text = sealed(content)
    again = text.replace('"model":', '"model": "svm", "model":', 1)
    with pytest.raises(InvalidInput, match="'model' twice"):
        model_from_json(again)


def test_an_entry_of_a_ledger_that_cannot_be_read_is_damage(tmp_path):
    from tests.test_ledger import edit

    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    for content in ('{"a": 1, "a": 2}', "[" * 50_000, '{"a": 1' + "0" * 5000 + "}"):
        ledger.debit(Guarantee.pure(0.1))
        edit(ledger, f"UPDATE epsilearn_entry SET content = '{content}'")
        with pytest.raises(TamperedLedger, match="damaged"):
            ledger.verify()
        edit(ledger, "DELETE FROM epsilearn_entry", "DELETE FROM epsilearn_ledger", "DELETE FROM epsilearn_count")
        ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)


def nested(depth: int, times: int) -> dict:
    curve: dict = {"kind": "pure", "bound": 1e-30}
    for _ in range(depth):
        curve = {"kind": "composite", "parts": [{"times": times, "curve": curve}]}
    return curve


@pytest.mark.parametrize(("depth", "times"), [(2, 1_000_000), (3, 1000), (200, 1), (60, 2), (1, 1_000_001)])
def test_a_curve_of_very_many_parts_of_parts_is_refused(depth, times):
    """Each level multiplies: a few hundred bytes would take years to add up."""
    data = {**Guarantee.pure(1.0).to_dict(), "curve": nested(depth, times)}
    with pytest.raises(InvalidInput, match="more than 1000000 parts"):
        Guarantee.from_dict(data)


def test_curves_of_parts_that_have_parts_are_read():
    data = {**Guarantee.pure(1.0).to_dict(), "curve": nested(2, 3)}
    promise = Guarantee.from_dict(data)
    assert Guarantee.from_json(promise.to_json()) == promise


@pytest.mark.parametrize(
    "text",
    [
        "version = 1" + "0" * 5000,
        "version = 1\nrows = 0x" + "f" * 10_000,
        "version = 1\n[columns.a]\nbounds = [0x" + "f" * 10_000 + ", 1]",
        "version = 1\n[columns.a]\ncategories = [0x" + "f" * 10_000 + "]",
        "version = 1\n[columns.a]\nbounds = [0, 1]\nmissing = 0x" + "f" * 10_000,
        "version = 1\n[others]\nbounds = [0, 1]\ncount = 0x" + "f" * 10_000,
        "version = 1\na = " + "[" * 10_000 + "]" * 10_000,
        "a." * 200_000 + "a = 1",
        "[" + "a." * 200_000 + "a]",
        "version = 1\nversion = 1",
        "version = 1\n[columns.a]\nbounds = [0, 1]\n[columns.a]\nignore = true",
    ],
    ids=range(11),
)
def test_schemas_that_are_refused(text):
    with pytest.raises(InvalidInput) as caught:
        Schema.from_toml(text)
    assert len(str(caught.value)) < 400


def test_a_schema_that_is_larger_than_any(tmp_path):
    with (tmp_path / "schema.toml").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(InvalidInput, match="larger than a schema"):
        Schema.read(tmp_path / "schema.toml")
