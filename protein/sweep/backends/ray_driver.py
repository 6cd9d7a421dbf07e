"""The process between a sweep and Ray: `python -m protein.sweep.backends.ray_driver DESCRIPTOR`.

It is a process of its own because Ray ends the process that it is used from when its head dies, takes over the handling
of SIGTERM, and prints. The sweep survives all that: for it, the slots are lost. The two processes exchange messages
(`ray_messages`) through a socket. When the sweep's process ends, for any reason, this one ends, and Ray then ends what
it had started for it.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection


def main(descriptor: int) -> int:
    """Serves the sweep at the other end of a socket until that closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep ends this process, after its trials
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray  # reads its environment

    from protein.errors import ProteinError
    from protein.sweep.backends.ray_fleet import Fleet, connect
    from protein.sweep.backends.ray_messages import Failure

    connection = Connection(descriptor)
    first = connection.recv()
    try:
        connect(first.address)
        Fleet(connection, first).run()
    except ProteinError as error:
        connection.send(Failure(message=str(error)))
        return error.exit_code
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
