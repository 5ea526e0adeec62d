"""The tutorial's commands run, one after the other, and say what the page says."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

from rich.console import Console

from epsilearn.cli import _run

ROOT = Path(__file__).parents[1]


def commands() -> list[tuple[str, list[str]]]:
    """Each command of the page, and the lines that are printed under it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ epsilearn "):
                found.append((line.removeprefix("$ epsilearn "), []))
            else:
                found[-1][1].append(line)
    return found


def test_the_tutorial_runs_and_says_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "demo.py"))["main"]()
    monkeypatch.chdir(tmp_path / "demo-output")
    for module in ("common", "ledger", "model"):
        monkeypatch.setattr(f"epsilearn.cli.{module}.console", Console(highlight=False, width=200))
    capsys.readouterr()
    pages = commands()
    assert len(pages) >= 12
    for words, lines in pages:
        assert _run(shlex.split(words), as_json=False) == 0, words
        said = " ".join(capsys.readouterr().out.split())
        for line in lines:
            assert " ".join(line.split()) in said, (words, line)
    assert {path.name for path in Path("readmission").iterdir()} == {"model.json", "report.html", "guarantee.json"}
