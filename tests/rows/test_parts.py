"""Work on parts: every record once, whatever engines do; files that are damaged, gone or changed."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse
from tests.rows.conftest import make_table, write_parquet

from epsilearn import Ledger, LogisticRegression, ParquetRows, SparseLogisticRegression
from epsilearn.errors import EpsilearnError, InvalidInput, StateError
from epsilearn.losses import Logistic, Softmax
from epsilearn.rows import Bounds, as_rows, parted
from epsilearn.rows.arrow_blocks import Columns
from epsilearn.rows.parts import Gathered, Parts, Seen, Targets, Unreadable, Work
from epsilearn.rows.passes import checksum
from epsilearn.solvers import Problem, minimise

SIGNS = Targets((lambda labels: np.where(labels, 1.0, -1.0),))


def model(**options):
    return LogisticRegression(classes=[False, True], data_norm=1.0, delta=1e-6, **options)


class Careless(Parts):
    """An engine that hands out what it is told to, in whichever order, as often as it is told."""

    def __init__(self, tables, rows, order=None, columns=2):
        names = [f"c{j}" for j in range(columns)]
        super().__init__(rows, names, Columns(tuple(names), "y"))
        self.tables, self.order = tables, order or list(range(len(tables)))

    def label(self, part):
        return f"table {part}"

    def gather(self, work):
        found = Gathered()
        for part in self.order:
            # There and back, as between processes.
            made = pickle.loads(pickle.dumps(work.part(part, [self.tables[part]])))
            found = found.merge(made)
        return found


def tables(count=4, rows=50):
    generator = np.random.default_rng(0)
    return [
        pa.table(
            {"c0": generator.normal(size=rows), "c1": generator.normal(size=rows), "y": [True, False] * (rows // 2)}
        )
        for _ in range(count)
    ]


def signs(labels):
    return np.where(labels, 1.0, -1.0)


def careless(**options):
    return Careless(tables(), 200, **options)


def test_the_order_of_parts_matters_by_a_rounding_only():
    coef = np.array([0.3, -0.7, 0.1])
    first = as_rows(careless(), Targets((signs,)), Bounds()).sums(Logistic(), coef)
    second = as_rows(careless(order=[2, 0, 3, 1]), Targets((signs,)), Bounds()).sums(Logistic(), coef)
    assert np.linalg.norm(first.gradient - second.gradient) <= 1e-16
    assert first.error == second.error


@pytest.mark.parametrize(
    ("order", "reason"),
    [([0, 1, 2, 3, 2], "counted twice"), ([0, 1, 3], "150 rows, and 200"), ([], "0 rows, and 200")],
)
def test_a_part_twice_or_never_is_an_error(order, reason):
    parts = careless()
    parts.order = order
    with pytest.raises(EpsilearnError, match=reason):
        as_rows(parts, Targets((signs,)), Bounds())


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.tables.__setitem__(2, parts.tables[2].slice(0, 49)),
        lambda parts: parts.tables.__setitem__(2, parts.tables[2].take(list(range(49, -1, -1)))),
        lambda parts: parts.tables.__setitem__(2, parts.tables[1]),
        lambda parts: parts.order.remove(2),
        lambda parts: parts.tables.__setitem__(
            2, parts.tables[2].set_column(0, "c0", pa.array(np.nextafter(parts.tables[2]["c0"].to_numpy(), 9)))
        ),
    ],
    ids=["a record less", "another order", "another part", "a part less", "other last bits"],
)
def test_other_records_than_were_checked_are_an_error(change):
    parts = careless()
    rows = as_rows(parts, Targets((signs,)), Bounds())
    change(parts)
    with pytest.raises(StateError, match=r"table 2 is not what it was"):
        rows.sums(Logistic(), np.zeros(3))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_record_that_went_bad_after_the_check_is_a_change_and_no_bad_input(bad):
    """Something has been spent by then, so it is not the caller's error any more."""
    parts = careless()
    rows = as_rows(parts, Targets((signs,)), Bounds())
    values = parts.tables[2]["c0"].to_numpy().copy()
    values[7] = bad
    parts.tables[2] = parts.tables[2].set_column(0, "c0", pa.array(values))
    with pytest.raises(StateError, match=r"table 2 is not what it was"):
        rows.sums(Logistic(), np.zeros(3))


