"""The files that commands write their scores to, followed while they are written."""

import csv
import io
import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import event_files
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from protein.run import score_files
from protein.run.reports import Commas, Said
from protein.run.score_files import EventReader, TableReader

Point = tuple[int | None, float | None]


def table_reader(
    folder: Path, file: str = "metrics.csv", column: str = "acc", steps: str = "step", *, begins: bool = True
) -> TableReader:
    return TableReader(file, column, steps, folder, begins=begins, commas=Commas(), remark=lambda *_: None)


def event_reader(folder: Path, tag: str = "acc", *, begins: bool = True) -> EventReader:
    return EventReader(tag, ".", folder, begins=begins, remark=lambda *_: None)


def points(said: list[Said]) -> list[Point]:
    return [(one.steps, one.score) for one in said]


def read(text: str | bytes, folder: Path, file: str = "metrics.csv", **settings: Any) -> list[Point]:
    """Returns what is told of a whole file. What is no number has the score None."""
    reader = table_reader(folder, file, **settings)
    (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)
    found = points(reader.read(complete=True))
    assert reader.wrong() == ""
    return [(steps, score if score == score else None) for steps, score in found]


@pytest.mark.parametrize(
    "text",
    [
        "step,acc\n1,0.5\n2,0.75",
        "acc,step\r\n0.5,1\r\n0.75,2\r\n",
        "\ufeffstep\tacc\n1\t0.5\n2\t0.75\n",
        "step;acc\n1;0,5\n2;0,75\n",
        "# metrics: loss, acc\nstep,loss,acc\n1,,0.5\n2,,0.75\n",
        "step,acc\n0,NA\n1,0.5\n2,0.75\n3,NA\n4,<NA>\n5,None\n6,--\n",
        "| step | acc |\n|---|:-:|\n| 1 | 0.5 |\n| 2 | 0.75 |\n",
        '{"step": 1, "acc": 0.5}\n{"step": 2, "acc": 0.75}\n{"step": 3, "acc": null}\n',
        '[{"step": 1, "acc": 0.5},\n {"step": 2, "acc": 0.75}]\n',
        '[\n  {\n    "step": 1,\n    "acc": 0.5\n  },\n  {\n    "step": 2,\n    "acc": 0.75\n  }\n]',
        "step;acc\n1;1,234\n1;0.5\n2;0.75\n",
        "loss\tstep\tacc\n\t1\t0.5\n\t2\t0.75\n",
        "step|acc\n1|0.5\n2|0.75\n",
        "  step   acc\n     1   0.5\n     2  0.75\n",
        "# made by hand\n# step acc\n1 0.5\n2 0.75\n",  # numpy.savetxt
        "# the best acc of all\nstep,acc\n1,0.5\n2,0.75\n",
        '#{"acc": 9}\nstep,acc\n1,0.5\n2,0.75\n',  # Stable-Baselines3's monitor
        '"step" "acc"\n"1" 1 0.5\n"2" 2 0.75\n',  # R: a name of each row, and none of these names
        '"","step","acc"\n"1",1,0.5\n"2",2,0.75\n',
        '"step","acc","note"\n1,"0,5","a ""b""\nc"\n2,"0,75","d"\n',
        "step,acc\n1,0.5\nstep,acc\n2,0.75\n",  # as appended at each start
        "step,acc\n1,0.5\n7,0.4step,acc\n2,0.75\n",  # behind half a row
        "step,acc\n1,0.5\nacc,loss,step\n0.75,3,2\n",
        "step,acc,\n1,0.5,\n\n2,0.75,\n3,,\n",
        "step,acc\n1,0.5\n2,0.75\n3\n",
        '{"step": 1, "acc": 0.5}\n{"step": 2, "loss": 3}\n\n{"a\n{"step": 2, "acc": [0.75]}\n',
        '\ufeff{"acc": "tensor(0.5)", "step": 1}\n{"acc": 0.75, "step": 2}',
        "step,acc\n1,tensor(0.5)\n2,75e-2\n",
    ],
)
def test_a_table_is_read_with_the_delimiter_of_its_header(tmp_path: Path, text: str) -> None:
    assert [one for one in read(text, tmp_path) if one != (1, None)] == [(1, 0.5), (2, 0.75)]
    if '"acc": [' not in text:
        assert [one for one in read(text.encode("utf-16"), tmp_path, "b.csv") if one[1]] == [(1, 0.5), (2, 0.75)]


