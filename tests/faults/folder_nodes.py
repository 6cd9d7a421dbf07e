"""Two machines with a worker each for one disturbed sweep, as a process: prints their folder, then follows its input.

    kill    kills a worker, as `kill -9` does, and adds another one
    serve   kills the server so, and starts it again

The worker's own slots live on for a moment and give their trials back. It ends with its input. With "served" behind the
folder, there is a `protein serve` before it, and one of the two workers joins by its URL.
"""

import subprocess
import sys
from pathlib import Path

from ray_clusters import free_ports


def start(*words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "protein", *words], stdout=sys.stderr)


def main() -> None:
    folder, [port] = sys.argv[1], free_ports(1)
    serve = ["serve", folder, "--port", str(port), "--token-file", "token"]
    ways = [["worker", folder], ["worker", folder]]
    server: list[subprocess.Popen[bytes]] = []
    if "served" in sys.argv:
        Path("token").touch(0o600)
        Path("token").write_text("t" * 24)
        server = [start(*serve)]
        ways[0] = ["worker", f"http://127.0.0.1:{port}", "--token-file", "token"]
    workers = [(way, start(*way)) for way in ways]
    try:
        print(folder, flush=True)
        for line in sys.stdin:
            if line.strip() == "kill":
                way, killed = workers.pop(0)
                killed.kill()
                killed.wait()
                workers.append((way, start(*way)))
            elif server:
                killed = server.pop()
                killed.kill()
                killed.wait()
                server.append(start(*serve))
            print("killed", flush=True)
    finally:
        for process in [process for _, process in workers] + server:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
