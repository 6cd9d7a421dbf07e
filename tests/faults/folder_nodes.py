"""Two machines with a worker each for one disturbed sweep, as a process: prints their folder, then follows its input.

    kill    kills a worker, as `kill -9` does, and adds another one

The worker's own slots live on for a moment and give their trials back. It ends with its input.
"""

import subprocess
import sys

WORKERS = 2


def main() -> None:
    folder = sys.argv[1]
    command = [sys.executable, "-m", "protein", "worker", folder]
    workers = [subprocess.Popen(command, stdout=sys.stderr) for _ in range(WORKERS)]
    try:
        print(folder, flush=True)
        for line in sys.stdin:
            if line.strip() == "kill":
                killed = workers.pop(0)
                killed.kill()
                killed.wait()
                workers.append(subprocess.Popen(command, stdout=sys.stderr))
                print("killed", flush=True)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


if __name__ == "__main__":
    main()
