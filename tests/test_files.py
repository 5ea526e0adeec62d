from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epsilearn.errors import InvalidInput
from epsilearn.files import TableFile
from epsilearn.schema import FileFormat

CANARY = "Zaphod424242"


def read(path, columns=("a", "b"), names=None):
    file = TableFile.at(path, FileFormat(header=names is None), names)
    return [row for batch in file.batches(list(columns)) for row in batch.to_pylist()]


def refusal(path, columns=("a", "b"), names=None) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read(path, columns, names)
    return caught.value


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "arrow"])
def test_the_same_table_from_every_kind_of_file(clinic, tmp_path, kind):
    file = TableFile.at(clinic.write(tmp_path, kind))
    assert file.names() == list(clinic.columns)
    (found,) = file.batches(["days", "age"])
    assert found.column_names == ["days", "age"]
    assert [float(v) for v in found["age"].to_pylist()] == clinic.columns["age"]
    assert [float(v) for v in found["days"].to_pylist()] == clinic.columns["days"]
    if kind in ("parquet", "arrow"):
        assert file.types()[:5] == ["number", "number", "text", "boolean", "number"]
    assert file.rows() == (clinic.rows if kind == "parquet" else None)


BROKEN = {
    "wrong count": (f"a,b\n1,2\n3,{CANARY},5\n", "t.csv, line 3: 3 fields where there are 2 columns"),
    "too few": (f"a,b\n1,2\n{CANARY}\n", "t.csv, line 3: 1 fields where there are 2 columns"),
    "two wrong": (f"a,b\n1,2\n3,{CANARY},5\n1\n", "t.csv, line 3: 3 fields"),
    "empty line": (f"a,b\n1,{CANARY}\n\n3,4\n", "line 3 is empty"),
    "open quote": (f'a,b\n1,"{CANARY}\n3,4\n', "quotation mark"),
    "line break": (f'a,b\n1,"{CANARY}\nx"\n3,4\n', "quotation mark"),
    "carriage return": (f"a,b\n1,{CANARY}\r2,x\n3,4\n", "t.csv"),
    "absent": (f"a,c\n1,{CANARY}\n", "no column 'b' among its 2"),
    "twice": (f"a,b,b\n1,{CANARY},2\n", "2 columns called 'b'"),
    "nothing": ("", "empty"),
}


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "zipped"])
@pytest.mark.parametrize("case", BROKEN)
def test_broken_text_files_quote_nothing(tmp_path, all_texts, case, zipped):
    content, text = BROKEN[case]
    path = tmp_path / ("t.csv.gz" if zipped else "t.csv")
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    error = refusal(path)
    assert text.replace("t.csv", path.name) in str(error)
    assert CANARY not in all_texts(error)


def test_lines_are_counted_from_the_first_of_a_file_without_a_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3\n5,6\n")
    assert "line 2: 1 fields" in str(refusal(path, names=("a", "b")))
    path.write_text("1,2\n\n5,6\n")
    assert "line 2 is empty" in str(refusal(path, names=("a", "b")))
    path.write_text("1,2\n3,4\n\n\n")
    assert len(read(path, names=("a", "b"))) == 2


def test_a_wrong_line_far_down_has_its_number(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 400_000 + "1\n" + "1,2\n" * 10)
    assert "line 400002: 1 fields" in str(refusal(path))


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n", "\r\n", "\r\n\r\n"], ids=repr)
def test_empty_lines_at_the_end_are_not_rows(tmp_path, end):
    path = tmp_path / "t.csv"
    path.write_bytes(("a,b\n1,2\n3,4" + end).encode())
    assert read(path) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


@pytest.mark.parametrize("name", ["t.csv", "t.CSV", "t.csv.gz", "t.csv.GZ"])
def test_windows_line_ends_byte_order_marks_and_capital_endings(tmp_path, name):
    path, content = tmp_path / name, "\ufeffa,b\r\n1,é\r\n".encode()
    path.write_bytes(gzip.compress(content) if name.lower().endswith("gz") else content)
    assert TableFile.at(path).names() == ["a", "b"]
    assert read(path) == [{"a": "1", "b": "é"}]


def test_a_byte_order_mark_without_a_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeff1,2\n3,4\n".encode())
    assert read(path, names=("a", "b"))[0] == {"a": "1", "b": "2"}


