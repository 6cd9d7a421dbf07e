import pathlib

from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import LocalBackend
from syne_tune.config_space import choice, loguniform, randint
from syne_tune.optimizer.baselines import ASHA

space = {"lr": loguniform(1e-4, 1e-1), "layers": randint(1, 3), "act": choice(["relu", "tanh"]), "epochs": 4}
here = pathlib.Path(__file__).parent
tuner = Tuner(
    trial_backend=LocalBackend(entry_point=str(here / "train_script.py")),
    scheduler=ASHA(space, metric="loss", do_minimize=True, time_attr="epoch", max_t=4, random_seed=3),
    stop_criterion=StoppingCriterion(max_num_trials_finished=6),
    n_workers=1,
    max_failures=10,
    sleep_time=0.5,
    tuner_name="small",
    print_update_interval=1000,
)
tuner.run()
