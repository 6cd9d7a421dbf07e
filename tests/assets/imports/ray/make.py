import math
import sys

import ray
from ray import tune


def train(config):
    for epoch in range(1, 5):
        loss = (math.log10(config["lr"]) + 2) ** 2 + 1 / epoch + 0.01 * config["net"]["layers"]
        if config["net"]["layers"] == 3 and epoch == 3:
            raise RuntimeError("out of luck")
        tune.report({"loss": math.nan if config["act"] == "nan" and epoch == 4 else loss, "acc": 1 / (1 + loss)})


space = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "net": {"layers": tune.randint(1, 4)},
    "act": tune.choice(["relu", "nan"]),
    "batch": 64,
}
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
tuner = tune.Tuner(
    train,
    param_space=space,
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=8,
        max_concurrent_trials=1,
        scheduler=tune.schedulers.AsyncHyperBandScheduler(grace_period=1, max_t=4, reduction_factor=2),
        search_alg=tune.search.BasicVariantGenerator(random_state=1),
    ),
    run_config=tune.RunConfig(name="small", storage_path=sys.argv[1], verbose=0),
)
tuner.fit()
