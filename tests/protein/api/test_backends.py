"""What the flags for other machines mean, and which of them do not go together."""

import re
from pathlib import Path
from typing import Any

import pytest
import ray_clusters
import small_sweep
from commands import Run

from protein.api.backends import MAX_WORKERS, Place, _resources, connected
from protein.cli.parse import parse
from protein.cli.sweep import define, make_place, make_remote_slots
from protein.errors import UsageError
from protein.types import Resources
from protein.view import tables


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "rey"}, "--backend 'rey' is unknown: use local, ray, ray:HOST:PORT, slurm or folder:DIR"),
        ({"backend": "local:1"}, "--backend 'local:1' is unknown"),
        ({"backend": "slurm:a"}, "--backend 'slurm:a' is unknown"),
        ({"trial_cores": 2}, "--trial-cores is for other machines: use it with --backend ray, slurm or folder"),
        ({"backend": "ray", "trial_cores": 0}, "--trial-cores 0 is below the limit of 1; use 1 or more"),
        ({"resources": "{}"}, "--resources is for Ray: use it with --backend ray"),
        ({"backend": "slurm", "resources": "{}"}, "--resources is for Ray"),
        ({"backend": "ray", "slurm_options": "-p x"}, "--slurm-options is for Slurm"),
        ({"artifacts": "s3://me:secret@b/x"}, "--artifacts s3://b/x: a URL is for --backend ray"),
        ({"backend": "slurm", "artifacts": "s3://b/x"}, "a URL is for --backend ray"),
        ({"backend": "folder:x", "artifacts": "y"}, "--backend folder:x: files are kept in that folder"),
        ({"backend": "folder", "artifacts": "s3://b/x"}, "a URL is for --backend ray"),
    ],
)
def test_flags_that_do_not_go_together_are_one_clear_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Place(**given)


@pytest.mark.parametrize(
    ("backend", "given", "gpus_per_trial", "workers"),
    [
        ("ray", "", None, MAX_WORKERS),
        ("slurm", "", None, 1),
        ("folder:x", "", None, MAX_WORKERS),
        ("ray", "workers = 1\ngpus_per_trial = 1", 1, 1),
        ("slurm", "workers = 1\ngpus_per_trial = 1", 1, 1),
        ("ray", "workers = 3\ngpus_per_trial = 2", 2, 3),
    ],
)
def test_a_file_may_give_what_is_the_default_of_this_machine(
    tmp_path: Path, backend: str, given: str, gpus_per_trial: int | None, workers: int
) -> None:
    (tmp_path / "own.toml").write_text(f"[sweep]\n{given}\n")
    command = parse(["sweep", "--env", "pong", "--config", str(tmp_path / "own.toml"), "--backend", backend])
    settings = define(command, tables.make_console())[1]
    place = make_place(command.arguments, settings)
    assert place.gpus_per_trial == gpus_per_trial
    assert make_remote_slots(place, command.arguments, settings).workers == workers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A100", "is not JSON"),
        ("[1]", "must give a number above 0 for each name"),
        ('{"A100": 0}', "must give a number above 0 for each name"),
        ('{"A100": true}', "must give a number above 0 for each name"),
        ('{"GPU": 1}', "--resources cannot give GPU; use --gpus-per-trial"),
    ],
)
def test_resources_that_cannot_be_read_are_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        _resources(text)
    assert _resources('{"A100": 1, "b": 0.5}') == {"A100": 1.0, "b": 0.5}


def test_a_cluster_that_cannot_be_used_leaves_no_folder(tmp_path: Path) -> None:
    ray_clusters.require_ray()
    (tmp_path / "mine").mkdir()
    for directory in (tmp_path / "mine" / "runs" / "s", tmp_path / "mine"):
        machines = connected(
            Place(backend="ray:127.0.0.1:1"),
            small_sweep.sweep_spec(),
            directory,
            workers=1,
            silence_seconds=None,
            note=lambda line: None,
            machines=None,
            on_machine=lambda machine: None,
        )
        with pytest.raises(UsageError, match=r"there is no Ray cluster at 127\.0\.0\.1:1"), machines:
            pass
        assert list((tmp_path / "mine").iterdir()) == []


def test_an_address_and_the_places_of_files(tmp_path: Path) -> None:
    beside = tmp_path / "store" / "pong"
    assert (Place(backend="ray:10.0.0.1:6379").address, Place(backend="ray").address) == ("10.0.0.1:6379", None)
    assert Place(backend="ray", artifacts="/shared").directory(beside) == Path("/shared/pong")
    assert Place(backend="ray", artifacts="s3://b/x/").directory(beside) == beside
    assert Place().directory(beside) == beside


def test_workers_elsewhere_are_as_many_as_there_is_room_for_and_have_their_own_threads() -> None:
    ray = Place(backend="ray", trial_cores=3).slots(None)
    assert (ray.workers, ray.threads(Resources())) == (MAX_WORKERS, 3)
    assert Place(backend="ray").slots(2).workers == 2
    assert Place(backend="slurm").slots(None).workers == 1
    assert ray.max_gpu_memory_bytes is None
    assert Place(backend="ray").slots(None, max_gpu_memory_bytes=8 << 30).take().max_gpu_memory_bytes == 8 << 30


@pytest.mark.parametrize("flag", ["--gpus 0", "--trials-per-gpu 2", "--pin-cores False"])
def test_flags_of_this_machine_are_refused_elsewhere(flag: str, folder: Path, run: Run) -> None:
    name = flag.partition(" ")[0]
    found = run.error(f"sweep --env pong --backend slurm {flag}")
    assert f"{name} is for trials on this machine: leave it out with --backend slurm" in found
