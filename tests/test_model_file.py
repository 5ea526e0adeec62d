from __future__ import annotations

import copy
import hashlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import epsilearn
from epsilearn.errors import InvalidInput
from epsilearn.model_file import model_from_json, model_to_json


def attempt(action, *arguments):
    """What an action returns, or the text with which it is refused; nothing else may be raised."""
    try:
        return action(*arguments), None
    except InvalidInput as error:
        return None, str(error)


def sealed(content: dict) -> str:
    """The text of a file whose digest fits, whoever wrote it."""
    content = {name: value for name, value in content.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest()})


def changed(content: dict, path: tuple, value: object) -> dict:
    content = copy.deepcopy(content)
    place = content
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


@pytest.fixture(scope="session")
def content(releases):
    return json.loads(model_to_json(releases["logistic"]))


@pytest.fixture(scope="session")
def landmark_content(releases):
    return json.loads(model_to_json(releases["landmark"]))


def test_a_model_survives_its_file_bit_for_bit(release, releases, tmp_path):
    model, rows = releases[release], releases.rows(release)
    text = model_to_json(model)
    (tmp_path / "model.json").write_text(text, encoding="utf-8")
    again = epsilearn.load(tmp_path)
    assert model_to_json(again) == text
    assert again.weights.coefficients.tobytes() == model.weights.coefficients.tobytes()
    assert again.weights.intercept.tobytes() == model.weights.intercept.tobytes()
    np.testing.assert_array_equal(again.scores(rows), model.scores(rows))
    assert (again.guarantee, again.schema, again.settings) == (model.guarantee, model.schema, model.settings)
    assert again.noise.deviation == model.noise.deviation


def test_a_file_is_plain_and_holds_nothing_but_what_is_public(content):
    assert set(content) == {
        "format", "version", "made_by", "model", "target", "schema", "features", "weights", "noise", "method",
        "settings", "guarantee", "digest",
    }  # fmt: skip
    assert set(content["settings"]) == {"rows", "alpha"}
    assert sealed(content) == json.dumps(content)


def test_every_other_byte_is_noticed_or_changes_nothing(releases):
    text = model_to_json(releases["four"]).encode()
    chance = np.random.default_rng(0)
    for place in chance.integers(len(text), size=400):
        other = bytearray(text)
        other[place] = chance.choice([b for b in b' \n09eE-."{}]x\xff\x00' if b != text[place]])
        found, refusal = attempt(model_from_json, other.decode(errors="replace"))
        if found is None:
            assert len(refusal.splitlines()) == 1
        else:
            assert model_to_json(found).encode() == text


def test_every_lost_byte_is_noticed_or_changes_nothing(releases):
    text = model_to_json(releases["logistic"])
    for place in np.random.default_rng(1).integers(len(text), size=200):
        for other in (text[:place] + text[place + 1 :], text[:place]):
            found, _ = attempt(model_from_json, other)
            assert found is None or model_to_json(found) == text


BAD = {
    ("format",): ["", None, [], KeyError],
    ("version",): [2, "1", None, [], [1], 1e300, KeyError],
    ("made_by",): [KeyError],
    ("model",): ["tree", None, [], {}, 5, "x" * 1000, "line\nbreak", "linear", "landmark", KeyError],
    ("target",): ["nobody", "note", None, [], {}, "age\n", KeyError],
    ("schema",): [None, [], {}, "x", KeyError],
    ("schema", "columns"): [[], None, {}, {"age": {}}],
    ("schema", "columns", "age"): [{"ignore": True}, {"bounds": [1, 0]}, None],
    ("schema", "columns", "extra"): [{"bounds": [0, 1]}],
    ("features",): [[], None, ["x"], KeyError],
    ("weights",): [None, [], {}, "x"],
    ("weights", "kind"): ["landmark", "tree", None, [], KeyError],
    ("weights", "coefficients"): [None, [], [[]], 5, "x", {}, [[0.0] * 14], [[0.0] * 16], [[0.0] * 15] * 2, KeyError],
    ("weights", "coefficients", 0): [None, 5, {"size": 15}, {"size": 15, "at": [99], "values": [1]}],
    ("weights", "coefficients", 0, 0): [None, "1", True, [], [1], {}, 10**400],
    ("weights", "intercept"): [[], None, 5, [0, 0], ["x"], [True]],
    ("weights", "norm"): [0, -1, "x", [], True, 10**400],
    ("weights", "extra"): [1],
    ("noise",): [None, [], {}, "x"],
    ("noise", "kind"): ["none", None, [], 5],
    ("noise", "scale"): ["x", None, [], True, -1.0, 0, 10**400],
    ("noise", "dimension"): ["x", None, 1.5, True, -5, 0, 10**400],
    ("method",): [None, [], 5, "magic"],
    ("settings",): [None, [], "x", {"rows": "x"}, {"rows": True}, {"rows": []}],
    ("guarantee",): [None, [], {}, "x"],
    ("guarantee", "epsilon"): [None, "x", -1, 0, [], "infinity", KeyError],
    ("guarantee", "curve"): ["x", [], {}, {"kind": []}, 5],
    ("guarantee", "ledger"): [5, [], {}, {"dataset": [], "entry": {}, "head": 5}],
    ("guarantee", "rows_per_person"): [0, True, 1.5],
    ("guarantee", "assumptions"): ["x", [5], None],
    ("digest",): [KeyError],
    ("more",): [1],
}


def bad_cases():
    return [(path, value) for path, values in BAD.items() for value in values]


@pytest.mark.parametrize(("path", "value"), bad_cases(), ids=range(len(bad_cases())))
def test_wrong_content_under_a_right_digest(content, path, value):
    data = changed(content, path, value)
    with pytest.raises(InvalidInput) as caught:
        model_from_json(sealed(data) if path != ("digest",) else json.dumps(data))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