@pytest.mark.parametrize(
    ("text", "column", "found"),
    [
        ("acc\n0,5\n1,25\n", "acc", [(None, 0.5), (None, 1.25)]),  # one column has no delimiter
        ("step,acc\n1,0,5\n", "acc", [(None, None)]),  # decimal commas between commas
        ("step,acc\n1,0.5\n4,0.4,5,0.5\n", "acc", [(1, 0.5), (None, None)]),  # half a row, and the next one
        ("step\tacc\n1\t0.5\n4\t0.4\t0.5\n", "acc", [(1, 0.5), (None, None)]),
        ("step;acc\n1;0,2;0,25\n2;0,5\n", "acc", [(None, None), (2, 0.5)]),
        ("step;acc\n1;0,2;0,25\n", "acc", []),
        ("step,acc\n1,0.5s\n2,nan\n3,n/a\n", "acc", [(1, None), (2, None)]),
        ('{"step": 1, "eval": {"acc": 0.5}}\n{"step": 2, "eval.acc": 0.75}\n', "eval.acc", [(1, 0.5), (2, 0.75)]),
        ('{"step": "1,000", "eval/acc": 0.5}\n', "eval/acc", [(1000, 0.5)]),
        ("", "acc", []),
        ("step,acc\n", "acc", []),
        ("\0\0\0\n", "acc", []),
    ],
)
def test_what_may_be_two_numbers_is_none(tmp_path: Path, text: str, column: str, found: list[Point]) -> None:
    assert read(text, tmp_path, column=column, steps="step" if "step" in text else "") == found


def test_points_between_semicolons_are_decimal_where_no_comma_is_one(tmp_path: Path) -> None:
    assert read("step;acc\n1;2.303\n2;1.205\n", tmp_path) == [(1, 2.303), (2, 1.205)]


def test_one_object_over_several_lines_is_a_file_of_scores(tmp_path: Path) -> None:
    reader = table_reader(tmp_path, "all_results.json")
    (tmp_path / "all_results.json").write_text('{\n  "acc": 0.5,\n')
    assert reader.read() == []
    (tmp_path / "all_results.json").write_text('{\n  "acc": 0.5,\n  "step": 3\n}')
    assert points(reader.read(complete=True)) == [(3, 0.5)]


def test_a_row_that_cannot_be_read_is_left_out_and_this_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    reader = TableReader(
        "a.csv", "acc", "step", tmp_path, begins=True, commas=Commas(), remark=lambda _, one: said.append(one)
    )
    (tmp_path / "a.csv").write_text(f"step,note,acc\n1,x,0.5\n2,{'x' * 200_000},0.75\n3,x,1\n")
    assert points(reader.read()) == [(1, 0.5), (3, 1.0)]
    reader.read(complete=True)
    assert said == ["wrote a row that is left out: field larger than field limit (131072)"]


def test_why_no_score_can_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = table_reader(tmp_path, "*.csv")
    (tmp_path / "a.csv").write_text("step,acc,acc\n1,2,3\n")
    assert reader.read() == [] and reader.wrong().endswith("a.csv has 2 columns 'acc'; give them names of their own")
    reader = table_reader(tmp_path, "c.csv", steps="epoch")
    (tmp_path / "c.csv").write_text("step,acc\n2,3\n")
    assert reader.read() == [] and "c.csv has no column 'epoch' for the steps; its columns: step, acc" in reader.wrong()
    monkeypatch.setattr(score_files, "MAX_FILE_BYTES", 100)
    reader = table_reader(tmp_path, "b.csv")
    (tmp_path / "b.csv").write_text("step,acc\n" + "1,0.5\n" * 20)
    assert reader.read() == [] and "b.csv is larger than 0 MiB, so no score is read from it" in reader.wrong()


def test_two_files_that_are_written_in_turn_are_no_curve(tmp_path: Path) -> None:
    reader = table_reader(tmp_path, "*.csv")
    for number, name in enumerate(("train.csv", "val.csv", "train.csv")):
        with (tmp_path / name).open("a") as file:
            file.write("step,acc\n1,0.5\n")
        os.utime(tmp_path / name, ns=(number, number))
        reader.read()
    assert "several files that match *.csv are written in turn" in reader.wrong()
    assert "train.csv" in reader.wrong() and "val.csv" in reader.wrong()


