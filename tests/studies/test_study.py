"""What all studies share: settings by name, reports that can be compared, the gallery, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

import epsilearn
from epsilearn import plots
from epsilearn.cli import _run
from epsilearn.errors import InvalidInput
from epsilearn.studies import catalogue, gallery, study
from epsilearn.studies.data import MissingData
from epsilearn.studies.study import Drawing, Result, Sheet, each, unwatched

NASTY = 'a <b> & "c"'


@dataclass(frozen=True)
class Settings:
    size: int = 3
    share: float = 0.5
    places: tuple[float, ...] = (1.0, 2.0)
    counts: tuple[int, ...] = (1,)

    @classmethod
    def quick(cls):
        return cls(size=1)


def drawing(words: str = "a line") -> Drawing:
    figure, (panel,) = plots.new_figure(3, 2)
    plots.band(panel, [1, 2, 3], [1.0, 2.0, 3.0], [0.1, 0.1, 0.1], color=plots.BLUE, label="line")
    panel.legend()
    return Drawing(figure, words)


def result(settings=None, progress=unwatched) -> Result:
    """Stands for a study."""
    values = list(progress(range(3), 3))
    sheet = Sheet(f"title {NASTY}", ("name", "one", "two"), [(NASTY, "1.0"), ("b", "2.0", "3.0")])
    measured = {"values": values, "none": None, "far": float("inf"), "pair": (1.0, 2.0)}
    return Result(
        settings or Settings(), {"data": 7}, measured, {"picture": drawing(NASTY)}, [sheet], [f"seen {NASTY}"]
    )


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; give back its exit code, output and complaints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def go(*words: str) -> tuple[int, str, str]:
        code = _run(list(words), as_json="--json" in words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


@pytest.fixture
def fakes(monkeypatch):
    """Every study is a small one; those on CoverType's data have none."""

    def missing(settings, progress):
        raise MissingData("CoverType cannot be loaded <here>")

    def module(name: str):
        return SimpleNamespace(Settings=Settings, run=missing if name == "kernel-covertype" else result)

    monkeypatch.setattr(catalogue, "module", module)


# ---------------------------------------------------------------- names and settings


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_study_says_what_it_is_about(name):
    about = catalogue.describe(name)
    assert 20 < len(about.title) < 100
    assert not about.title.endswith(".")
    assert len(about.shows) > 100
    assert len(about.seen) > 100


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_quick_settings_differ_and_are_of_the_same_kind(name):
    full, quick = catalogue.settings(name), catalogue.settings(name, quick=True)
    assert type(full) is type(quick)
    assert full != quick
    assert hash(full) != hash(quick)


def test_settings_are_read_by_their_types():
    given = catalogue.changed(Settings(), ["size=1e3", "share=0.25", "places=0.5,1e-2", "counts=3,4"])
    assert given == Settings(1000, 0.25, (0.5, 0.01), (3, 4))
    assert [type(count) for count in (given.size, *given.counts)] == [int] * 3
    assert catalogue.changed(Settings(), []) == Settings()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("size=2.5", "size must be a whole number, got '2.5'"), ("size=x", "size must be a whole number, got 'x'"),
        ("size=inf", "size must be a whole number"), ("share=", "share must be a number, got ''"),
        ("places=1,x", "places must be a number, got 'x'"), ("size", "a setting must be key=value, got 'size'"),
        ("sise=2", "the setting must be one of 'size', 'share', 'places', 'counts', got 'sise'"),
    ],
)  # fmt: skip
def test_wrong_changes_are_refused(change, words):
    with pytest.raises(InvalidInput, match=words):
        catalogue.changed(Settings(), [change])


def test_a_study_checks_what_was_changed():
    with pytest.raises(InvalidInput, match="draws must be at least 1"):
        catalogue.settings("figure1", changes=["draws=0"])


@pytest.mark.parametrize("ask", [catalogue.describe, catalogue.module, catalogue.settings])
def test_unknown_studies_are_refused(ask):
    with pytest.raises(InvalidInput, match=r"the study must be one of 'figure1', .* got 'figure9'"):
        ask("figure9")