BAD_LANDMARKS = {
    ("weights", "kernel"): [None, [], "rbf", {}, {"name": "rbf"}, {"name": "linear", "gamma": 1.0}],
    ("weights", "kernel", "gamma"): [None, "x", 0, -1, [], True, 10**400],
    ("weights", "kernel", "more"): [1],
    ("weights", "kernel", "name"): [[], None, "polynomial"],
    ("weights", "landmarks"): [None, [], 5, {}, [[]], "x"],
    ("weights", "landmarks", 0): [None, [1], {"size": 15}, "x"],
    ("weights", "projection"): [None, [], [[]], 5, {}, [5], "x"],
    ("weights", "projection", 0): [[], None, 5],
    ("weights", "factors"): [[], 5, {}, ["x"]],
    ("weights", "bound"): [None, 0, -1, "x", []],
    ("weights", "norm"): [None, 0],
    ("weights", "coefficients"): [[[]], [], None],
    ("weights", "kind"): ["linear"],
}


def bad_landmarks():
    return [(path, value) for path, values in BAD_LANDMARKS.items() for value in values]


@pytest.mark.parametrize(("path", "value"), bad_landmarks(), ids=range(len(bad_landmarks())))
def test_wrong_landmarks_under_a_right_digest(landmark_content, path, value):
    with pytest.raises(InvalidInput) as caught:
        model_from_json(sealed(changed(landmark_content, path, value)))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 5000])
@pytest.mark.parametrize("where", ["weights", "settings", "noise", "schema", "guarantee"])
def test_numbers_that_are_none(content, number, where):
    place = {
        "weights": ("weights", "intercept", 0),
        "settings": ("settings", "alpha"),
        "noise": ("noise", "scale"),
        "schema": ("schema", "columns", "age", "bounds", 1),
        "guarantee": ("guarantee", "epsilon"),
    }[where]
    text = sealed(changed(content, place, "HERE")).replace('"HERE"', number)
    with pytest.raises(InvalidInput) as caught:
        model_from_json(text)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "5", '"x"', "{", "[" * 100_000, '{"format": "epsilearn model"}']
)
def test_texts_that_are_no_model(text):
    with pytest.raises(InvalidInput, match="model file"):
        model_from_json(text)


@pytest.mark.parametrize("depth", [50, 200, 300, 330, 480, 495, 600, 900, 985, 990, 995])
@pytest.mark.parametrize("where", ["method", "settings", "weights", "target"])
def test_deep_nesting(content, where, depth):
    deep = "[" * depth + "]" * depth
    inner = sealed(changed(content, (where,), "HERE"))
    with pytest.raises(InvalidInput):
        model_from_json(inner.replace('"HERE"', deep))
    data = {name: value for name, value in content.items() if name != "digest"}
    flat = json.dumps({**data, where: "HERE"}, sort_keys=True, separators=(",", ":")).replace('"HERE"', deep)
    digest = "sha256:" + hashlib.sha256(flat.encode()).hexdigest()
    text = json.dumps({**data, where: "HERE", "digest": digest}).replace('"HERE"', deep)
    with pytest.raises(InvalidInput):
        model_from_json(text)


def test_half_a_character_is_no_name(content):
    """JSON can hold half a surrogate pair, which no terminal or file can: refuse it, or every print fails."""
    data = changed(content, ("method",), "\ud800")
    with pytest.raises(InvalidInput):
        model_from_json(sealed(data))
    columns = {("\udfff" if name == "age" else name): c for name, c in content["schema"]["columns"].items()}
    data = changed(content, ("schema", "columns"), columns)
    data["features"][0] = "\udfff"
    with pytest.raises(InvalidInput):
        model_from_json(sealed(data))


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"caf\xe9": 1}')
    for name, text in (("latin.json", "not UTF-8"), ("none.json", "there is no model file")):
        with pytest.raises(InvalidInput, match=text):
            epsilearn.load(tmp_path / name)
    with pytest.raises(InvalidInput, match="there is no model file"):
        epsilearn.load(tmp_path)
    with pytest.raises(InvalidInput, match="there is no model file"):
        epsilearn.load("a\0b")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
    | st.sampled_from(["linear", "landmark", "infinity", 10**400, 2**64]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=2),
    max_leaves=4,
)  # fmt: skip


def places(data, here=()):
    items = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for key, value in items:
        yield (*here, key)
        yield from places(value, (*here, key))


def check_mutation(original, releases, name, data):
    mutated = original
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([p for p in places(mutated) if p != ("digest",)]))
        mutated = changed(mutated, path, data.draw(VALUES | st.just(KeyError)))
    model, refusal = attempt(model_from_json, sealed(mutated))
    if model is None:
        assert len(refusal.splitlines()) == 1
        return
    assert model_to_json(model)
    attempt(model.predict, releases.rows(name))


QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=120, derandomize=True, deadline=None, suppress_health_check=QUICK)
@given(st.data())
def test_random_changes_under_a_right_digest(content, releases, data):
    check_mutation(content, releases, "logistic", data)


@settings(max_examples=80, derandomize=True, deadline=None, suppress_health_check=QUICK)
@given(st.data())
def test_random_changes_to_landmarks_under_a_right_digest(landmark_content, releases, data):
    check_mutation(landmark_content, releases, "landmark", data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "landmark", "polynomial", "numbered-lasso", "short-lasso"])
@settings(max_examples=1000, deadline=None, suppress_health_check=QUICK)
@given(st.data())
def test_thousands_of_random_changes(releases, name, data):
    check_mutation(json.loads(model_to_json(releases[name])), releases, name, data)