def test_the_newest_file_with_the_column_counts(tmp_path: Path) -> None:
    reader = table_reader(tmp_path, "**/*.csv")
    for number, (name, text) in enumerate(
        {"version_0": "step,acc\n1,0.5\n", "version_1": "step,acc\n2,0.75\n", "summary": "name\nmine\n"}.items()
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text(text)
        os.utime(tmp_path / name / "metrics.csv", ns=(number, number))
    assert points(reader.read(complete=True)) == [(2, 0.75)]
    assert "has no column" not in reader.missing()


def test_a_run_that_goes_on_is_followed_in_its_earlier_file_and_in_a_new_one(tmp_path: Path) -> None:
    """Programs write on, or begin a file or a folder at each start."""
    (tmp_path / "version_0").mkdir()
    old, new = tmp_path / "version_0" / "metrics.csv", tmp_path / "version_1" / "metrics.csv"
    old.write_text("step,acc\n1,0.1\n2,0.2\n")
    reader = table_reader(tmp_path, "**/*.csv", begins=False)
    assert (points(reader.read()), reader.rows_behind) == ([(1, 0.1), (2, 0.2)], 2)
    (tmp_path / "summary.csv").write_text("name\nmine\n")
    with old.open("a") as file:
        file.write("3,0.3\n")
    assert points(reader.read()) == [(3, 0.3)]
    reader = table_reader(tmp_path, "**/*.csv", begins=False)
    new.parent.mkdir()
    new.write_text("step,acc\n4,0.4\n")
    assert points(reader.read(complete=True)) == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert points(table_reader(tmp_path, "**/*.csv", begins=False).read(complete=True))[-1] == (4, 0.4)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("step,acc,gb,note\n1,0.5,3,a\n2,0.75,nan,b\n", [{"gb": 3.0}, {}]),
        # As Lightning writes: rows without a score count with the next one, and the last of them with the last.
        ("step,loss,acc\n1,0.9,\n1,,0.5\n2,0.8,\n", [{"loss": 0.9}, {"loss": 0.8}]),
        (
            '{"step": 1, "acc": 1, "run": {"gb": 3, "ok": true}, "name": "7"}\n{"step": 2, "gb": 4}',
            [{"run.gb": 3}, {"gb": 4}],
        ),
        ("step;acc;gb\n1;0,5;1,5\n", [{"gb": 1.5}]),
    ],
)
def test_other_numbers_of_a_row_are_metrics(tmp_path: Path, text: str, found: list[dict[str, float]]) -> None:
    reader = table_reader(tmp_path)
    (tmp_path / "metrics.csv").write_text(text)
    assert [dict(one.metrics) for one in reader.read(complete=True)] == found


def test_other_scalars_of_an_event_file_are_metrics(tmp_path: Path) -> None:
    reader = event_reader(tmp_path)
    for tag, step, value in (("gb", 1, 2), ("acc", 1, 0.5), ("gb", 2, 4), ("acc", 2, 0.75), ("loss", 2, 1)):
        event_files.write(tmp_path, "1.host", tag, [(step, value)])
    event_files.write(tmp_path / "other", "1.host", "gb", [(1, 9.0)])  # of another run
    said = reader.read(complete=True)
    assert [(one.steps, one.score, dict(one.metrics)) for one in said] == [
        (1, 0.5, {"gb": 2.0}),
        (2, 0.75, {"gb": 4.0}),
        (2, None, {"loss": 1.0}),
    ]


