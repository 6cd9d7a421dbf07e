import sys

import make
import neps

neps.run(
    make.evaluate_pipeline,
    make.Space(),
    root_directory=sys.argv[1],
    worker_evaluations_to_spend=3,
    optimizer="neps_hyperband",
    ignore_errors=True,
)
