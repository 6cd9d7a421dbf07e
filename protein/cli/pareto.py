"""`protein pareto`: a sweep's front as a table, a plot in the terminal, and a picture."""

from protein.api import stores
from protein.cli.arguments import Pareto
from protein.cli.output import print_json, writing
from protein.cli.parse import Command
from protein.direction import shown_trial
from protein.engine import pareto
from protein.errors import UsageError
from protein.view import data, tables, text
from protein.view.plots import write_pareto
from protein.view.scatter import LEGEND, scatter

PLOT_HEIGHT = 18
MAX_PLOT_WIDTH = 110


def run(command: Command) -> int:
    arguments: Pareto = command.arguments
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        trials = store.trials(sweep.id)
    direction = sweep.spec.direction
    front, knee = pareto.front(trials), pareto.knee(trials)
    if not front:
        raise UsageError(f"sweep '{sweep.spec.name}' has no complete trial yet; give it more time with protein sweep")
    if arguments.png is not None:
        spent = text.seconds(data.spent_seconds(trials))
        title = f"{sweep.spec.name}: {data.counts(trials).finished} trials, {spent} of training"
        with writing(arguments.png):
            write_pareto(trials, title, arguments.png, direction=direction)
    shown = [shown_trial(record, direction) for record in front]
    if arguments.json:
        assert knee is not None
        points = [data.point(record) for record in shown]
        print_json({"sweep": data.sweep(sweep, trials), "front": points, "knee": knee.number})
        return 0
    console = tables.make_console()
    width = min(console.width, MAX_PLOT_WIDTH)
    console.print("\n".join(scatter(trials, width - 1, PLOT_HEIGHT, direction=direction)), soft_wrap=True)
    console.print(text.shorten(LEGEND, width) + "\n", soft_wrap=True)
    console.print(tables.front(shown, knee, console.width))
    console.print("\n" + stores.best_hint(sweep.spec.name, arguments.store), soft_wrap=True)
    if arguments.png is not None:
        console.print(f"\nplot: {arguments.png}", soft_wrap=True)
    return 0
