"""A schema for a person to fill in, from the names and types of a table's columns; no value is looked at."""

from __future__ import annotations

import json
import re

from epsilearn.errors import InvalidInput
from epsilearn.files import TableFile
from epsilearn.schema import SPARSE_TARGET
from epsilearn.schema_columns import one_line

__all__ = ["check_header", "skeleton"]

_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_DATE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")

_HEAD = """\
# What is public about {name}. Fill it in from what you know without looking at the values:
# whatever depends on them would be released along with the model, and for nothing.
#
# Each column needs one of
#     bounds = [low, high]       a number; values beyond are moved to the nearer bound
#     categories = ["a", "b"]    every value it can have: texts, numbers or true and false
#     ignore = true              not used
# and may have
#     missing = ...              the bound, number or category that stands for a missing value
#     other = "b"                the category that stands for every value not listed
#     aliases = {{ "A" = "a" }}    other ways of writing a category
#
# `epsilearn schema check` says what is left to do.

version = 1
rows_per_person = 1         # how many rows one person may have: the promise is per person
# rows = 10000              # how many rows there are; checked by fit, needed for --dry-run of a text file
# norm = 2.0                # scale longer rows down to this length (each column measures 1); less noise, some bias

[file]
format = {format}
"""
_TEXT_FILE = """\
header = {header}
strip = {strip}               # whether blanks around texts are taken away
missing = [""]              # texts that mean "not known"
"""
_SPARSE = """
[columns.{target}]            # the first field of each line
# categories = [-1, 1]
# bounds = [0, 1]

[others]
# count = 1000              # how many columns there are
# bounds = [0, 1]           # of all of them; 0 must lie between
first = 1                   # the number of the first column: 0 or 1
"""
_CHOICES = {
    None: "# bounds = [0, 1]\n# categories = []\n# ignore = true\n",
    "number": "# bounds = [0, 1]\n# categories = []\n# ignore = true\n",
    "text": "# categories = []\n# ignore = true\n",
    "boolean": "categories = [false, true]\n",
}


def skeleton(file: TableFile) -> str:
    """The text of a schema in which every column is named and nothing about it is decided."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in file.path.name)
    head = _HEAD.format(name=shown, format=json.dumps(file.format))
    if file.format == "libsvm":
        return head + _SPARSE.format(target=SPARSE_TARGET)
    if file.format in ("csv", "tsv"):
        head += _TEXT_FILE.format(header=_word(file.given is None), strip=_word(False))
    names = file.names()
    if len(set(names)) != len(names) or "" in names:
        raise InvalidInput("every column needs a name of its own; rename those that are equal or empty")
    columns = zip(names, file.types(), strict=True)
    return head + "".join(f"\n[columns.{_key(name)}]\n{_CHOICES[kind]}" for name, kind in columns)


def check_header(names: list[str]) -> None:
    """Refuse a first line that looks like somebody's record: its values must not become names in a schema."""
    for position, name in enumerate(names, start=1):
        if not name.strip() or _NUMBER.fullmatch(name) or _DATE.fullmatch(name):
            raise InvalidInput(
                f"field {position} of the first line is empty, a number or a date: is the line a "
                "record rather than the columns' names? Pass --no-header --names a,b,c; or --header if it names them"
            )
    if len(set(names)) != len(names):
        raise InvalidInput(
            "two fields of the first line are equal: is it a record rather than the columns' names? Pass --no-header "
            "--names a,b,c, or give every column a name of its own"
        )


def _word(truth: bool) -> str:
    return "true" if truth else "false"


def _key(name: str) -> str:
    """A name as a TOML key."""
    if _BARE.fullmatch(name):
        return name
    if "\x7f" in name:
        raise InvalidInput(f"column {one_line(name)} has a name that TOML cannot hold; rename it")
    return json.dumps(name, ensure_ascii=False)
