"""The trainer's compiled kernels against the same work in torch operations.

Sizes are those of the default configuration: 1,024 agents, 64 steps, minibatches of 8,192 samples in 128 segments, and
128 units where there is memory. Torch runs as the trainer would run it: the faster of its two libraries for products,
freed memory kept. The two take turns, so that a busy moment of the machine affects both. Figures are the median and the
fastest of RUNS runs.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the trainer does, before torch is imported

import machine
import torch

from protein.trainer import kernels
from protein.trainer.config import PolicyConfig
from protein.trainer.environments import spec
from protein.trainer.machine.precision import Arithmetic, keep_freed_memory
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.loss import Coefficients, Minibatch, loss_gradient, loss_gradient_by_torch

RUNS = 60
STEPS, AGENTS, SEGMENTS, BATCH, UNITS, ACTIONS, FEATURES = 64, 1024, 128, 8192, 128, 3, 8
Work = Callable[[], object]


def advantages() -> tuple[Work, Work]:
    rewards, values = torch.randn(STEPS, AGENTS), torch.randn(STEPS + 1, AGENTS)
    ends, ratios = torch.rand(STEPS, AGENTS) > 0.98, torch.rand(STEPS, AGENTS) + 0.5
    known = {"gamma": 0.99, "gae_lambda": 0.95}
    return (
        lambda: kernels.advantages(rewards, values, ends, ratios, **known),
        lambda: kernels.advantages_by_torch(rewards, values, ends, ratios, **known),
    )


def sample() -> tuple[Work, Work]:
    given = (
        torch.randn(ACTIONS, AGENTS),
        torch.rand(AGENTS),
        torch.empty(AGENTS, dtype=torch.int32),
        torch.empty(AGENTS),
    )
    return lambda: kernels.sample(*given), lambda: kernels.sample_by_torch(*given)


def ppo_gradient() -> tuple[Work, Work]:
    policy = Policy(spec("pong"), PolicyConfig(), generator=torch.Generator().manual_seed(0))
    output = torch.randn(ACTIONS + 1, BATCH)
    columns = ("advantages", "returns")
    batch = Minibatch(
        actions=torch.randint(ACTIONS, (1, BATCH), dtype=torch.int32),
        logprobs=-torch.rand(BATCH),
        weights=None,
        size=BATCH,
        **{column: torch.randn(BATCH) for column in columns},
    )
    c = Coefficients(clip=0.2, value=0.5, entropy=0.01)
    return lambda: loss_gradient(policy, output, batch, c), lambda: loss_gradient_by_torch(policy, output, batch, c)


def mlp(batch: int, *, backward: bool, width: int) -> tuple[Work, Work]:
    """Two hidden layers and the output: the output alone, or also the gradients with respect to all weights."""
    sizes = (FEATURES, width, width, ACTIONS + 1)
    layers = [(torch.randn(b, a) / a**0.5, torch.zeros(b)) for a, b in itertools.pairwise(sizes)]
    parameters = tuple(itertools.chain.from_iterable(layers))
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    gradients = [(weight.grad, bias.grad) for weight, bias in layers]
    observations, output, by_output = torch.randn(batch, FEATURES), *torch.randn(2, ACTIONS + 1, batch)

    def ours() -> None:
        if backward:
            kernels.mlp_vjp(observations, parameters)[1](by_output)
        else:
            kernels.mlp(observations, parameters, output)

    def by_torch() -> None:
        hidden = [observations]
        for weight, bias in layers[:-1]:
            hidden.append(torch.relu_(torch.addmm(bias, hidden[-1], weight.t())))
        torch.addmm(layers[-1][1].unsqueeze(1), layers[-1][0], hidden[-1].t(), out=output)
        by_hidden = by_output.t()
        for index in range(len(layers) - 1, -1, -1) if backward else ():
            torch.mm(by_hidden.t(), hidden[index], out=gradients[index][0])
            torch.sum(by_hidden, dim=0, out=gradients[index][1])
            if index:
                by_hidden = torch.mm(by_hidden, layers[index][0])
                torch.ops.aten.threshold_backward.grad_input(by_hidden, hidden[index], 0, grad_input=by_hidden)

    return ours, by_torch


def differentiated(
    function: Callable[..., Any], by_torch: Callable[..., Any], *given: torch.Tensor
) -> tuple[Work, Work]:
    """Forward, and backward with respect to the tensors that need a gradient."""
    wanted = [tensor for tensor in given if tensor.requires_grad]

    def work(of: Callable[..., Any]) -> Work:
        def once() -> None:
            result = of(*given)
            result = result[0] if isinstance(result, tuple) else result
            torch.autograd.grad(result, wanted, torch.ones_like(result))

        return once

    return work(function), work(by_torch)


def layer() -> tuple[Work, Work]:
    given = torch.randn(BATCH, UNITS), torch.randn(4 * UNITS, UNITS) / 11, torch.zeros(4 * UNITS)
    return differentiated(kernels.linear, kernels.linear_by_torch, *(tensor.requires_grad_() for tensor in given))


def lstm(steps: int, agents: int, *, backward: bool) -> tuple[Work, Work]:
    """The layer with its products with the inputs."""
    inputs, w_ih, w_hh = torch.randn(steps, agents, UNITS), *torch.randn(2, 4 * UNITS, UNITS) / 11
    trained = inputs, w_ih, w_hh, torch.zeros(4 * UNITS)
    others = torch.zeros(agents, 2 * UNITS), torch.rand(steps, agents) > 0.98
    if backward:
        leaves = (tensor.clone().requires_grad_() for tensor in trained)
        return differentiated(kernels.lstm_sequence, kernels.lstm_sequence_by_torch, *leaves, *others)
    return (
        lambda: kernels.lstm_sequence(*trained, *others),
        lambda: kernels.lstm_sequence_by_torch(*trained, *others),
    )


def mingru(steps: int, agents: int, *, backward: bool) -> tuple[Work, Work]:
    gates, candidates = torch.randn(2, steps, agents, UNITS)
    given = torch.zeros(agents, UNITS), torch.rand(steps, agents) > 0.98
    if backward:
        both = gates.requires_grad_(), candidates.requires_grad_()
        return differentiated(kernels.mingru_sequence, kernels.mingru_sequence_by_torch, *both, *given)
    return (
        lambda: kernels.mingru_sequence(gates, candidates, *given),
        lambda: kernels.mingru_sequence_by_torch(gates, candidates, *given),
    )


def works() -> Iterator[tuple[str, int, tuple[Work, Work]]]:
    """Yields name, samples, and the work with kernels and with torch."""
    yield "advantages, V-trace", STEPS * AGENTS, advantages()
    yield "sample, one step", AGENTS, sample()
    yield "gradient of PPO's loss", BATCH, ppo_gradient()
    yield "MLP 2 x 64, one step", AGENTS, mlp(AGENTS, backward=False, width=64)
    yield "MLP 2 x 64, gradient", BATCH, mlp(BATCH, backward=True, width=64)
    yield "MLP 2 x 256, gradient", BATCH, mlp(BATCH, backward=True, width=256)
    yield "layer 128 x 512, gradient", BATCH, layer()
    yield "LSTM 128, one step", AGENTS, lstm(1, AGENTS, backward=False)
    yield "LSTM 128, gradient", BATCH, lstm(STEPS, SEGMENTS, backward=True)
    yield "minGRU 128, one step", AGENTS, mingru(1, AGENTS, backward=False)
    yield "minGRU 128, gradient", BATCH, mingru(STEPS, SEGMENTS, backward=True)


def seconds(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(4, machine.cores())}))
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()

    keep_freed_memory()
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    print(f"kernels ({kernels.instruction_set()}): {machine.headline()}\nmedian (fastest) of {RUNS}, ns a sample\n")
    print(f"{'':<28}{'threads':>8}{'kernel':>16}{'torch':>18}{'faster by':>11}")
    for threads in arguments.threads:
        with Arithmetic(torch.device("cpu"), threads) as arithmetic:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision("medium" if arithmetic.allowed else "highest")
            for name, samples, (ours, by_torch) in works():
                ours(), by_torch()
                pairs = [(seconds(ours), seconds(by_torch)) for _ in range(RUNS)]
                kernel, torch_ = ([pair[i] / samples * 1e9 for pair in pairs] for i in (0, 1))
                result = {
                    "work": name,
                    "threads": threads,
                    "kernel_ns": round(statistics.median(kernel), 1),
                    "kernel_fastest_ns": round(min(kernel), 1),
                    "torch_ns": round(statistics.median(torch_), 1),
                    "torch_fastest_ns": round(min(torch_), 1),
                    "speedup": round(statistics.median(torch_) / statistics.median(kernel), 2),
                }
                print(
                    f"{name:<28}{threads:>8}"
                    f"{result['kernel_ns']:>8} ({result['kernel_fastest_ns']:>5})"
                    f"{result['torch_ns']:>9} ({result['torch_fastest_ns']:>6}){result['speedup']:>10} x",
                    flush=True,
                )
                rows.append(result)
    if not arguments.no_result:
        path = machine.write_result(
            "kernels", rows, threads=arguments.threads, runs=RUNS, instruction_set=kernels.instruction_set()
        )
        print(f"\nwritten to {path.relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
