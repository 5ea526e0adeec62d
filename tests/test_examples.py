"""The examples run, and say what they promise to say."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_words_are_learned_from_through_a_kernel_alone_and_asked_again(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLES / "words.py"))["main"]
    main(tmp_path)
    first = capsys.readouterr().out
    main(tmp_path)
    assert capsys.readouterr().out == first
    assert "epsilon = 2, delta = 1e-06" in first
    assert "994 more words" in first
