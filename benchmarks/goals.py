"""When an environment counts as solved in a benchmark: shared by `solve.py` and `peers/run.py`.

The goal is a mean score of the last finished training episodes: 100, or one for each agent where there are more. Our
own environments state theirs in their headers. For others the goal is the registry's, unless it is here: some
environments have none there, and some one that a plain PPO rarely reaches in the time that a benchmark has.
"""

from protein.trainer.environments import spec

GOALS = {
    "gym:BipedalWalker-v3": 250.0,  # walks to the end in most episodes; the registry's 300 needs all of them
    "gym:HalfCheetah-v5": 3000.0,  # runs; PPO's published averages after a million steps are half of it
    "gym:Hopper-v5": 2000.0,  # hops for most of an episode; one that only stands has about 1,000
    "gym:MiniGrid-DoorKey-8x8-v0": 0.9,  # the shortest way has about .97
    "gym:ALE/Pong-v5": 18.0,  # of 21: three points lost a game
    "pettingzoo:mpe2.simple_spread_v3": -13.0,  # random play has -26.6; a controller that steers each, -8.7
}


def goal(name: str) -> float:
    """Returns the mean score at which the environment `name`, as `--env` takes it, counts as solved."""
    return GOALS[name] if name in GOALS else spec(name).solved_score
