"""A Ray cluster for one disturbed sweep, as a process: prints its address, then follows lines of its input.

    kill    kills a node that runs trials, as `kill -9` does, and adds another one

It ends with its input.
"""

import sys

from ray_clusters import NodeProcess, RayCluster

CORES = 1  # of each node
NODES = 2


def main() -> None:
    cluster = RayCluster()
    nodes: list[NodeProcess] = []
    try:
        nodes += [NodeProcess(cluster.address, CORES) for _ in range(NODES)]
        print(cluster.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "kill":
                nodes.pop(0).kill()
                nodes.append(NodeProcess(cluster.address, CORES))
                print("killed", flush=True)
    finally:
        for node in nodes:
            node.kill()
        cluster.close()


if __name__ == "__main__":
    main()
