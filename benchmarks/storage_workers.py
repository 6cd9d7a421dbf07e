"""1,000 workers on one PostgreSQL store: finished trials a second, how long a report takes, and that nothing is lost.

    python benchmarks/storage_workers.py --url postgresql+psycopg://user@host/empty_database
    python benchmarks/storage_workers.py --folder /shared/empty --workers 64

A sweep's loop is one thread that writes for all of its workers, so 1,000 workers are some sweeps (16) of many workers
each, in some processes (4). Each loop has a store of its own, with the pool of connections that the store makes. The
workers train nothing: as soon as a loop has written what one reports, it writes what the next one does. So this is the
most that the store bears, and all loops always wait for it. A trial is a start, `--reports` curve points in
transactions of their own, and a finish. With `--sweeps 1` all loops work on one sweep, and take its numbers in turn.

Afterwards the store is read: every trial that a loop has finished is there once, with all its points, and the numbers
of each sweep have no gap.

With `--folder`, the same is asked of the files through which one sweep and its workers talk (`protein.run.folder`),
without a store: the workers are threads of some processes, and a report takes as long as it is on its way. Each
worker ends its trial as soon as it has reported, so this is the most that the files bear. With `--served` beside it,
workers join by the URL of a `protein serve`, and each process of theirs is a machine (`protein.run.mirror`).
"""

import argparse
import dataclasses
import itertools
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import machine
import numpy as np

import storage as one_worker
from protein.ports import Finished, Job, Store, TrialProgress
from protein.run.fleet import Fleet
from protein.run.folder import FOLDER, FolderTransport
from protein.run.mailbox import FROM_WORKER, POLL_SECONDS, TO_WORKER, Inbox, Outbox
from protein.run.mirror import Mirror
from protein.run.served import Server
from protein.run.slot import Facts, Ready, SlotSettings
from protein.run.trainer import TrainerBackend
from protein.storage import open_store
from protein.types import Measurement, Outcome, Suggestion, SuggestionKind, Trial, TrialEnd
from protein.web.app import listen
from protein.web.folder import make_server

TOKEN = "t" * 24
REPORT, START, FINISH = "report", "start", "finish"


@dataclasses.dataclass(slots=True)
class Loop:
    """What one loop has done."""

    finished: list[int] = dataclasses.field(default_factory=list)  # ids of trials
    in_time: int = 0  # of them, those before the time was over
    seconds: dict[str, list[float]] = dataclasses.field(default_factory=lambda: {START: [], REPORT: [], FINISH: []})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    url: str
    workers: int  # of each loop
    reports: int
    seconds: float


def run_loop(store: Store, sweep_id: int, owner: str, load: Load, done: Loop, ready: threading.Barrier) -> None:
    """Serves the workers of one loop in turn, until the time is over; then lets each finish its trial.

    When the time begins, all workers have a trial, and are at different places of it.
    """
    running: list[tuple[Trial, int] | None] = []
    for worker in range(load.workers):
        trial = _start(store, sweep_id, owner)
        reported = worker % (load.reports + 1)
        for steps in range(reported):
            store.add_measurements(trial, [_point(steps)], one_worker.LEASE_SECONDS)
        running.append((trial, reported))
    ready.wait()
    end = time.perf_counter() + load.seconds
    while (in_time := time.perf_counter() < end) or any(running):
        for worker, state in enumerate(running):
            began = time.perf_counter()
            if state is None:
                if not in_time:
                    continue
                running[worker], what = (_start(store, sweep_id, owner), 0), START
            elif state[1] < load.reports:
                trial, reported = state
                store.add_measurements(trial, [_point(reported)], one_worker.LEASE_SECONDS)
                running[worker], what = (trial, reported + 1), REPORT
            else:
                outcome = Outcome(end=TrialEnd.COMPLETE, score=0.5, cost_seconds=30.0, steps=load.reports)
                store.finish_trial(state[0], outcome)
                done.finished.append(state[0].id)
                done.in_time += time.perf_counter() < end
                running[worker], what = None, FINISH
            if time.perf_counter() < end:
                done.seconds[what].append(time.perf_counter() - began)


def _point(steps: int) -> Measurement:
    return Measurement(steps=steps, elapsed_seconds=steps / 10, score=0.5, metrics=one_worker.METRICS)


