"""`protein pareto`: a sweep's front as a table, a plot in the terminal, and a picture."""

from protein.api import stores
from protein.api.recommended import NO_KNEE, beaten_measured_note, recommendation
from protein.cli.arguments import ParetoArguments
from protein.cli.output import print_json, writing
from protein.cli.parse import Command
from protein.direction import shown_trial
from protein.engine import pareto
from protein.view import data, tables, text
from protein.view.figures.front import front
from protein.view.figures.style import save
from protein.view.scatter import LEGEND, scatter

PLOT_HEIGHT = 18
MAX_PLOT_WIDTH = 110


def run(command: Command) -> int:
    arguments: ParetoArguments = command.arguments
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        trials = store.trials(sweep.id)
    direction = sweep.spec.direction
    found = recommendation(sweep, trials)  # the knee is the one that `protein best` names
    knee = None if found.knee is None else found.knee.trial.number
    if arguments.png is not None:
        figure = front([(sweep, trials)], knees={} if knee is None else {sweep.spec.name: knee})
        with writing(arguments.png):
            save(figure, arguments.png, "png")
    shown = [shown_trial(record, direction) for record in pareto.front(trials)]
    if arguments.json:
        points = [data.point(record) for record in shown]
        print_json({"sweep": data.sweep(sweep, trials), "front": points, "knee": knee})
        return 0
    console = tables.make_console()
    width = min(console.width, MAX_PLOT_WIDTH)
    console.print("\n".join(scatter(trials, width - 1, PLOT_HEIGHT, direction=direction)), soft_wrap=True)
    console.print(text.shorten(LEGEND, width) + "\n", soft_wrap=True)
    console.print(tables.front(shown, console.width, found.marks()))
    said = NO_KNEE if found.knee is None else f"knee: trial {knee}, expected {found.knee.phrase()}"
    best = f"{found.best.name}: trial {found.best.trial.number}, expected {found.best.phrase()}"
    beaten = beaten_measured_note(sweep, trials)
    if beaten is not None:
        best += f"\n{beaten}"
    console.print(f"\n{said}\n{best}\n{stores.best_hint(sweep.spec.name, arguments.store)}", soft_wrap=True)
    if arguments.png is not None:
        console.print(f"\nplot: {arguments.png}", soft_wrap=True)
    return 0
