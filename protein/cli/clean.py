"""`protein clean`: deletes checkpoints that nothing needs any more."""

from protein.api import cleaning, moving, stores
from protein.api.sweep_folder import SweepFolder
from protein.cli.arguments.keeping import CleanArguments
from protein.cli.output import print_json, working
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.types import SweepRecord
from protein.units import format_size
from protein.view import tables


def run(command: Command) -> int:
    arguments: CleanArguments = command.arguments
    url, artifacts = stores.url(arguments.store), stores.given_artifacts(arguments.artifacts)
    console = tables.make_console()
    plans: list[cleaning.Plan] = []
    running: list[SweepRecord] = []
    with stores.opened_whole(arguments.store) as store:
        names = [] if arguments.sweep is None else [arguments.sweep]
        for sweep in moving.chosen(store, names, every=arguments.all):
            try:
                moving.require_idle(store, sweep, "cleaned")
            except UsageError:
                if not arguments.all:
                    raise
                running.append(sweep)
                continue
            with working(f"looking at the files of {sweep.spec.name}"):
                trials = store.trials(sweep.id, curves=False, last_points=True)
                folder = SweepFolder.of(url, sweep.spec.name, artifacts)
                plans.append(cleaning.plan(sweep, trials, folder, goes_on=not arguments.finished))
    for plan in plans:
        if not arguments.json:
            console.print(_line(plan, arguments.dry_run), soft_wrap=True)
    for sweep in running:
        if not arguments.json:
            console.print(f"{sweep.spec.name}: a process runs it, so its files are left alone", soft_wrap=True)
    freed = 0
    if not arguments.dry_run:
        freed = sum(one.num_bytes for plan in plans for one in cleaning.carry_out(plan))
    if arguments.json:
        left_alone = [_plain(cleaning.Plan(sweep=sweep, freed=(), kept=()), True) for sweep in running]
        for one in left_alone:  # nobody has looked which checkpoints of it are needed
            one |= {"runs": True, "kept": None, "to_go_on": None}
        print_json([_plain(plan, arguments.dry_run) for plan in plans] + left_alone)
    elif freed:
        console.print(f"freed {format_size(freed)}", soft_wrap=True)
    return 0


def _line(plan: cleaning.Plan, dry_run: bool) -> str:
    trials = len({one.trial for one in plan.freed})
    kept = f"{len(plan.kept)} {'trial keeps its' if len(plan.kept) == 1 else 'trials keep their'} checkpoints"
    if number := len(plan.to_go_on):
        kept += f", {number} of them to be continued (--finished frees {'this' if number == 1 else 'these'}, too)"
    if not plan.freed:
        return f"{plan.sweep.spec.name}: nothing to delete; {kept}"
    what = f"checkpoints of {trials} {'trial' if trials == 1 else 'trials'}, {format_size(plan.num_bytes)}"
    return f"{plan.sweep.spec.name}: {'would delete' if dry_run else 'deleting'} {what}; {kept}"


def _plain(plan: cleaning.Plan, dry_run: bool) -> dict[str, object]:
    return {
        "sweep": plan.sweep.spec.name,
        "runs": False,
        "deleted": not dry_run,
        "bytes": plan.num_bytes,
        "files": [{"trial": one.trial, "path": str(one.path), "bytes": one.num_bytes} for one in plan.freed],
        "kept": list(plan.kept),
        "to_go_on": list(plan.to_go_on),
    }