def test_features_and_targets_of_different_lengths_are_refused():
    parts = careless()
    with pytest.raises(InvalidInput, match=r"table 0: features of shape .* do not fit together"):
        as_rows(parts, Targets((lambda labels: np.ones(len(labels) - 1),)), Bounds())


def test_a_refit_is_to_the_records_of_the_walk(folder, ledger):
    class Harmed(ParquetRows):
        def gather(self, work):
            if self.known is not None:
                frame = pd.read_parquet(folder / "part-1.parquet")
                frame["c0"] *= -1
                frame.to_parquet(folder / "part-1.parquet", row_group_size=3000)
            return super().gather(work)

    lasso = SparseLogisticRegression(
        classes=[False, True], feature_bound=1.0, delta=1e-6, refit=0.5, n_steps=3, ledger=ledger
    )
    with pytest.raises(StateError, match=r"part-1.parquet is not what it was"):
        lasso.fit(Harmed(folder, target="label", rows=9000))
    (entry,) = ledger.history()
    assert entry["status"] == "spent, not delivered"


def test_a_part_that_comes_late_twice_is_an_error_too():
    parts = careless()
    rows = as_rows(parts, Targets((signs,)), Bounds())
    parts.order.append(0)
    with pytest.raises(StateError, match="counted twice"):
        rows.sums(Logistic(), np.zeros(3))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
@pytest.mark.parametrize("misleading", [False, True])
def test_a_sample_saves_passes_and_does_no_harm_if_it_misleads(loss, misleading, monkeypatch):
    rows, columns = 16_000, 3
    # One block in which every sixteenth record is kept.
    monkeypatch.setattr(parted, "_FEW_BYTES", rows * columns * 8 // 16)
    generator = np.random.default_rng(0)
    X = generator.normal(size=(rows, columns)) / 2
    y = np.digitize(X[:, 0] + 0.2 * generator.normal(size=rows), [0.0] if loss.outputs == 1 else [-0.3, 0.3])
    if misleading:
        y[::16] = y.max() - y[::16]
        X[::16, 1] *= 1e-3
    y = 2.0 * y - 1 if loss.outputs == 1 else y.astype(float)
    parts = Careless([pa.table({**{f"c{j}": X[:, j] for j in range(columns)}, "y": y})], rows, columns=columns)
    gather, passes = parts.gather, []
    monkeypatch.setattr(parts, "gather", lambda work: passes.append(work) or gather(work))
    home = as_rows(parts, Targets(), Bounds())
    solution = minimise(Problem(home, loss, 1e-3), 1e-10)
    expected = minimise(Problem(as_rows(X, y, Bounds()), loss, 1e-3), 1e-10)
    assert np.linalg.norm(solution.coef - expected.coef) <= 2e-10 / 1e-3
    assert len(passes) <= (100 if misleading else 15)


def test_errors_of_others_are_not_quoted():
    def fail(labels):
        raise KeyError("a private value")

    with pytest.raises(InvalidInput) as caught:
        as_rows(Unlucky(tables(), 200), Targets((fail,)), Bounds())
    assert "private" not in str(caught.value)
    assert "KeyError" in str(caught.value)
    assert caught.value.__context__ is None


class Unlucky(Careless):
    def gather(self, work):
        return work.part(0, [self.tables[0]])


def test_merging_keeps_the_fault():
    fault, fine = Gathered(fault=(2, "something")), Gathered({1: Seen(3, 1, 5)})
    assert fault.merge(fine).fault == fine.merge(fault).fault == (2, "something")


def test_adding_up_again_gives_the_same():
    """What Dask holds in memory is handed to a task again if its first try failed half-way."""
    work = Work(careless().preparation(Targets((signs,))), _Build(), _Task())
    parts = [work.part(number, [table]) for number, table in enumerate(tables())]
    once = parts[0].merge(parts[1]).merge(parts[2])
    again = parts[0].merge(parts[1]).merge(parts[2])
    assert once.values == again.values
    assert once.seen == again.seen


def test_checksums_tell_numbers_places_and_kinds_apart():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40.0)
    dense = {checksum(X, y, 0), checksum(X, y, 1), checksum(X[::-1], y, 0), checksum(X, y[::-1], 0)}
    assert len(dense) == 4
    assert len({checksum(sparse.csr_array(X * (X > 0)), y, 0), checksum(sparse.csr_array(X * (X < 0)), y, 0)}) == 2
    for row, column in np.ndindex(*X.shape):
        other = X.copy()
        other[row, column] = np.nextafter(other[row, column], 10)
        dense.add(checksum(other, y, 0))
    assert len(dense) == 4 + X.size
    single = X.astype(np.float32)[:3, :1]
    assert checksum(single, y, 0) != checksum(-single, y, 0)


