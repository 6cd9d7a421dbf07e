"""Types of the compiled module: addresses and sizes. `trainer.kernels` says what the calls mean, and checks."""

def set_threads(threads: int) -> None: ...
def get_threads() -> int: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> None: ...
def elementwise(function: int, x: int, y: int, size: int) -> None: ...
def advantages(
    rewards: int,
    values: int,
    ends: int,
    ratios: int,
    out: int,
    steps: int,
    agents: int,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
) -> None: ...
def sample(
    logits: int,
    stride: int,
    actions: int,
    batch: int,
    uniform: int,
    choices: int,
    choice_stride: int,
    logprobs: int,
) -> None: ...
def ppo_gradient(
    output: int,
    output_stride: int,
    actions: int,
    batch: int,
    choices: int,
    wide: bool,
    logprobs: int,
    values: int,
    advantages: int,
    returns: int,
    weights: int,
    gradient: int,
    gradient_stride: int,
    ratios: int,
    count: float,
    clip: float,
    clip_value: float,
    value: float,
    entropy: float,
) -> None: ...
def lstm_forward(
    gates_x: int,
    w_hh: int,
    h0: int,
    c0: int,
    resets: int,
    hidden: int,
    h: int,
    c: int,
    gates: int,
    cells: int,
    previous: int,
    steps: int,
    agents: int,
    units: int,
) -> None: ...
def lstm_backward(
    w_hh: int,
    c0: int,
    resets: int,
    gates: int,
    cells: int,
    by_hidden: int,
    by_gates: int,
    steps: int,
    agents: int,
    units: int,
) -> None: ...
def mingru_forward(
    gates: int,
    candidates: int,
    stride: int,
    h0: int,
    resets: int,
    hidden: int,
    steps: int,
    agents: int,
    units: int,
) -> None: ...
def mingru_backward(
    gates: int,
    candidates: int,
    stride: int,
    h0: int,
    resets: int,
    hidden: int,
    by_hidden: int,
    by_gates: int,
    by_candidates: int,
    steps: int,
    agents: int,
    units: int,
) -> None: ...
def linear_forward(
    x: int, weight: int, bias: int, y: int, batch: int, inputs: int, outputs: int, relu: bool
) -> None: ...
def linear_backward(
    x: int,
    weight: int,
    y: int,
    by_y: int,
    by_x: int,
    by_weight: int,
    by_bias: int,
    batch: int,
    inputs: int,
    outputs: int,
) -> None: ...

class Mlp:
    def __init__(self, layers: list[tuple[int, int, int, int]]) -> None: ...
    def forward(self, observations: int, batch: int, output: int, stride: int, keep: bool) -> None: ...
    def backward(
        self, observations: int, batch: int, by_output: int, stride: int, gradients: list[tuple[int, int]]
    ) -> None: ...
