"""What the documentation says of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# A path from the root, a path among the tests, or the name of a file alone, after another of its folder.
NAMED = re.compile(r"\b(?:[a-z_]+/)*test_[a-z_]+\.py\b|\btests/[A-Za-z_/]*[A-Za-z_]\b(?!\.py)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_is_there(page):
    missing = [name for name in NAMED.findall(page.read_text(encoding="utf-8")) if not _is_there(name)]
    assert not missing


def _is_there(name: str) -> bool:
    if name.startswith("tests/"):
        return (ROOT / name).exists()
    return any((ROOT / "tests").rglob(name))


def test_pages_do_name_tests():
    """Else the pattern above has grown blind."""
    found = [name for page in PAGES for name in NAMED.findall(page.read_text(encoding="utf-8"))]
    assert {"tests/test_totality.py", "noise/test_door.py"} <= set(found)
