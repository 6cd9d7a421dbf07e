"""A Ray cluster for one disturbed sweep, as a process: prints its address, then follows lines of its input.

    kill    kills a node that runs trials, as `kill -9` does, and adds another one

It ends with its input.
"""

import sys

from ray_clusters import RayCluster

CORES = 1  # of each node
NODES = 2


def main() -> None:
    cluster = RayCluster()
    try:
        nodes = [cluster.add(CORES) for _ in range(NODES)]
        print(cluster.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "kill":
                cluster.kill(nodes.pop(0))
                nodes.append(cluster.add(CORES))
                print("killed", flush=True)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
