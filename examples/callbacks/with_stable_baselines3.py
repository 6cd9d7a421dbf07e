import argparse

from stable_baselines3 import PPO

import protein.callbacks.stable_baselines3

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--steps", type=int)
given = parser.parse_args()

callback = protein.callbacks.stable_baselines3.ProteinCallback("rollout/ep_rew_mean")
model = PPO("MlpPolicy", "CartPole-v1", learning_rate=given.rate, n_steps=256, seed=0, device="cpu")
if callback.checkpoint:
    model = PPO.load(callback.checkpoint, model.get_env(), device="cpu")
model.learn(callback.left(given.steps), callback=callback, reset_num_timesteps=False)
