"""The benchmark for a GPU: its rows, its limits, what it keeps where it is cut, and its dry run on a CPU."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import device_table
import gpu
import gpu_runs
import pytest
import torch
from device_table import Cell, Row, Section, Worker, at
from patience import PATIENCE_SECONDS

from protein.trainer.machine import precision_table

ROOT = Path(__file__).parents[2]
MISSING = "alembic docstring_parser gymnasium ray sqlalchemy starlette tyro uvicorn"  # where there is only a GPU


def script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "gpu_benchmark.sh"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": sys.executable} | environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("sections", [pytest.param(list(gpu.SECTIONS), marks=pytest.mark.slow), ["small"]])
def test_the_dry_run_tests_measures_and_writes_down_on_a_bare_machine(tmp_path: Path, sections: list[str]) -> None:
    """Without the packages that such a machine lacks. All kinds of rows but the options are measured."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {MISSING.split()}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}')\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    done = script("cpu", "--only", *sections, OUT=str(tmp_path / "out"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert found["tests"]["failures"] == found["tests"]["errors"] == 0 < found["tests"]["tests"]
    assert {"device", "driver", "torch", "commit", "machine", "peak_gflops"} <= found.keys()
    planned = [row.section for row in gpu.Plan("cpu", tiny=True).rows()]
    assert [row["section"] for row in found["rows"]] == [section for section in planned if section in sections]
    assert not any("errors" in row for row in found["rows"]), found["rows"]
    table = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    for row, line in zip(found["rows"], table, strict=True):
        assert line.startswith(f"  {row['name']}") and line.split()[-1] != row["name"].split()[-1]