# ---------------------------------------------------------------- reports


def test_tasks_come_back_in_order_and_are_counted():
    seen = []

    def progress(work, total):
        seen.append(total)
        return iter(work)

    assert each(lambda number: 2 * number, range(5), progress) == [0, 2, 4, 6, 8]
    assert seen == [5]


def test_a_report_says_what_it_was_made_with():
    report = study.document("figure1", result())
    assert report["settings"] == {"size": 3, "share": 0.5, "places": [1.0, 2.0], "counts": [1]}
    assert report["seeds"] == {"data": 7}
    assert report["versions"]["epsilearn"] == epsilearn.__version__
    assert set(report["versions"]) == {"python", "numpy", "scipy", "scikit-learn", "epsilearn"}
    assert report["measured"] == {"values": [0, 1, 2], "none": None, "far": "infinity", "pair": [1.0, 2.0]}


def test_files_are_whole_and_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        written = study.write("kernel-answers", result(), tmp_path / "new" / name)
        assert [path.name for path in written] == ["kernel_answers.json", "picture.png", "picture.svg"]
    for path in written:
        assert path.read_bytes() == (tmp_path / "new" / "one" / path.name).read_bytes()
    # Nothing is left over, and nothing tells when it was made.
    assert sorted(p.name for p in (tmp_path / "new" / "two").iterdir()) == sorted(path.name for path in written)
    assert "<dc:date>" not in (tmp_path / "new" / "two" / "picture.svg").read_text()


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_text("old")
    one = drawing()
    monkeypatch.setattr(one.figure, "savefig", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        plots.save(one.figure, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_band_on_a_logarithmic_axis_stays_above_zero():
    _, (panel,) = plots.new_figure(3, 2)
    panel.set_yscale("log")
    plots.band(panel, [1, 2], [1.0, 2.0], [5.0, 0.5], color=plots.BLUE)
    heights = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(1e-3)
    assert heights.max() == pytest.approx(6.0)


# ---------------------------------------------------------------- the gallery


class Reader(HTMLParser):
    """Checks that every tag is closed, and keeps texts and attributes."""

    VOID = frozenset({"meta", "img"})

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_the_gallery_escapes_everything_and_needs_no_network():
    entries = [gallery.Entry("figure1", result()), gallery.Entry("errata", reason=f"of {NASTY}")]
    reader = read(gallery.page(entries))
    text = "".join(reader.texts)
    for shown in (f"seen {NASTY}", f"title {NASTY}", f"Skipped, because of {NASTY}."):
        assert shown in text
    (image,) = (attributes for tag, attributes in reader.tags if tag == "img")
    assert (image["src"], image["alt"]) == ("picture.svg", NASTY)
    assert not any(tag == "b" for tag, _ in reader.tags)
    addresses = [value for _, attributes in reader.tags for key, value in attributes.items() if key in ("src", "href")]
    assert addresses == ["#figure1", "#errata", "picture.png", "picture.svg"]
    assert "http" not in gallery.page(entries)


def test_the_gallery_tells_what_was_run():
    reader = read(gallery.page([gallery.Entry("figure1", result(Settings(size=41)))]))
    text = "".join(reader.texts)
    about = catalogue.describe("figure1")
    assert all(part in text for part in (about.title, about.shows, about.seen, "41", "seed of data"))
    # A short row is filled up, so that its cells stand under their heads.
    assert [tag for tag, _ in reader.tags].count("td") == 2 * 3


# ---------------------------------------------------------------- the command


def test_the_studies_are_listed(run):
    code, out, _ = run("study")
    assert code == 0
    assert all(name in out for name in (*catalogue.NAMES, "all"))
    code, out, _ = run("study", "--json")
    assert json.loads(out) == {name: catalogue.describe(name).title for name in catalogue.NAMES}


def test_a_study_is_run_by_its_name(run, fakes, tmp_path):
    code, out, err = run("study", "figure1", "--set", "size=9", "-o", "here/there")
    assert (code, err) == (0, "")
    assert "2.0" in out
    assert f"seen {NASTY}" in out
    report = json.loads((tmp_path / "here" / "there" / "figure1.json").read_text())
    assert report["settings"]["size"] == 9
    assert (tmp_path / "here" / "there" / "picture.svg").exists()
    assert not (tmp_path / "here" / "there" / "index.html").exists()


def test_a_quick_study_as_json(run, fakes):
    code, out, _ = run("study", "errata", "--quick", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["settings"]["size"] == 1
    assert report["measured"]["far"] == "infinity"
    assert report["files"] == [f"studies-output/{name}" for name in ("errata.json", "picture.png", "picture.svg")]


def test_all_studies_run_although_one_has_no_data(run, fakes, tmp_path):
    code, out, _ = run("study", "all", "--quick")
    assert code == 0
    assert "kernel-covertype: skipped, because CoverType cannot be loaded <here>" in out
    page = (tmp_path / "studies-output" / "index.html").read_text()
    assert "Skipped, because CoverType cannot be loaded &lt;here&gt;." in page
    written = {path.stem for path in (tmp_path / "studies-output").glob("*.json")}
    assert written == {name.replace("-", "_") for name in catalogue.NAMES} - {"kernel_covertype"}
    assert all(f'id="{name}"' in page for name in catalogue.NAMES)


def test_all_studies_as_json(run, fakes, monkeypatch):
    monkeypatch.setattr(study, "write", lambda *_: [])
    code, out, _ = run("study", "all", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["gallery"] == "studies-output/index.html"
    assert [e["study"] for e in report["studies"] if "skipped" in e] == ["kernel-covertype"]
    assert [e["seen"] for e in report["studies"] if "seen" in e] == [[f"seen {NASTY}"]] * (len(catalogue.NAMES) - 1)


def test_alone_a_study_without_data_is_an_error(run, fakes):
    code, out, err = run("study", "kernel-covertype")
    assert (code, out) == (2, "")
    assert err.startswith("error: CoverType cannot be loaded")


def test_a_full_disk_is_an_error_in_one_line(run, fakes, monkeypatch):
    def full(name, result, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(study, "write", full)
    assert run("study", "figure1") == (
        2,
        "",
        "error: cannot write to the folder studies-output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("figure9",), "the study must be one of 'figure1', 'learning-curves'"),
        (("figure1", "--set", "size=x"), "size must be a whole number"),
        (("all", "--set", "size=1"), "--set changes one study; name it instead of 'all'"),
        (("figure1", "-o", "taken"), "cannot write to the folder taken"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_run(run, fakes, tmp_path, monkeypatch, words, complaint):
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(study, "write", lambda *_: pytest.fail("ran"))
    code, out, err = run("study", *words)
    assert (code, out) == (2, "")
    assert complaint in err


def test_the_real_program_runs_in_several_processes(tmp_path):
    """One real study, whose tasks go to other processes and whose data come back."""
    words = ["study", "lecture-sum", "--quick", "--set", "draws=1500", "--set", "epsilons=0.1", "-o", "report"]
    done = subprocess.run(
        [sys.executable, "-m", "epsilearn.cli", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    names = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert names == ["lecture_sum.json", "lecture_sum.png", "lecture_sum.svg"]
    report = json.loads((tmp_path / "report" / "lecture_sum.json").read_text())
    assert (report["settings"]["draws"], len(report["measured"]["errors"])) == (1500, 1)


def test_help_stays_fast():
    """What a study needs to run is imported when it runs."""
    heavy = ("sklearn", "matplotlib", "joblib", "numba")
    code = f"import sys, epsilearn.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_settings_can_all_be_set_by_text():
    """Whole numbers, numbers, and tuples of either: nothing else could be read back from key=value."""
    for name in catalogue.NAMES:
        given = catalogue.settings(name)
        texts = {f.name: getattr(given, f.name) for f in fields(given)}
        changes = [
            f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for key, value in texts.items()
        ]
        assert catalogue.changed(given, changes) == given
