"""The API's description: complete, true, and what happens when thousands of requests are made up from it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.service.conftest import registered

from epsilearn.client import Client


@pytest.fixture(scope="module")
def described(deployment):
    """A data set with releases of every kind, for requests to reach what is behind the checks."""
    holder = deployment.client()
    dataset = registered(deployment, holder, "described", epsilon=1000.0, delta=1e-2)
    settings = {"target": "died", "epsilon": 1.0, "delta": 1e-6}
    return holder, dataset, {
        "process": holder.open(dataset, "process", kernel="linear", **settings).id,
        "interactive": holder.open(dataset, "interactive", kernel="linear", **settings).id,
        "model": holder.open(dataset, "model", **settings).id,
        "statistics": holder.open(dataset, "statistics", epsilon=900.0).id,
    }  # fmt: skip


def made_up(deployment, key: str, folder: Path, release: str, dataset: str, examples: int, *words: str) -> int:
    """Send requests made up from the description, and return how many there were; none may be answered wrongly."""
    config = folder / "schemathesis.toml"
    config.write_text(f'[parameters]\n"path.release" = "{release}"\n"path.name" = "{dataset}"\n')
    # Requests that fit the description and are refused all the same are no fault: a schema that does not fit its
    # table, a budget that is spent.
    found = subprocess.run(
        [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config), "run",
         f"{deployment.url}/openapi.json", "-H", f"Authorization: Bearer {key}", "--max-examples", str(examples),
         "--exclude-checks", "positive_data_acceptance", "--generation-database", "none", "--no-color",
         "--request-timeout", "60", *words],
        capture_output=True, text=True, timeout=3000, check=False, cwd=folder,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    return int(re.search(r"(\d+) generated", found.stdout).group(1))


def alive(deployment, holder: Client) -> None:
    assert deployment.raw("GET", "/healthz")[0] == 200
    assert "Traceback" not in deployment.output.read_text()
    assert holder.datasets()


def test_made_up_requests_are_answered_as_described(deployment, described, tmp_path):
    holder, dataset, releases = described
    count = made_up(
        deployment, deployment.key("holder", "fuzz"), tmp_path, releases["process"], dataset, 5,
        "--exclude-method", "DELETE", "--phases", "examples,fuzzing",
    )  # fmt: skip
    assert count > 50
    alive(deployment, holder)


@pytest.mark.slow
def test_thousands_of_requests_are_answered_as_described(deployment, described, tmp_path):
    holder, dataset, releases = described
    before = holder.budget(dataset)
    # What is made up does not depend on the database; each request takes longer on PostgreSQL.
    count, examples = 0, 15 if "://" in deployment.database else 70
    for kind in ("process", "interactive", "model", "statistics"):
        role = "analyst" if kind == "model" else "holder"
        # A key that may be ended by one of the requests, for one of the kinds.
        words = () if kind == "interactive" else ("--exclude-method", "DELETE")
        count += made_up(deployment, deployment.key(role, kind), tmp_path, releases[kind], dataset, examples, *words)
    assert count > (2000 if examples < 70 else 4000)
    alive(deployment, holder)
    after = holder.budget(dataset)
    assert after.spent_epsilon <= after.epsilon
    assert after.debits >= before.debits


def test_every_route_says_how_it_can_fail_and_shows_an_example(deployment):
    with urllib.request.urlopen(f"{deployment.url}/openapi.json") as answer:
        description = json.load(answer)
    operations = [
        (method, path, content)
        for path, methods in description["paths"].items()
        for method, content in methods.items()
        if path.startswith("/api")
    ]
    assert len(operations) >= 15
    for method, path, content in operations:
        assert {"400", "401", "403", "404", "409", "413", "422", "429", "503"} <= set(content["responses"]), path
        assert content["security"], path
        assert content["summary"], path
        assert content["description"], path
        if method == "post" and "requestBody" in content:
            text = json.dumps(content["requestBody"]) + json.dumps(description["components"]["schemas"])
            assert "examples" in text
    for name, schema in description["components"]["schemas"].items():
        assert schema.get("description"), name


def test_what_cannot_be_done_says_what_can(deployment):
    key = deployment.key("holder", "ruth")
    status, headers, _ = deployment.raw("PATCH", "/api/keys", key=key)
    assert (status, headers["allow"]) == (405, "GET, POST")


def test_what_is_counted_names_nobody(deployment, described):
    _, dataset, releases = described
    text = deployment.raw("GET", "/metrics")[2].decode()
    assert 'epsilearn_calls_total{method="GET",route="/healthz",status="200"}' in text
    assert dataset not in text
    assert not any(release in text for release in releases.values())
