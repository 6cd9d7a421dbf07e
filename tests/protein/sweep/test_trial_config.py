"""What one trial is run with: its config, how often it saves, its seeds."""

from protein.sweep.limits import trial_config, trial_seed


def test_trial_config_puts_params_and_limits_in_and_leaves_the_original_alone() -> None:
    config = {"train": {"learning_rate": 1.0, "threads": 0, "seed": 0, "max_seconds": 0.0}, "env": {"name": "pong"}}
    result = trial_config(config, {"train.learning_rate": 0.1}, seed=7, threads=2, max_trial_seconds=30.0)
    assert result == {
        "train": {"learning_rate": 0.1, "threads": 2, "seed": 7, "max_seconds": 30.0},
        "env": {"name": "pong"},
    }
    assert config["train"] == {"learning_rate": 1.0, "threads": 0, "seed": 0, "max_seconds": 0.0}
    given = {"train": {"threads": 3, "seed": 0, "max_seconds": 10.0}}
    assert trial_config(given, {}, seed=7, threads=2, max_trial_seconds=30.0)["train"] == {
        "threads": 3,
        "seed": 7,
        "max_seconds": 10.0,
    }


def test_trials_save_every_ten_seconds_unless_the_user_wants_more_or_none() -> None:
    for given, expected in ((60.0, 10.0), (2.0, 2.0), (0.0, 0.0)):
        config = {"train": {"threads": 1, "seed": 0, "max_seconds": 0.0, "checkpoint_seconds": given}}
        train = trial_config(config, {}, seed=7, threads=2, max_trial_seconds=None)["train"]
        assert train["checkpoint_seconds"] == expected


def test_seeds_differ_between_trials_sweeps_and_uses() -> None:
    seeds = [seed for sweep in range(20) for number in range(50) for seed in trial_seed(sweep, number)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
