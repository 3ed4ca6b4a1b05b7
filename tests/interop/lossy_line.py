"""A proxy of an object store that loses messages: python lossy_line.py PORT.

It prints its own port. Each line of its input, "request" or "answer", makes it lose that part of the next commit to a
Delta table, and end that connection; it prints "lost" then. It is a process, since delta-rs blocks all other threads.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from support.waiting import readable

COMMIT = re.compile(rb"PUT \S+/_delta_log/\d{20}\.json")
READ_BYTES = 1 << 16

orders: SimpleQueue[str] = SimpleQueue()


def main(target: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=accept, args=(listener, target), daemon=True).start()
        for line in sys.stdin:
            orders.put(line.strip())


def accept(listener: socket.socket, target: int) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, target), daemon=True).start()


def serve(client: socket.socket, target: int) -> None:
    loses = ""
    with suppress(OSError), client, socket.create_connection(("127.0.0.1", target)) as store:
        while True:
            for end in readable(client, store):
                received = end.recv(READ_BYTES)
                if end is client and COMMIT.search(received):
                    with suppress(Empty):
                        loses = orders.get_nowait()
                if loses == ("request" if end is client else "answer"):
                    print("lost", flush=True)
                    return
                if not received:
                    return
                (store if end is client else client).sendall(received)


if __name__ == "__main__":
    main(int(sys.argv[1]))
