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
