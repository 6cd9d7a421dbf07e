"""The program as a whole: a Ctrl-C at any moment prints no traceback, from its first import to the end of Python."""

import json
import subprocess
import sys

from patience import PATIENCE_SECONDS

# What strikes, in a fork of one new Python for each: where a module is searched for, the signal comes just then.
MOMENTS = {
    "while the program is loaded": ("protein", ["protein.cli"]),
    "while its errors are loaded": ("protein", ["protein.errors"]),
    "while a command is loaded, and again while that is answered": (
        "protein",
        ["protein.cli.parse", "protein.view.text"],
    ),
    "in a destructor": ("protein", ["~protein.cli"]),
    "at exit": ("protein", ["exit"]),
    "in a destructor at exit": ("protein", ["~exit"]),
    "while the trainer is loaded": ("protein.trainer", ["protein.trainer.kinds"]),
    "while the trainer's launcher is loaded": ("protein.trainer", ["protein.trainer.launch"]),
}
STRUCK = """
import atexit, json, os, runpy, signal, sys, tempfile

class Struck:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Finder:
    def __init__(self, moments):
        self.moments = set(moments)

    def find_spec(self, name, path=None, target=None):
        for moment in {name, "~" + name} & self.moments:
            self.moments.remove(moment)
            strike(moment)

def strike(moment):
    if moment.startswith("~"):
        Struck()
    else:
        signal.raise_signal(signal.SIGINT)

found = {}
for name, (program, moments) in json.loads(sys.argv[1]).items():
    said = tempfile.TemporaryFile()
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(said.fileno(), 2)
        sys.argv[1:] = ["--help"]
        sys.meta_path.insert(0, Finder(moments))
        for moment in {"exit", "~exit"} & set(moments):
            atexit.register(strike, moment)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said.seek(0)
    found[name] = [code, said.read().decode()]
print(json.dumps(found))
"""


def test_ctrl_c_prints_no_traceback_at_any_moment() -> None:
    words = [sys.executable, "-c", STRUCK, json.dumps(MOMENTS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    found = json.loads(done.stdout)
    assert {name: said for name, (_, said) in found.items()} == dict.fromkeys(MOMENTS, "")
    assert all(code in (130, -2) for code, _ in found.values()), found
