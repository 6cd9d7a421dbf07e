"""PPO of skrl with CleanRL's settings: the peer `modular`. Prints one JSON line.

    python benchmarks/peers/modular.py --env gym:CartPole-v1 --seed 0 --goal 475 --max-seconds 60 --threads 1

It needs skrl: pip install skrl. skrl publishes no settings for these environments. So it gets CleanRL's, its networks
and its way to make environments; the epsilon of Adam is PyTorch's. It writes no logs and no checkpoints.
"""

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers.clean import mlp
from peers.recording import Recording, run_peer
from peers.settings import CLEAN, RUST
from peers.worlds import clean_envs


class Ended(Exception):
    """The recording says that the run is over."""


class Policy(CategoricalMixin, Model):
    def __init__(self, observations: Any, actions: Any) -> None:
        Model.__init__(self, observation_space=observations, action_space=actions, device="cpu")
        CategoricalMixin.__init__(self)
        self.net = mlp(int(observations.shape[0]), int(actions.n), 0.01)

    def compute(self, inputs: Any, role: str = "") -> Any:
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, observations: Any, actions: Any) -> None:
        Model.__init__(self, observation_space=observations, action_space=actions, device="cpu")
        DeterministicMixin.__init__(self)
        self.net = mlp(int(observations.shape[0]), 1, 1.0)

    def compute(self, inputs: Any, role: str = "") -> Any:
        return self.net(inputs["observations"]), {}


def train(name: str, seed: int, recording: Recording, folder: str) -> None:
    c = CLEAN[name]
    set_seed(seed)
    envs = clean_envs(name, c.num_envs, recording.episode, normalize=False, gamma=c.gamma)
    take, env = envs.step, wrap_env(envs)

    def counted(actions: Any) -> Any:
        found = take(actions)
        if recording.step(c.num_envs):
            raise Ended
        return found

    envs.step = counted
    models = {"policy": Policy(env.observation_space, env.action_space)}
    models["value"] = Value(env.observation_space, env.action_space)
    updates = c.total_timesteps // (c.num_envs * c.num_steps)
    settings = PPO_CFG(
        rollouts=c.num_steps,
        learning_epochs=c.update_epochs,
        mini_batches=c.num_minibatches,
        discount_factor=c.gamma,
        gae_lambda=c.gae_lambda,
        learning_rate=c.learning_rate,
        learning_rate_scheduler=torch.optim.lr_scheduler.LinearLR,
        learning_rate_scheduler_kwargs={"start_factor": 1.0, "end_factor": 0.0, "total_iters": updates},
        grad_norm_clip=c.max_grad_norm,
        ratio_clip=c.clip_coef,
        value_clip=c.clip_coef,
        entropy_loss_scale=c.ent_coef,
        value_loss_scale=c.vf_coef / 2,  # CleanRL halves the squared error
    )
    settings.experiment.directory = folder
    settings.experiment.write_interval = settings.experiment.checkpoint_interval = 0
    agent = PPO(
        models=models,
        memory=RandomMemory(memory_size=c.num_steps, num_envs=c.num_envs, device="cpu"),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device="cpu",
        cfg=settings,
    )
    trainer = SequentialTrainer(
        env=env,
        agents=agent,
        cfg={
            "timesteps": c.total_timesteps // c.num_envs,
            "headless": True,
            "disable_progressbar": True,
            "close_environment_at_exit": False,
        },
    )
    recording.begin()
    try:
        trainer.train()
    except Ended:
        return


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        run_peer(__doc__, RUST, functools.partial(train, folder=place))
