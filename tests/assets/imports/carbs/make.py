import json
import math
import sys
from pathlib import Path

from carbs import (
    CARBS,
    CARBSParams,
    LinearSpace,
    LogitSpace,
    LogSpace,
    ObservationInParam,
    Param,
    WandbLoggingParams,
)

out = Path(sys.argv[1])
params = [
    Param("lr", LogSpace(min=1e-5, max=1e-1, scale=0.5), 1e-3),
    Param("momentum", LogitSpace(), 0.9),
    Param("width", LinearSpace(min=8, max=256, scale=64, is_integer=True, rounding_factor=8), 64),
    Param("epochs", LogSpace(min=2, max=512, is_integer=True), 10),
    Param("shift", LinearSpace(scale=2), 0.5),
]
config = CARBSParams(
    better_direction_sign=-1,
    is_wandb_logging_enabled=False,
    checkpoint_dir=str(out),
    wandb_params=WandbLoggingParams(run_name="digits"),
)
carbs = CARBS(config, params)
inputs = []
for i in range(16):
    given = carbs.suggest().suggestion
    loss = (math.log10(given["lr"]) + 3) ** 2 + (given["momentum"] - 0.8) ** 2 + 1 / given["epochs"]
    loss += abs(given["width"] - 128) / 256 + abs(given["shift"]) / 9
    failed = i in (3, 9)
    inputs.append(
        {"params": {k: v for k, v in given.items() if k != "suggestion_uuid"}, "loss": loss, "failed": failed}
    )
    if i == 11:  # one that gave no number
        loss = math.nan
        inputs[-1]["failed"] = True
    carbs.observe(ObservationInParam(input=given, output=loss, cost=given["epochs"] * 0.5, is_failure=failed))
carbs.suggest()
carbs.save_to_file("carbs_16obs.pt")  # with the suggestion that waits
for path in sorted((out / "digits").glob("*.pt")):
    if path.name not in ("carbs_16obs.pt", "carbs_6obs.pt"):
        path.unlink()
(out / "told.json").write_text(json.dumps(inputs, indent=1))