# ---------------------------------------------------------------------------------------------------------- files


@pytest.fixture
def folder(tmp_path):
    return write_parquet(make_table(9000, 3), "label", tmp_path / "table")


def opened(folder, **options):
    return ParquetRows(folder, **{"target": "label", "rows": 9000} | options)


def test_files_are_read_in_the_order_of_their_names(folder):
    assert [path.name for path in opened(folder)._files] == [f"part-{k}.parquet" for k in range(3)]
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-0.parquet").write_text("half a file of another program")
    assert len(opened(folder)._files) == 3


def test_folders_of_other_programs_are_understood(folder, tmp_path):
    odd = tmp_path / "odd"
    shutil.copytree(folder, odd / "january.parquet")
    shutil.copytree(folder, odd / "_temporary")
    assert len(opened(odd)._files) == 3
    shutil.copytree(folder, tmp_path / "hive" / "year=2024")
    with pytest.raises(InvalidInput, match="year=2024 holds a column in its name"):
        opened(tmp_path / "hive")


def test_columns_may_be_chosen_and_put_in_order(folder):
    table = make_table(9000, 3)
    chosen = model(random_state=1).fit(opened(folder, columns=["c2", "c0"]))
    plain = model(random_state=1).fit(table.X[:, [2, 0]], table.targets["label"])
    np.testing.assert_allclose(chosen.coef_, plain.coef_, rtol=1e-9)
    assert chosen.feature_names_in_.tolist() == ["c2", "c0"]


def test_a_copy_of_a_file_is_not_silently_counted(folder):
    shutil.copy(folder / "part-0.parquet", folder / "part-0-copy.parquet")
    with pytest.raises(InvalidInput, match=r"rows, and 9,000 were declared; is a file missing, or there twice"):
        opened(folder)
    with pytest.raises(InvalidInput, match="named twice"):
        opened([folder / "part-0.parquet", folder / ".." / folder.name / "part-0.parquet"])


