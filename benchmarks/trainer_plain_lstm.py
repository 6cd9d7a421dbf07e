"""PPO with an LSTM as it is well written in PyTorch: the recurrent baseline of `trainer.py`. Prints one JSON line.

The same environment, network sizes and hyperparameters as the trainer's, read from the same file. Storage is allocated
once, acting runs in inference mode, distributions are written out, and the optimiser is fused. The update's LSTM is
`torch.nn.LSTM` over whole segments, so that torch runs its compiled layer. Two ways to respect the ends of episodes:
  pieces  each segment is cut where an episode ended. A piece that begins there is a sequence of its own with a state of
          zero, padded to the length of a segment
  steps   as CleanRL's ppo_atari_lstm.py does: the layer is called for every step, on states that are zeroed
`--products` chooses one of PyTorch's two libraries for matrix products. `trainer.py` takes the fastest of all.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from protein.envs_c import VecEnv
from protein.trainer.config import load

State = tuple[torch.Tensor, torch.Tensor]


class Agent(nn.Module):
    def __init__(self, features: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.encoder, self.lstm = nn.Linear(features, hidden), nn.LSTM(hidden, hidden)
        self.head = nn.Linear(hidden, actions + 1)

    def encode(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.encoder(observations))

    def step(self, observations: torch.Tensor, state: State, keep: torch.Tensor) -> tuple[torch.Tensor, State]:
        """Takes one step of `N` agents; `keep`, `1 x N x 1`, is 0 where the state is zeroed before it."""
        hidden, state = self.lstm(self.encode(observations).unsqueeze(0), (state[0] * keep, state[1] * keep))
        return self.head(hidden[0]), state

    def by_steps(self, observations: torch.Tensor, state: State, starts: torch.Tensor) -> torch.Tensor:
        """Maps segments `T x M x D` to `T x M x (actions + 1)`, step by step."""
        encoded, outputs = self.encode(observations), []
        keep = (~starts).to(encoded.dtype).unsqueeze(2)
        for t in range(len(encoded)):
            hidden, state = self.lstm(encoded[t : t + 1], (state[0] * keep[t], state[1] * keep[t]))
            outputs.append(hidden)
        result: torch.Tensor = self.head(torch.cat(outputs))
        return result

    def by_pieces(self, observations: torch.Tensor, state: State, starts: torch.Tensor) -> torch.Tensor:
        """As `by_steps`, with one call of the layer: pieces that begin with an episode are columns of their own."""
        encoded = self.encode(observations)
        steps, segments, width = encoded.shape
        # Row 0 of `starts` only zeroes the state before the segment.
        keep = (~starts[0]).to(encoded.dtype).view(1, -1, 1)
        begins, of = torch.nonzero(starts[1:], as_tuple=True)
        begins = begins + 1
        # For each sample its piece, `segments` + number where an episode began inside its segment, and its step.
        column = torch.arange(segments).expand(steps, -1).clone()
        row = torch.arange(steps).view(-1, 1)
        for number, (begin, segment) in enumerate(zip(begins.tolist(), of.tolist(), strict=True)):
            column[begin:, segment] = segments + number
        starts_at = torch.cat([torch.zeros(segments, dtype=torch.long), begins])
        place = ((row - starts_at[column]) * (segments + len(begins)) + column).flatten()
        padded = encoded.new_zeros(steps * (segments + len(begins)), width)
        padded = padded.index_copy(0, place, encoded.flatten(0, 1))
        zeros = encoded.new_zeros(1, len(begins), width)
        first = (torch.cat([state[0] * keep, zeros], 1), torch.cat([state[1] * keep, zeros], 1))
        hidden, _ = self.lstm(padded.view(steps, -1, width), first)
        output: torch.Tensor = self.head(hidden.flatten(0, 1).index_select(0, place))
        return output.view(steps, segments, -1)


def chosen_logprob(logits: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns all log-probabilities, and those of the actions."""
    logp = torch.log_softmax(logits, dim=-1)
    return logp, logp.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def train(config_path: Path, total: int, threads: int, hidden: int, epochs: int, ends_by: str) -> dict[str, float]:
    """Returns the steps taken, whole rollouts of about `total`, and the seconds that they took, of clock and CPU."""
    config = load(config_path)
    c, n, horizon = config.train, config.env.num_envs, config.train.horizon
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    envs = VecEnv(config.env.name, n, frame_skip=config.env.frame_skip, threads=1)
    size = envs.spec.observation_size
    (choices,) = envs.spec.action_sizes
    agent = Agent(size, choices, hidden)
    forward = agent.by_pieces if ends_by == "pieces" else agent.by_steps
    optimizer = torch.optim.Adam(agent.parameters(), lr=c.learning_rate, eps=c.adam_eps, fused=True)
    observations, starts = torch.zeros(horizon + 1, n, size), torch.zeros(horizon + 1, n, dtype=torch.bool)
    actions = torch.zeros(horizon, n, dtype=torch.int32)
    logprobs, rewards, values = torch.zeros(horizon, n), torch.zeros(horizon, n), torch.zeros(horizon + 1, n)
    terminal, truncation = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    state: State = (torch.zeros(1, n, hidden), torch.zeros(1, n, hidden))
    envs.reset(0, observations[horizon].numpy())
    starts[horizon] = True
    began, cpu_began = time.perf_counter(), time.process_time()
    rollouts = max(1, total // (n * horizon))
    for _ in range(rollouts):
        observations[0], starts[0] = observations[horizon].clone(), starts[horizon].clone()
        initial = state
        with torch.inference_mode():
            for t in range(horizon):
                output, state = agent.step(observations[t], state, (~starts[t]).float().view(1, -1, 1))
                logits, values[t] = output[:, :choices], output[:, choices]
                # The largest logit plus Gumbel noise is a draw.
                action = (logits - torch.empty_like(logits).exponential_().log_()).argmax(dim=1)
                actions[t], logprobs[t] = action, chosen_logprob(logits, action)[1]
                envs.step(actions[t].numpy(), observations[t + 1].numpy(), rewards[t].numpy(), terminal, truncation)
                torch.logical_or(torch.from_numpy(terminal), torch.from_numpy(truncation), out=starts[t + 1])
            keep = (~starts[horizon]).float().view(1, -1, 1)
            values[horizon] = agent.step(observations[horizon], state, keep)[0][:, choices]
            goes_on = (~starts[1:]).float()
            delta = rewards + c.gamma * values[1:] * goes_on - values[:-1]
            advantages, running = torch.zeros(horizon, n), torch.zeros(n)
            for t in reversed(range(horizon)):
                advantages[t] = running = delta[t] + c.gamma * c.gae_lambda * goes_on[t] * running
            returns = advantages + values[:-1]
        state = (state[0].clone(), state[1].clone())
        for _ in range(epochs):
            for index in torch.split(torch.randperm(n), max(1, c.minibatch_size // horizon)):
                before = (initial[0][:, index].clone(), initial[1][:, index].clone())
                output = forward(observations[:horizon, index], before, starts[:horizon, index])
                logp, taken = chosen_logprob(output[..., :choices], actions[:, index].long())
                ratio = (taken - logprobs[:, index]).exp()
                gain = advantages[:, index]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(1 - c.clip_coef, 1 + c.clip_coef)).mean()
                value_loss = 0.5 * (output[..., choices] - returns[:, index]).square().mean()
                entropy = -(logp.exp() * logp).sum(-1).mean()
                loss = policy_loss + c.vf_coef * value_loss - c.ent_coef * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), c.max_grad_norm)
                optimizer.step()
        envs.drain_episodes()
    return {
        "steps": rollouts * n * horizon,
        "elapsed_seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--ends-by", choices=("pieces", "steps"), default="pieces")
    parser.add_argument("--products", choices=("highest", "medium"), default="medium")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision(arguments.products)
    threads, hidden, epochs, ends_by = arguments.threads, arguments.hidden, arguments.epochs, arguments.ends_by
    print(json.dumps(train(arguments.config, arguments.steps, threads, hidden, epochs, ends_by)))
