"""One of two ranks, which does several runs one after the other: importing torch takes longer than all of them.

Takes the jobs, a JSON list, as its argument; RANK and WORLD_SIZE are in its environment.
"""

import json
import sys
from pathlib import Path
from typing import Any

from event_log import ONE_MEASUREMENT, EventLog

from protein.trainer.config import RunConfig
from protein.trainer.errors import TrainerError
from protein.trainer.machine.distributed import connect
from protein.trainer.run import run


def main(jobs: list[dict[str, Any]]) -> None:
    for job in jobs:
        directory = Path(job["directory"])
        events = EventLog()
        world = connect(directory.with_suffix(".store"))
        config = RunConfig.from_dict(job["config"])
        resume, go_on = (Path(job[key]) if key in job else None for key in ("resume", "continue_from"))
        try:
            run(
                config,
                directory=directory,
                report=events.record,
                resume=resume,
                continue_from=go_on,
                world=world,
                speed=ONE_MEASUREMENT,
            )
        except TrainerError as error:
            events.append({"event": "raised", "kind": type(error).__name__})
        world.close()
        directory.with_suffix(f".rank{world.rank}.json").write_text(json.dumps(events))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
