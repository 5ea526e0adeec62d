"""Checks of public arguments that have no better home."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from epsilearn import Ledger, laplace
from epsilearn.checks import as_line, is_line
from epsilearn.errors import InvalidInput

ALLOWED = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
           "Sm", "Sc", "Sk", "So", "Zs"}  # fmt: skip
JOINERS = "\u200c\u200d"  # format characters that Persian and family emojis are written with
REFUSED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_one_line_of_text_is_what_its_characters_are():
    """All of Unicode: letters, marks, numbers, punctuation, symbols and spaces, and the two joiners; nothing else."""
    assert len(ALLOWED | REFUSED) == 30
    seen = set()
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        category = unicodedata.category(letter)
        seen.add(category)
        assert is_line(letter) == (category in ALLOWED or letter in JOINERS), f"U+{code:04X} ({category})"
    assert seen == ALLOWED | REFUSED
    # Whatever a ledger took before is still taken.
    assert all(is_line(chr(code)) for code in range(sys.maxunicode + 1) if chr(code).isprintable())


def test_a_text_is_made_fit_letter_by_letter():
    assert as_line("a\tb\u202ec\u3000d") == "a?b?c\u3000d"
    assert is_line(as_line("".join(map(chr, range(0x3000)))))


def test_a_ledger_takes_what_is_one_line(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", dataset="年次\u3000報告", epsilon=1.0)
    taken = ["年次\u3000報告", "م\u200cی", "👩\u200d🔬"]
    for purpose in taken:
        laplace(1, sensitivity=1, epsilon=0.1, ledger=ledger, purpose=purpose)
    assert [entry["purpose"] for entry in ledger.history()] == taken
    ledger.verify()
    for purpose in ("a\u00adb", "\u202ea", "\ue000", "a\nb"):
        with pytest.raises(InvalidInput, match="one printable line"):
            laplace(1, sensitivity=1, epsilon=0.1, ledger=ledger, purpose=purpose)
        with pytest.raises(InvalidInput, match="printable"):
            Ledger.create(tmp_path / "budget.db", dataset=purpose, epsilon=1.0)
    assert ledger.balance().debits == len(taken)