@pytest.mark.parametrize("way", ["folder", "files", "subfolder"])
def test_a_file_with_two_names_is_not_counted_twice(folder, way):
    """Neither by a hard link, declared or not: the number of rows says nothing where it was counted with both."""
    name = "part-0-too.parquet"
    if way == "subfolder":
        (folder / "more").mkdir()
        name = f"more/{name}"
    (folder / name).hardlink_to(folder / "part-0.parquet")
    named = [folder / "part-0.parquet", folder / name] if way == "files" else folder
    rows = sum(parquet.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
    with pytest.raises(InvalidInput, match=r"part-0\S* and part-0\S* are one file with two names \(a hard link\)"):
        ParquetRows(named, target="label", rows=rows)
    (folder / name).unlink()
    (folder / "part-3.parquet").symlink_to(folder / "part-0.parquet")
    with pytest.raises(InvalidInput, match=r"part-0\.parquet is named twice"):
        ParquetRows(folder, target="label", rows=rows)


@pytest.mark.parametrize(
    ("drift", "reason"),
    [
        (lambda frame: frame.drop(columns="c1"), r"part-2.parquet has 0 columns called 'c1'"),
        (lambda frame: frame.astype({"c1": "float32"}), r"part-2.parquet: column 'c1' is of type float"),
        (lambda frame: frame.astype({"c1": "str"}), r"part-2.parquet: column 'c1' is of type"),
    ],
)
def test_files_that_differ_in_their_columns_are_named(folder, drift, reason):
    drift(pd.read_parquet(folder / "part-2.parquet")).to_parquet(folder / "part-2.parquet")
    with pytest.raises(InvalidInput, match=reason):
        opened(folder)


def test_features_that_are_texts_are_refused(folder):
    for file in folder.iterdir():
        pd.read_parquet(file).astype({"c1": "str"}).to_parquet(file)
    with pytest.raises(InvalidInput, match=r"column 'c1' does not hold numbers"):
        model().fit(opened(folder))


def _damage_a_row_group(file):
    """Overwrite the data pages of the last row group; footer and lengths stay as they are."""
    footer = parquet.read_metadata(file)
    column = footer.row_group(footer.num_row_groups - 1).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    file.write_bytes(bytes(content))


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budget.db", dataset="people", epsilon=5.0, delta=1e-4)


def test_a_damaged_row_group_is_found_before_the_debit(folder, ledger):
    _damage_a_row_group(folder / "part-1.parquet")
    rows = opened(folder)  # the footers say nothing of it
    with pytest.raises(InvalidInput, match=r"^part-1.parquet cannot be read as parquet"):
        model(ledger=ledger).fit(rows)
    assert not ledger.history()


def test_a_missing_file_is_found_before_the_debit(folder, ledger):
    rows = opened(folder)
    (folder / "part-1.parquet").unlink()
    with pytest.raises(InvalidInput, match=r"^part-1.parquet is not there any more"):
        model(ledger=ledger).fit(rows)
    assert not ledger.history()
    with pytest.raises(InvalidInput, match="there is no file"):
        opened(folder / "part-1.parquet")


@pytest.mark.parametrize("harm", ["vanishes", "changes"])
def test_a_file_that_is_harmed_after_the_debit_leaves_a_debit_that_is_not_delivered(folder, ledger, harm):
    file = folder / "part-1.parquet"
    passes = []

    class Harmed(ParquetRows):
        def gather(self, work):
            passes.append(work)
            if len(passes) == 2:  # the first was the check
                if harm == "vanishes":
                    file.unlink()
                else:
                    frame = pd.read_parquet(file)
                    frame.iloc[0, 0] += 1
                    frame.to_parquet(file, row_group_size=3000)
            return super().gather(work)

    fit = model(ledger=ledger)
    with pytest.raises((Unreadable, StateError), match=r"part-1.parquet"):
        fit.fit(Harmed(folder, target="label", rows=9000))
    assert not hasattr(fit, "coef_")
    (entry,) = ledger.history()
    assert entry["status"] == "spent, not delivered"


def test_rows_with_nothing_in_them_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"no \.parquet file"):
        ParquetRows(tmp_path, target="y", rows=1)
    pd.DataFrame({"y": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match="at least one column besides its target"):
        ParquetRows(tmp_path, target="y", rows=1)


def test_a_table_of_one_class_only_and_of_one_row(tmp_path):
    pd.DataFrame({"x": [0.5], "y": [1]}).to_parquet(tmp_path / "a.parquet")
    rows = ParquetRows(tmp_path, target="y", rows=1)
    found = LogisticRegression(classes=[0, 1], data_norm=1.0).fit(rows)
    assert np.isfinite(found.coef_).all()


def test_work_can_travel(some_table):
    work = Work(Careless(tables(), 200).preparation(Targets((signs,))), _Build(), _Task())
    again = pickle.loads(pickle.dumps(work))
    assert again.part(3, [tables()[0]]).values[0] == work.part(3, [tables()[0]]).values[0]


class _Build:
    def __call__(self, X, target):
        return X


class _Task:
    def __call__(self, rows):
        return [np.asarray(rows.sum())]
