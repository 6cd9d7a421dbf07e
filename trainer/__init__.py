"""One training run. It runs alone: `python -m protein.trainer`.

    run, launch     a run from start to finish, in one process or several
    ppo/            training by PPO: rollouts, advantages, the loss, the update, the loop
    language/       training of a language model
    progress        counters, clock and schedule of a run, and what is due when: for any training
    normalise       observations and rewards on a scale that a network can learn from
    evaluate, watch playing with a trained policy
    optim/          gradients, optimisers: for any loss
    model/          networks: the policy, its distribution over actions, its value head
    environments/   every kind of environment behind one interface
    machine/        device and precision, processes, clock, checkpoints: for any training
    kernels/        compiled kernels, and the same computations in torch
    config, settings, kinds, events, errors, users_code

Another kind of training gets a package beside `ppo/`, and shares `optim/`, `machine/` and `kernels/` with it.
"""

if not __name__.startswith("protein."):  # from the repository's root it would be a second copy, with other classes
    raise ImportError(f"import protein.{__name__} in place of {__name__}")