@pytest.mark.parametrize("rows", [["0.1", "0.2"], []])
def test_what_an_earlier_run_left_is_not_the_trials(tmp_path: Path, rows: list[str]) -> None:
    own, shared = tmp_path / "0", tmp_path / "shared.csv"
    own.mkdir()
    left = "\n".join(["acc", *rows]) + "\n"
    for path in (own / "metrics.csv", shared):
        path.write_text(left)
        reader = table_reader(own, str(path), steps="")
        assert reader.read(complete=True) == [] and reader.missing().endswith("as it was before the trial")
        path.write_text(left + "0.5\n")  # appended, or written anew with all rows
        assert points(reader.read()) == [(None, 0.5)]
        path.write_text(left)
        reader = table_reader(own, str(path), steps="")
        path.write_text("acc\n0.7\n")
        assert points(reader.read(complete=True)) == [(None, 0.7)]
    # Others' rows in a shared file are others' rows, also while it is written anew, and with another column.
    shared.write_text(left)
    reader = table_reader(own, str(shared), steps="")
    shared.write_text("acc\n0.1\n" if rows else "acc\n")
    assert reader.read() == []
    shared.write_text("".join(f"{row},x\n" for row in ["acc", *rows, "0.5"]))
    assert points(reader.read(complete=True)) == [(None, 0.5)]