def test_rows_of_the_dry_run_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """In this process; those of `launches` would leave a profiler in it."""
    measured = ("sizes", "language", "precision")
    rows = [row for row in gpu.Plan("cpu", tiny=True).rows() if row.section in measured]
    assert {row.section for row in rows} == set(measured)

    def measure(cell: Cell, until: float) -> tuple[Any, str | None]:
        return getattr(gpu_runs, cell.function)(**cell.arguments), None

    until = time.monotonic() + PATIENCE_SECONDS
    found, left = device_table.measure_all(rows, gpu.SECTIONS, measure, until=until, write=lambda rows: None)
    assert len(found) == len(rows) and not left and not any("errors" in row for row in found)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    for row, line in zip(found, lines, strict=True):
        assert line.startswith(f"  {row['name']}") and line.split()[-1] != row["name"].split()[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    done = script("cuda", OUT=str(tmp_path), TESTS_SECONDS="0")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: train.device 'cuda' is not available on this machine")
    assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


def test_every_row_of_the_plan_can_be_asked_for() -> None:
    rows = gpu.Plan("cuda", tiny=False).rows()
    assert {row.section for row in rows} == set(gpu.SECTIONS)
    assert [row.name for row in rows[:4]] == ["pong", "breakout", "snake", "maze"]
    for cell in (cell for row in rows for cell in row.cells):
        assert callable(getattr(gpu_runs, cell.function))
        if (config := cell.arguments.get("config")) is not None:
            config.validate()
    assert len({(row.section, row.name) for row in rows}) == len(rows)


ANSWERS = """
import os, threading

def answer(number):
    return {"number": number}

def fail():
    raise RuntimeError("the device is lost\\nand more")

def die():
    os._exit(3)

def hang():
    threading.Event().wait()
"""
CELLS = (
    Cell(key="first", function="answer", arguments={"number": 1}, seconds=PATIENCE_SECONDS),
    Cell(key="fails", function="fail", seconds=PATIENCE_SECONDS),
    Cell(key="dies", function="die", seconds=PATIENCE_SECONDS),
    Cell(key="hangs", function="hang", seconds=0.1),
    Cell(key="last", function="answer", arguments={"number": 2}, seconds=PATIENCE_SECONDS),
)
SECTION = Section(title="one", columns=[("first", at("first", "number"), ".0f"), ("hangs", at("hangs"), ".0f")])


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    (tmp_path / "answers.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Worker("answers")
    yield made
    made.end()


def test_a_cell_that_hangs_dies_or_fails_costs_itself_alone(
    worker: Worker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, seen = tmp_path / "gpu.json", list[int]()

    def write(rows: Sequence[Mapping[str, Any]]) -> None:
        device_table.write_rows(path, {"device": "one"}, rows)
        (row,) = json.loads(path.read_text())["rows"]
        seen.append(len(row.keys() - {"errors", "section", "name"}) + len(row.get("errors", {})))

    rows = [Row(section="one", name="row", cells=CELLS)]
    until = time.monotonic() + PATIENCE_SECONDS
    (row,), left = device_table.measure_all(rows, {"one": SECTION}, worker.measure, until=until, write=write)
    assert (row["first"], row["last"], left) == ({"number": 1}, {"number": 2}, [])
    assert row["errors"] == {
        "fails": "RuntimeError: the device is lost",
        "dies": "the process that measures died with exit code 3",
        "hangs": "took more than 0 s",
    }
    assert seen == [1, 2, 3, 4, 5]  # a run that is cut keeps each figure
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].split() == ["row", "1", "-"] and printed[3] == "    fails: RuntimeError: the device is lost"


def test_when_the_time_is_over_the_rest_is_named(worker: Worker) -> None:
    rows = [Row(section="one", name="row", cells=CELLS)]
    found = device_table.measure_all(
        rows, {"one": SECTION}, worker.measure, until=time.monotonic(), write=lambda rows: pytest.fail("nothing new")
    )
    assert found == ([], ["one: row"])


def test_a_trace_gives_launches_and_the_time_in_which_the_device_works() -> None:
    def event(cat: str, name: str, begin: float, duration: float, tid: int = 1) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": duration, "tid": tid}

    trace = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 5),
        event("cuda_driver", "cuLaunchKernel", 1, 2),  # inside of it
        event("cuda_runtime", "cudaGraphLaunch", 6, 5),
        event("cuda_runtime", "cudaMemcpyAsync", 6, 5, tid=2),  # of another thread
        event("cuda_runtime", "cudaStreamSynchronize", 12, 90),
        event("cpu_op", "aten::LaunchesNothing", 12, 90),
        event("kernel", "gemm", 10, 20),
        event("gpu_memcpy", "HtoD", 15, 5),  # beside it
        event("kernel", "relu", 40, 10),
        {"ph": "M", "name": "process_name"},
    ]
    assert gpu_runs.counted(trace, 2) == {"launches": 1.5, "kernels": 1.5, "busy_seconds": pytest.approx(15e-6)}


def test_rows_of_precisions_are_those_that_the_trainer_reads() -> None:
    facts = {"device": "GPU", "capability": [9, 0]}
    known: dict[str, Any] = {"network": "mlp", "hidden": 64, "acting_samples": 256, "update_samples": 2048}
    row: dict[str, Any] = {"section": "precision", "name": "mlp"}
    row |= {
        name: known | {"rollout_forward_ns": ns, "update_ns": 2 * ns} for name, ns in (("fp32", 3.0), ("bf16", 2.0))
    }
    cut = {"section": "precision", "name": "cut", "bf16": row["bf16"]}  # without fp32 it says nothing
    lines = gpu.precision_rows([{"section": "sizes", "name": "x"}, row, cut], facts)
    (acting, update) = precision_table.read(json.dumps({"rows": lines}))
    assert (acting.part, acting.samples, acting.fastest) == ("acting", 256, "bf16")
    assert (update.part, update.samples, update.ns) == ("update", 2048, {"fp32": 6.0, "bf16": 4.0})


def test_failures_of_the_tests_are_in_the_result(tmp_path: Path) -> None:
    path = tmp_path / "tests.xml"
    path.write_text(
        '<testsuites><testsuite errors="0" failures="1" skipped="0" tests="2" time="1.5">'
        '<testcase name="good"/><testcase name="bad"><failure message="assert 1 == 2&#10;more"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert gpu.of_tests(path)["failed"] == {"bad": "assert 1 == 2"}
    assert "no results of the tests" in gpu.of_tests(tmp_path / "none.xml")["error"]
