"""Folders that are there whole or not at all, whenever somebody interrupts."""

from __future__ import annotations

import pytest

from epsilearn import whole_files
from epsilearn.errors import InvalidInput
from epsilearn.whole_files import whole_folder


@pytest.mark.parametrize("moment", ["_lock", "_same", "_empty"])
def test_an_interruption_before_the_folder_is_ours_leaves_nothing(tmp_path, monkeypatch, moment):
    usual = getattr(whole_files, moment)
    times = iter([True])

    def interrupted(*arguments):
        if next(times, False):
            raise KeyboardInterrupt
        return usual(*arguments)

    monkeypatch.setattr(whole_files, moment, interrupted)
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []
    with whole_folder(tmp_path / "out") as (partial, finish):
        (partial / "file").write_text("whole")
        finish()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interruption_takes_nothing_from_whoever_is_writing(tmp_path, monkeypatch):
    with whole_folder(tmp_path / "out") as (partial, finish):
        whole_files._give_back(partial)
        assert partial.is_dir()
        with pytest.raises(InvalidInput, match="another process is writing"), whole_folder(tmp_path / "out"):
            pass
        finish()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