class FollowedTable(RuleBasedStateMachine):
    """A program writes a table as programs do. The reader looks at it at any moment, and is killed at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.path = self.folder / "metrics.csv"
        self.rows: list[tuple[int, str]] = []  # of the file
        self.step, self.half, self.extra = 0, "", False
        self.ever: set[Point] = set()  # that any file ever had
        self.cut = 0  # bytes that half a row has
        self.lost: list[tuple[int, int]] = []  # where halves of rows lie whose writers were killed
        self.glued: set[Point] = set()  # the rows that were appended to them, in this run
        self.glued_before: set[Point] = set()  # and before, which nobody can tell from the halves any more
        self.told: list[Point] = []  # by this reader
        self.begins, self.base = True, ""  # what was there when the trial began
        self.left: set[Point] = set()  # which nobody can tell from the trial's, once it is written anew

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.finish_half()
            self.told += points(self.reader.read(complete=True))
            self.check()
        shutil.rmtree(self.folder)

    @initialize(
        delimiter=st.sampled_from([",", ";", "\t", " ", "json"]),
        has_steps=st.booleans(),
        is_flat=st.booleans(),
        left=st.integers(0, 3),
    )
    def begin(self, delimiter: str, has_steps: bool, is_flat: bool, left: int) -> None:
        self.delimiter, self.has_steps, self.is_flat = delimiter, has_steps, is_flat
        if left:
            self.new_rows(left)
            self.write_anew()
            self.base = self.path.read_text()
            self.left = {self.point(row) for row in self.rows}
        self.open_reader(begins=True)

    def open_reader(self, *, begins: bool) -> None:
        self.begins, self.told = begins, []
        self.reader = table_reader(self.folder, steps="step" if self.has_steps else "", begins=begins)

    # What the file looks like.

    def new_rows(self, count: int) -> list[tuple[int, str]]:
        """Returns rows that were never written before. Flat ones have few different scores."""
        made: list[tuple[int, str]] = []
        for _ in range(count):
            self.step += 1
            made.append((self.step, f"{(self.step % 3 if self.is_flat else self.step) / 8:.3f}"))
        self.rows += made
        self.ever |= {self.point(row) for row in made}
        return made

    def point(self, row: tuple[int, str]) -> Point:
        return (row[0] if self.has_steps else None), float(row[1])

    def line(self, step: int | str, score: str) -> str:
        if self.delimiter == "json":
            return json.dumps({"step": step, "acc": float(score), **({"loss": 1} if self.extra else {})}) + "\n"
        score = score.replace(".", ",") if self.delimiter == ";" else score
        return (
            self.delimiter.join([*(["loss" if step == "step" else "1"] if self.extra else []), str(step), score]) + "\n"
        )

    @property
    def header(self) -> str:
        return "" if self.delimiter == "json" else self.line("step", "acc")

    def write_anew(self, path: Path | None = None, rows: int | None = None) -> None:
        self.half, self.lost = "", []
        (path or self.path).write_text(self.header + "".join(self.line(*row) for row in self.rows[:rows]))

    def append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def note_glue(self, row: tuple[int, str]) -> None:
        if self.lost and self.lost[-1][1] == self.path.stat().st_size:
            self.glued.add(self.point(row))

    def finish_half(self) -> None:
        if self.half:
            self.append(self.half)
            self.half = ""

    # What the program does.

    @rule(count=st.integers(1, 3))
    def append_rows(self, count: int) -> None:
        self.finish_half()
        if not self.path.exists():
            self.rows = []
            self.write_anew()
        rows = self.new_rows(count)
        self.note_glue(rows[0])
        self.append("".join(self.line(*row) for row in rows))

    @rule(share=st.floats(0.1, 0.95))
    def append_half_a_row(self, share: float) -> None:
        self.finish_half()
        if not self.path.exists():
            self.rows = []
            self.write_anew()
        (row,) = self.new_rows(1)
        self.note_glue(row)
        text = self.line(*row)
        self.cut = max(1, int(share * len(text)))
        self.append(text[: self.cut])
        self.half = text[self.cut :]

    @precondition(lambda self: self.path.exists())
    @rule()
    def repeat_the_header(self) -> None:
        self.finish_half()
        self.append(self.header)

    @rule(is_seen_half_way=st.booleans(), replaces=st.booleans(), count=st.integers(0, 2))
    def write_all_anew_with_another_column(self, is_seen_half_way: bool, replaces: bool, count: int) -> None:
        self.extra = not self.extra
        self.new_rows(count)
        if replaces:
            self.write_anew(self.folder / "new")
            (self.folder / "new").replace(self.path)
        else:
            if is_seen_half_way:
                self.poll()
                self.write_anew(rows=len(self.rows) // 2)
                self.poll()
            self.write_anew()

    @rule(replaces=st.booleans(), count=st.integers(0, 4))
    def open_anew_with_later_rows(self, replaces: bool, count: int) -> None:
        self.rows = []
        self.new_rows(count)
        if replaces:
            self.write_anew(self.folder / "new")
            (self.folder / "new").replace(self.path)
        else:
            self.write_anew()

    @precondition(lambda self: len(self.rows) > 1)
    @rule(data=st.data())
    def cut_back_to_a_checkpoint(self, data: st.DataObject) -> None:
        self.rows = self.rows[: data.draw(st.integers(1, len(self.rows) - 1))]
        self.write_anew()

    @precondition(lambda self: self.path.exists())
    @rule()
    def rotate(self) -> None:
        self.path.replace(self.folder / "metrics.csv.1")
        self.rows = []
        self.write_anew()

    # What the sweep does.

    @rule()
    def poll(self) -> None:
        self.told += points(self.reader.read())

    @rule()
    def kill_and_resume(self) -> None:
        self.base, self.left = "", set()
        self.glued_before |= self.glued
        self.glued = set()
        # A cut in the steps makes other steps of the next row, which a later run cannot see any more. First rows may
        # have names that the header does not have.
        if (
            self.half
            and len(self.rows) > 1
            and (self.delimiter == "json" or self.cut > self.line(*self.rows[-1]).find(self.delimiter))
        ):
            size = self.path.stat().st_size
            self.lost.append((size - self.cut, size))
            self.half = ""
            self.rows.pop()
        else:
            self.finish_half()
        self.open_reader(begins=False)

    # What must hold.

    def plain(self) -> list[Point]:
        """Returns what a plain reader finds in the final file, without what was there when the trial began."""
        text = self.path.read_text() if self.path.exists() else ""
        for begin, end in reversed(self.lost):
            text = text[:begin] + text[end:]
        if self.begins and self.base and text.startswith(self.base):
            text = self.header + text.removeprefix(self.base)
        if self.delimiter == "json":
            found: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        else:
            lines = [line for line in text.splitlines(keepends=True) if "acc" not in line or line == self.header]
            table = "".join(lines[:1] + [line for line in lines[1:] if line != self.header])
            found = list(csv.DictReader(io.StringIO(table), delimiter=self.delimiter))
        return [
            (int(row["step"]) if self.has_steps else None, float(str(row["acc"]).replace(",", "."))) for row in found
        ]

    def check(self) -> None:
        told, final = [one for one in self.told if one[1] == one[1]], self.plain()
        assert self.reader.wrong() == ""
        assert set(told) <= self.ever, "half a row was taken for a whole one"
        unknown = self.left | self.glued_before
        if final and final[-1] not in unknown:
            assert told and told[-1] == final[-1], "the last score is not that of the final file"
            assert set(final) - unknown <= set(told)
        if self.has_steps:
            assert len(set(told[:-1])) == len(told[:-1]), "a row was told twice"  # the last one may be, at the end


FollowedTable.TestCase.settings = settings(max_examples=30, stateful_step_count=10, deadline=None)
TestFollowedTable = FollowedTable.TestCase


def told(folder: Path, tag: str = "acc") -> list[Point]:
    """Returns what is told of a run that writes all that is in a folder; nothing where that is refused."""
    with tempfile.TemporaryDirectory() as copy:
        reader = event_reader(Path(copy), tag)
        shutil.copytree(folder, copy, dirs_exist_ok=True, symlinks=True)
        return points(reader.read(complete=True))


def test_the_folders_of_the_real_library_are_told_apart(tmp_path: Path) -> None:
    """`add_scalars` and `add_hparams` write to folders of their own, with the tag of the others."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    of_curves, of_hparams = event_reader(tmp_path, "loss"), event_reader(tmp_path, "acc")
    with tensorboard.SummaryWriter(str(tmp_path / "run")) as writer:
        for step in (1, 2):
            writer.add_scalar("acc", step / 8, step, new_style=step == 2)
            writer.add_scalars("loss", {"train": step / 4, "val": step / 2}, step)
        writer.add_hparams({"lr": 0.1}, {"acc": 0.5, "hparam/best": 0.75})
    assert of_curves.read(complete=True) == []
    listed = "run/loss_train, run/loss_val; name one of them, as in --score-tensorboard run/loss_val:loss"
    assert of_curves.wrong() == f"the tag 'loss' is in several folders: {listed}"
    assert of_hparams.read(complete=True) == []
    assert "in several folders: run, run/" in of_hparams.wrong()
    assert of_hparams.wrong().endswith("as in --score-tensorboard run:acc")
    assert told(tmp_path, "loss_val:loss") == [(1, 0.5), (2, 1.0)]
    assert told(tmp_path, "run:acc") == [(1, 0.125), (2, 0.25)]
    assert told(tmp_path, "hparam/best") == [(0, 0.75)]
    assert "; tags: run/" in event_reader(tmp_path, "val:reward", begins=False).missing()


