import math

from ray import tune


def train(config):
    for epoch in range(1, 5):
        loss = (math.log10(config["lr"]) + 2) ** 2 + config["layers"] / 10 + 1 / epoch
        tune.report({"loss": loss})


space = {"lr": tune.loguniform(1e-4, 0.1), "layers": tune.randint(1, 5)}
scheduler = tune.schedulers.ASHAScheduler(max_t=4)
tuning = tune.TuneConfig(metric="loss", mode="min", num_samples=20, scheduler=scheduler)
tuner = tune.Tuner(train, param_space=space, tune_config=tuning, run_config=tune.RunConfig(name="job"))
best = tuner.fit().get_best_result()
print(best.metrics["loss"], best.config)