def test_gzip_members_make_one_file(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,") + gzip.compress(b"b\n1,2\n") + gzip.compress(b"3,4\n"))
    assert read(path) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


NOT_TEXT = f"a,b\n1,{CANARY}".encode() + b"\xff\xfe\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", NOT_TEXT),
        ("t.csv.gz", gzip.compress(NOT_TEXT)),
        ("t.csv", b"\xff" + NOT_TEXT),
        ("t.csv.gz", NOT_TEXT),
        ("t.csv.gz", gzip.compress(NOT_TEXT * 1000)[:-20]),
        ("t.csv", f'"{CANARY}'.encode() + b"\n1,2\n"),
        ("t.parquet", NOT_TEXT),
        ("t.parquet", b""),
        ("t.parquet", b"PAR1" + b"\xff" * 40 + b"\xff\xff\xff\x7fPAR1"),
        ("t.parquet", b"PAR1" + CANARY.encode() * 10 + b"\x10\0\0\0PAR1"),
        ("t.arrow", NOT_TEXT),
        ("t.arrow", b"ARROW1\0\0\xff\xff\xff\xff\x10\0\0\0" + CANARY.encode() * 9),
        ("t.arrow", b"ARROW1\0\0\xff\xff\xff\xff\xff\xff\xff\x7f" + CANARY.encode() * 9),
    ],
    ids=range(13),
)
def test_damaged_files_are_one_line_and_quote_nothing(tmp_path, all_texts, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    error = refusal(path)
    assert "\n" not in str(error)
    assert CANARY not in all_texts(error)


def test_half_of_an_arrow_or_parquet_file(tmp_path, clinic, all_texts):
    for kind in ("parquet", "arrow"):
        path = clinic.write(tmp_path, kind)
        whole = path.read_bytes()
        for size in (10, 40, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            assert "damaged" in str(refusal(path, ("age",)))


@pytest.mark.parametrize(
    "content",
    [
        f"1 1:0.5\n1 2:{CANARY}\n",
        f"{CANARY} 1:0.5\n",
        f"1 1:0.5 {CANARY}\n",
        "1 0:0.5\n",
        "1 11:0.5\n",
        "1 -3:0.5\n",
        "1 2:1 1:1\n",
        "1,2 1:1\n",
    ],
    ids=range(8),
)
def test_bad_libsvm_files_quote_nothing(tmp_path, all_texts, content):
    path = tmp_path / "t.libsvm"
    path.write_text(content)
    with pytest.raises(InvalidInput, match="cannot be read as libsvm") as caught:
        TableFile.at(path).sparse_rows(10, 1)
    assert CANARY not in all_texts(caught.value)


def test_libsvm_columns_are_counted_from_zero_or_one(tmp_path):
    for name, write in (("t.svm", Path.write_bytes), ("t.svm.gz", lambda p, b: p.write_bytes(gzip.compress(b)))):
        write(tmp_path / name, b"1 1:0.5 3:2 # note\n-1 2:1\n")
        X, y = TableFile.at(tmp_path / name).sparse_rows(3, 1)
        assert X.toarray().tolist() == [[0.5, 0, 2], [0, 1, 0]]
        assert y.tolist() == [1, -1]
        assert TableFile.at(tmp_path / name).sparse_rows(4, 0)[0].toarray()[0].tolist() == [0, 0.5, 0, 2]


def test_names_decide_the_format_and_the_schema_where_they_do_not(tmp_path):
    (tmp_path / "t.data").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="unknown kind of file"):
        TableFile.at(tmp_path / "t.data")
    assert TableFile.at(tmp_path / "t.data", FileFormat(format="csv")).names() == ["a", "b"]
    with pytest.raises(InvalidInput, match="there is no file"):
        TableFile.at(tmp_path)
    (tmp_path / "t.parquet.gz").write_bytes(b"")
    with pytest.raises(InvalidInput, match="unzip it first"):
        TableFile.at(tmp_path / "t.parquet.gz")


def test_a_schema_of_a_file_without_a_header_reads_parquet_by_its_own_names(tmp_path):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"b": ["x"], "a": ["y"]}), path)
    assert TableFile.at(path, FileFormat(header=False), ("a", "b")).names() == ["b", "a"]


ROWS = ["1,x", '2,"y"', "3,z", '4,"w ""q"""', "5,v"]
LINE = st.text(alphabet='",\r a1', max_size=12) | st.text(
    alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8
)


def differing(tmp_path, place, line):
    """How many rows one other line changes; None if the file is refused."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "\n".join(ROWS) + "\n", newline="")
    before = read(path)
    path.write_text("a,b\n" + "\n".join([*ROWS[:place], line, *ROWS[place + 1 :]]) + "\n", newline="", encoding="utf-8")
    try:
        after = read(path)
    except InvalidInput:
        return None
    # Rows are a set to the model; the last line may vanish where it is empty.
    missing = len(before) - len(after)
    return sum(row not in after for row in before) + max(-missing, 0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("neighbours")


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 4), LINE)
@example(0, '1,a\r1,"c')
@example(0, '1,a\r1,b\r1,"c')
@example(2, '1,a\r1,"c')
@example(1, '"')
@example(4, "")
def test_one_line_changes_one_row(folder, place, line):
    assert differing(folder, place, line) in (None, 0, 1)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(st.integers(0, 4), LINE)
def test_one_line_changes_one_row_whatever_it_is(folder, place, line):
    assert differing(folder, place, line) in (None, 0, 1)