def _start(store: Store, sweep_id: int, owner: str) -> Trial:
    return store.start_trial(
        sweep_id,
        Suggestion(params=one_worker.PARAMS, kind=SuggestionKind.SEARCH, origin="benchmark"),
        seed=0,
        owner=owner,
        lease_seconds=one_worker.LEASE_SECONDS,
        suggest_seconds=0.1,
        provenance=one_worker.PROVENANCE,
    )


def serve(name: str, sweep_ids: list[int], load: Load, ready: Barrier, answer: Connection) -> None:
    """Runs some loops as threads of this process."""
    stores = [open_store(load.url) for _ in sweep_ids]
    for store in stores:
        store.list_sweeps()  # connects
    loops = [Loop() for _ in sweep_ids]

    def wait_for_others() -> None:
        ready.wait()

    begun = threading.Barrier(len(sweep_ids), action=wait_for_others)
    threads = [
        threading.Thread(target=run_loop, args=(store, sweep_id, f"{name}:{i}:0.0", load, loop, begun))
        for i, (store, sweep_id, loop) in enumerate(zip(stores, sweep_ids, loops, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    answer.send(loops)


def measure(
    url: str, *, workers: int, sweeps: int, loops: int, processes: int, reports: int, seconds: float
) -> dict[str, Any]:
    """Returns one line of the table. Raises `AssertionError` where a trial or a point is lost, or there twice."""
    store = open_store(url)
    ids = [one_worker.new_sweep(store, f"{time.time()}/{i}") for i in range(sweeps)]
    load = Load(url=url, workers=workers // loops, reports=reports, seconds=seconds)
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(processes)
    pipes = [context.Pipe(duplex=False) for _ in range(processes)]
    started = []
    for p, (_, sending) in enumerate(pipes):
        mine = [ids[i % sweeps] for i in range(p, loops, processes)]
        started.append(context.Process(target=serve, args=(f"process-{p}", mine, load, ready, sending), daemon=True))
        started[-1].start()
    done: list[Loop] = [loop for receiving, _ in pipes for loop in receiving.recv()]
    for process in started:
        process.join()
    _check(store, ids, done, reports)
    store.close()
    taken = {what: np.array([s for loop in done for s in loop.seconds[what]]) for what in (START, REPORT, FINISH)}
    line: dict[str, Any] = {"sweeps": sweeps, "workers": load.workers * loops, "loops": loops, "reports": reports}
    line["trials_per_second"] = round(sum(loop.in_time for loop in done) / seconds, 1)
    line["transactions_per_second"] = round(sum(map(len, taken.values())) / seconds, 1)
    for what, values in taken.items():
        for name, q in (("median", 0.5), ("p99", 0.99)):
            line[f"{what}_{name}_ms"] = round(1e3 * float(np.quantile(values, q)), 1) if len(values) else None
    return line


def join(folder: Path, workers: int, reports: int, url: str | None) -> None:
    """Runs `workers` workers as threads of this process, until the sweep has ended: by the folder, or by a URL."""
    mirror = None if url is None else Mirror(Server(url, TOKEN), print)
    if mirror is not None:
        folder = mirror.root / folder.parent.name / FOLDER

    def run(name: str) -> None:
        (folder / name).mkdir()
        for file in (TO_WORKER, FROM_WORKER):
            (folder / name / file).touch()
        inbox, outbox = Inbox(folder / name / TO_WORKER), Outbox(folder / name / FROM_WORKER)
        outbox.send(Ready(facts=Facts(host=name, version="", shares_artifacts=True), seconds_left=None))
        while (folder / name).exists():
            for message in inbox.receive():
                if isinstance(message, Job):
                    for steps in range(reports):
                        point = Measurement(steps=steps, elapsed_seconds=time.monotonic(), score=0.5)
                        outbox.send(TrialProgress(trial=message.trial, measurements=(point,)))
                    outcome = Outcome(
                        end=TrialEnd.COMPLETE, reason="", score=0.5, cost_seconds=time.monotonic(), steps=reports
                    )
                    outbox.send(Finished(trial=message.trial, outcome=outcome))
            time.sleep(POLL_SECONDS)

    threads = [threading.Thread(target=run, args=(f"w-{os.getpid()}-{i}",)) for i in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if mirror is not None:
        mirror.close()


def serve_folder(root: Path, listening: socket.socket) -> None:
    make_server(root, TOKEN).run(sockets=[listening])


def measure_folder(
    root: Path, *, workers: int, processes: int, reports: int, seconds: float, by_url: bool
) -> dict[str, Any]:
    """Returns one line of the table. Raises `AssertionError` where a trial or a point is lost, or there twice."""
    artifacts = root / f"{time.time()}"
    settings = SlotSettings(make_backend=TrainerBackend, artifacts=artifacts, probe="")
    fleet = Fleet(FolderTransport("benchmark"), settings)
    context = multiprocessing.get_context("spawn")
    each = [len(range(p, workers, processes)) for p in range(processes)]
    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}" if by_url else None
    server = context.Process(target=serve_folder, args=(root, listening), daemon=True)
    server.start()
    started = [context.Process(target=join, args=(artifacts / FOLDER, n, reports, url), daemon=True) for n in each]
    for process in started:
        process.start()
    while fleet.num_slots() < workers:
        time.sleep(0.1)
    began, running, points, late, in_time = time.monotonic(), 0, Counter[int](), list[float](), 0
    ids = itertools.count(1)
    ended: list[int] = []
    while (on := time.monotonic() < began + seconds) or running:
        while on and running < workers:
            number = next(ids)
            trial = Trial(id=number, sweep_id=1, number=number, params=one_worker.PARAMS, seed=0, owner="benchmark")
            fleet.start(
                Job(trial=trial, config={}, directory=artifacts / "all", max_seconds=None, max_memory_bytes=None)
            )
            running += 1
        for event in fleet.poll(1.0):
            now = time.monotonic()
            if isinstance(event, Finished):
                ended.append(event.trial.id)
                late.append(now - event.outcome.cost_seconds)
                running, in_time = running - 1, in_time + on
            else:
                points[event.trial.id] += len(event.measurements)
                late += [now - point.elapsed_seconds for point in event.measurements]
    fleet.close()
    for process in started:
        process.join()
    server.terminate()
    server.join()
    assert sorted(ended) == list(range(1, next(ids))), "trials are lost, or there twice"
    assert all(points[one] == reports for one in ended), "points are lost, or there twice"
    line: dict[str, Any] = {
        "workers": workers,
        "by_url": by_url,
        "reports": reports,
        "trials_per_second": round(in_time / seconds, 1),
    }
    for name, q in (("median", 0.5), ("p99", 0.99)):
        line[f"report_{name}_ms"] = round(1e3 * float(np.quantile(late, q)), 1)
    return line


def _check(store: Store, sweep_ids: list[int], done: list[Loop], reports: int) -> None:
    expected = Counter(key for loop in done for key in loop.finished)
    assert max(expected.values()) == 1, "two workers were given the same trial"
    found: Counter[int] = Counter()
    for sweep_id in sweep_ids:
        trials = store.trials(sweep_id)
        assert [trial.number for trial in trials] == list(range(len(trials))), "numbers have gaps or repeat"
        assert all(len(trial.curve) == reports for trial in trials), "points are lost or there twice"
        found.update(trial.id for trial in trials if trial.state.finished)
    assert found == expected, "trials are lost, or there that no worker has finished"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="an empty PostgreSQL database")
    where.add_argument("--folder", type=Path, help="an empty folder, for workers that join through one")
    parser.add_argument("--served", action="store_true", help="with --folder: the workers join by a URL")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--loops", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--reports", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--no-result", action="store_true", help="only print")
    arguments = parser.parse_args()
    print(machine.headline())
    rows: list[dict[str, Any]] = []
    if arguments.folder is not None:
        load = {name: getattr(arguments, name) for name in ("workers", "processes", "seconds")}
        for reports in arguments.reports:
            rows.append(measure_folder(arguments.folder, reports=reports, by_url=arguments.served, **load))
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        if not arguments.no_result:
            name = "served_workers" if arguments.served else "folder_workers"
            print(f"written: {machine.write_result(name, rows, **load)}")
        return
    for sweeps in arguments.sweeps:
        for reports in arguments.reports:
            rows.append(
                measure(
                    arguments.url,
                    workers=arguments.workers,
                    sweeps=sweeps,
                    loops=arguments.loops,
                    processes=arguments.processes,
                    reports=reports,
                    seconds=arguments.seconds,
                )
            )
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if not arguments.no_result:
        facts = {"processes": arguments.processes, "seconds": arguments.seconds}
        print(f"written: {machine.write_result('storage_workers', rows, **facts)}")


if __name__ == "__main__":
    main()
