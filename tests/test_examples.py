"""The examples run, and say what they promise to say."""

from __future__ import annotations

import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from epsilearn import Client
from epsilearn.client import ServerError

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_words_are_learned_from_through_a_kernel_alone_and_asked_again(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLES / "words.py"))["main"]
    main(tmp_path)
    first = capsys.readouterr().out
    main(tmp_path)
    assert capsys.readouterr().out == first
    assert "epsilon = 2, delta = 1e-06" in first
    assert "994 more words" in first


def test_the_demo_ends_with_a_promise_an_accuracy_and_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "demo.py"))["main"]()
    said = " ".join(capsys.readouterr().out.split())
    assert "What was promised: epsilon = 1, delta = 1e-06, per record, replace-one." in said
    assert "without privacy" in said
    assert "delivered" in said
    for name in ("model/report.html", "model/model.json", "model/guarantee.json", "predictions.csv", "budget.db"):
        assert (tmp_path / "demo-output" / name).stat().st_size
    lines = (tmp_path / "demo-output" / "predictions.csv").read_text().splitlines()
    assert len(lines) == 10_001
    assert {line.split(",")[0] for line in lines[1:]} == {"no", "yes"}


def test_the_service_says_where_it_is_and_with_which_keys(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    demo = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "serve_demo.py"), str(port)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    said = ""
    try:
        while "Ctrl-C stops it" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        url, keys = re.search(r"http://127\.0\.0\.1:\d+", said).group(), re.findall(r"epsk_\w+", said)
        holder, analyst = (Client(url, key) for key in keys)
        assert {release.kind for release in analyst.releases("stays")} == {"process", "model", "statistics"}
        assert holder.budget("stays").spent_epsilon == 2.0
    finally:
        demo.terminate()
        demo.wait(timeout=300)
    with pytest.raises(ServerError, match="no answer"):
        holder.datasets()
