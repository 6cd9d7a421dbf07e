"""The config file of training runs of a fraction of a second, for tests that sweep with our own trainer."""


def small_config(steps: int = 4_000, lowest: int = 1_000, highest: int = 8_000) -> str:
    """Returns the file's text.

    Args:
        steps: of the initial config.
        lowest: end of the range in which a sweep searches the steps.
        highest: the other end.
    """
    return f"""
[env]
num_envs = 16
[train]
threads = 1
horizon = 16
minibatch_size = 128
total_timesteps = {{ value = {steps}, min = {lowest}, max = {highest}, scale = "log" }}
[eval]
episodes = 8
num_envs = 8
"""
