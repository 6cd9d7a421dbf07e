"""`protein report`: sweeps as one HTML file that opens anywhere, such as from a mail."""

from pathlib import Path

from protein import files
from protein.api import stores
from protein.cli.arguments.views import ReportArguments
from protein.cli.output import require_file, working, writing
from protein.cli.parse import Command
from protein.config.resolve import file_name

_MIB = 1 << 20


def run(command: Command) -> int:
    arguments: ReportArguments = command.arguments
    from protein.web import report

    with stores.opened(arguments.store) as store:
        names: list[str | None] = list(dict.fromkeys(arguments.sweeps)) or [None]
        sweeps = [stores.find(store, name) for name in names]
        path = arguments.output
        if path is None:
            path = Path("_".join(file_name(sweep.spec.name) for sweep in sweeps)[:80] + ".html")
        require_file("--output", path)
        with working("reading the sweep") as status:
            written = report.write(store, sweeps, told=status.update)
        document = written.document.encode("utf-8", "replace")
        with writing(path):
            files.replace_file(path, document)
    print(f"report: {path} ({len(document) / _MIB:.2f} MiB); open it in a browser")
    if written.left_out:
        print(f"left out, so that it can be sent: {written.left_out}")
    return 0