def test_a_folder_is_named_with_the_tag(tmp_path: Path) -> None:
    """As Keras writes: `train` and `validation` have the same tags."""
    for number, name in enumerate(("train", "validation")):
        event_files.write(tmp_path / "logs" / name, "1.host", "epoch: loss", [(1, number), (2, number + 0.5)])
    assert told(tmp_path, "validation:epoch: loss") == told(tmp_path, "logs/valid*:epoch: loss") == [(1, 1.0), (2, 1.5)]
    assert told(tmp_path, "epoch: loss") == told(tmp_path, "logs:epoch: loss") == []
    event_files.write(tmp_path, "1.host", "epoch: loss", [(1, 9.0)])
    assert told(tmp_path, ".:epoch: loss") == [(1, 9.0)]


def test_a_link_to_an_event_file_is_no_other_one(tmp_path: Path) -> None:
    """As W&B links them into its own folder (`sync_tensorboard`)."""
    event_files.write(tmp_path / "zruns", "1.host", "acc", [(1, 0.5)])
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "events.out.tfevents.1.host").symlink_to("../zruns/events.out.tfevents.1.host")
    assert told(tmp_path) == told(tmp_path, "zruns:acc") == [(1, 0.5)]


def test_events_of_several_files_are_told_in_the_order_of_time(tmp_path: Path) -> None:
    event_files.write(tmp_path, "2.host", "acc", [(1, 0.5), (4, 2.0)], at=0.0)
    event_files.write(tmp_path, "1.host", "acc", [(2, 1.0), (3, 1.5)], at=0.5)
    assert [score for _, score in told(tmp_path)] == [0.5, 1.0, 2.0, 1.5]


