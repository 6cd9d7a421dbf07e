"""What each command takes, as dataclasses that tyro turns into flags and help. A field's docstring is its help text.

    search.py      sweep, train, eval
    data.py        data
    results.py     status, pareto, best, laws, show, note
    views.py       view, report, plot, compare
    steering.py    pause, resume, stop, cancel
    keeping.py     export, import, sync, store, clean, rename, rm
    machine.py     envs, doctor
    shared.py      what several of them take, and how a flag is shown

The groups are those of `protein --help`. Durations and sizes stay text here; the commands parse them, so that an error
names the flag.
"""
