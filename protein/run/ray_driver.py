"""The process between a sweep and Ray: `python -m protein.run.ray_driver DESCRIPTOR`.

It is a process of its own because Ray ends the process that it is used from when its head dies, takes over the handling
of SIGTERM, and prints. The sweep survives all that: for it, the slots are lost. The two processes exchange messages
(`ray_messages`) through a socket. When the sweep's process ends, for any reason, this one ends, and Ray then ends what
it had started for it.
"""

import os
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection


def main(descriptor: int) -> int:
    """Serves the sweep at the other end of a socket until that closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep ends this process, after its trials
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Of a Ray that is started here. By default its workers give way to all other programs, and so would trials.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray  # reads its environment

    from protein.errors import ProteinError
    from protein.run import ray_cluster
    from protein.run.ray_fleet import Fleet
    from protein.run.ray_messages import Failure, Note

    connection = Connection(descriptor)
    first = connection.recv()
    fleet, connected = Fleet(connection, first), threading.Event()
    threading.Thread(target=listen, args=(connection, fleet.news, connected), daemon=True).start()
    try:
        started = ray_cluster.connect(first.address)
        nodes = ray_cluster.nodes_in_words(node for node in ray.nodes() if node["Alive"])
        how = "was started here, as none ran on this machine" if started else "is used"
        connection.send(Note(text=f"the Ray cluster at {ray_cluster.where()} {how}: {nodes}"))
        fleet.find_nodes()
        connected.set()
        fleet.run()
    except ProteinError as error:
        connection.send(Failure(message=str(error)))
        return error.exit_code
    finally:
        ray.shutdown()
    return 0


def listen(
    connection: Connection, news: "queue.SimpleQueue[tuple[object, object]]", connected: threading.Event
) -> None:
    """Puts the sweep's messages into the news; ends this process at once where the sweep ends before it is connected.

    That may take minutes on a busy machine, and Ray does not let itself be interrupted.
    """
    while True:
        try:
            news.put((None, connection.recv()))
        except (EOFError, OSError):
            if not connected.is_set():
                os._exit(1)
            news.put((None, None))
            return


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
