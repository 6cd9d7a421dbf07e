"""Types of the compiled module. It checks every tensor; the modules beside this one say what the calls mean."""

from torch import Tensor

def set_threads(threads: int) -> None: ...
def get_threads() -> int: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> None: ...
def elementwise(function: int, x: Tensor, y: Tensor) -> None: ...
def advantages(
    rewards: Tensor,
    values: Tensor,
    ends: Tensor,
    ratios: Tensor | None,
    out: Tensor,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
) -> None: ...
def sample(logits: Tensor, uniform: Tensor, actions: Tensor, logprobs: Tensor) -> None: ...
def ppo_gradient(
    output: Tensor,
    actions: Tensor,
    logprobs: Tensor,
    advantages: Tensor,
    returns: Tensor,
    weights: Tensor | None,
    gradient: Tensor,
    count: float,
    clip: float,
    value: float,
    entropy: float,
) -> None: ...
def channels_last(images: Tensor, out: Tensor, scale: float) -> None: ...
def lstm_forward(
    inputs: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Tensor,
    state: Tensor,
    resets: Tensor,
    hidden: Tensor,
    after: Tensor | None,
    gates: Tensor | None,
    cells: Tensor | None,
) -> None: ...
def lstm_backward(
    inputs: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Tensor,
    state: Tensor,
    resets: Tensor,
    hidden: Tensor,
    gates: Tensor,
    cells: Tensor,
    by_hidden: Tensor,
    by_inputs: Tensor | None,
    by_w_ih: Tensor,
    by_w_hh: Tensor,
    by_bias: Tensor,
) -> None: ...
def mingru_forward(gate_logits: Tensor, candidates: Tensor, h0: Tensor, resets: Tensor, hidden: Tensor) -> None: ...
def mingru_backward(
    gate_logits: Tensor,
    candidates: Tensor,
    h0: Tensor,
    resets: Tensor,
    hidden: Tensor,
    by_hidden: Tensor,
    by_gates: Tensor,
    by_candidates: Tensor,
) -> None: ...
def linear_forward(inputs: Tensor, weight: Tensor, bias: Tensor, output: Tensor, relu: bool) -> None: ...
def linear_backward(
    inputs: Tensor,
    weight: Tensor | None,
    output: Tensor | None,
    by_output: Tensor,
    by_inputs: Tensor | None,
    by_weight: Tensor,
    by_bias: Tensor | None,
) -> None: ...
def attention_forward(
    projected: Tensor,
    rotation: Tensor | None,
    first: Tensor | None,
    mixed: Tensor,
    log_sums: Tensor,
    norm: bool,
    epsilon: float,
) -> None: ...
def attention_backward(
    projected: Tensor,
    rotation: Tensor | None,
    first: Tensor | None,
    mixed: Tensor,
    log_sums: Tensor,
    by_mixed: Tensor,
    by_projected: Tensor,
    norm: bool,
    epsilon: float,
) -> None: ...

class Mlp:
    def backward(
        self, observations: Tensor, by_output: Tensor, gradients: tuple[Tensor | None, ...], byte_scale: float
    ) -> None: ...

def mlp_forward(
    observations: Tensor, parameters: tuple[Tensor, ...], output: Tensor, keep: bool, byte_scale: float
) -> Mlp | None: ...

class LstmPolicy:
    def __init__(self, layers: tuple[Tensor, ...], w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> None: ...
    def step(
        self, observations: Tensor, state: Tensor, resets: Tensor, output: Tensor, after: Tensor | None
    ) -> None: ...