def test_a_run_that_goes_on_in_another_folder_is_followed_there(tmp_path: Path) -> None:
    """As Stable-Baselines3 does: `PPO_1`, and `PPO_2` after a resume. Its clock may have been set back."""
    event_files.write(tmp_path / "PPO_1", "1.host", "acc", [(1, 0.125), (2, 0.25)], at=100.0)
    for tag in ("acc", "PPO_*:acc"):
        reader = event_reader(tmp_path, tag, begins=False)
        assert points(reader.read()) == [(1, 0.125), (2, 0.25)]
        event_files.write(tmp_path / "PPO_2", "2.host", "acc", [(3, 0.375)], at=50.0)
        assert points(reader.read(complete=True)) == [(3, 0.375)]
        assert reader.wrong() == ""
        shutil.rmtree(tmp_path / "PPO_2")
    reader = event_reader(tmp_path)  # one that begins anew
    assert reader.read(complete=True) == [] and "no event file" in reader.missing()
    for number, name in enumerate(("PPO_2", "PPO_3")):  # two phases of one run: which one is the score of?
        event_files.write(tmp_path / name, "3.host", "acc", [(1, number)])
    assert reader.read() == [] and "PPO_2, PPO_3" in reader.wrong()


def test_event_files_are_read_to_where_they_make_sense(tmp_path: Path) -> None:
    said: list[str] = []
    reader = EventReader("acc", ".", tmp_path, begins=True, remark=lambda _, line: said.append(line))
    path = tmp_path / "events.out.tfevents.1.host"
    event_files.write(tmp_path, "1.host", "acc", [(1, 0.5)])
    with path.open("ab") as file:
        file.write(event_files.record("acc", 2, 0.75, 1.0)[:20])
    assert points(reader.read()) == [(1, 0.5)]
    assert points(reader.read()) == []
    with path.open("ab") as file:
        file.write(event_files.record("acc", 2, 0.75, 1.0)[20:] + b"\xff" * 40)
    assert points(reader.read()) == [(2, 0.75)]
    assert points(reader.read(complete=True)) == []
    assert len(said) == 1 and "cannot be read beyond byte" in said[0]
    path.write_bytes(event_files.record("acc", 1, 0.5, 0.0))  # cut back, as by a program that goes on from a checkpoint
    assert points(reader.read()) == []
    assert points(reader.read(complete=True)) == [(1, 0.5)]


class FollowedEvents(RuleBasedStateMachine):
    """A program logs a scalar as programs do, the reader looks at any moment, and both are killed at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        self.run, self.file, self.step, self.clock = 1, 0, 0, 1000.0
        self.half = b""
        self.told: list[Point] = []
        self.of_this_run: list[Point] = []
        self.reader = event_reader(self.root)
        self.open()

    def teardown(self) -> None:
        self.finish_half()
        self.told += points(self.reader.read(complete=True))
        assert self.reader.wrong() == ""
        assert set(self.of_this_run) <= set(self.told)
        assert len(set(self.told)) == len(self.told)
        if self.of_this_run:
            assert self.told[-1] == self.of_this_run[-1]
        shutil.rmtree(self.root)

    def open(self) -> None:
        self.file += 1
        self.path = self.root / f"PPO_{self.run}" / f"events.out.tfevents.{int(self.clock)}.host.{self.file}"
        self.path.parent.mkdir(exist_ok=True)
        self.path.touch()

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def finish_half(self) -> None:
        self.append(self.half)
        self.half = b""

    @rule(cut=st.floats(0.0, 1.0), other=st.booleans())
    def log(self, cut: float, other: bool) -> None:
        self.finish_half()
        self.step, self.clock = self.step + 1, self.clock + 1
        self.of_this_run.append((self.step, self.step / 8))
        if other:
            self.append(event_files.record("loss", self.step, -1.0, self.clock))
        data = event_files.record("acc", self.step, self.step / 8, self.clock)
        self.append(data[: int(cut * len(data))])
        self.half = data[int(cut * len(data)) :]

    @rule()
    def open_another_file(self) -> None:
        self.finish_half()
        self.open()

    @rule()
    def poll(self) -> None:
        self.told += points(self.reader.read())

    @rule(is_new_folder=st.booleans(), seconds=st.floats(-3600.0, 3600.0))
    def kill_and_resume(self, is_new_folder: bool, seconds: float) -> None:
        self.half = b""  # it stays half a record
        self.clock = max(self.clock + seconds, 1.0)
        self.run += is_new_folder
        self.reader = event_reader(self.root, begins=False)
        self.told, self.of_this_run = [], []
        self.open()


FollowedEvents.TestCase.settings = FollowedTable.TestCase.settings
TestFollowedEvents = FollowedEvents.TestCase
