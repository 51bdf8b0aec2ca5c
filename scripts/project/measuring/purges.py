"""Purges, each an order of its own for a path that nobody asks for, at a fixed rate until SIGTERM. Says in JSON how many it made.

    purges.py SOCKET RATE HOST
"""

import json
import signal
import socket
import sys
import threading
import time

WORKERS = 4


def purge(path, host, number):
    order = {"method": "Purge", "hostname": host, "paths": [f"/nobody/{number}"], "tags": []}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(json.dumps({"gateway": None, "invalidation": order}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            more = connection.recv(65536)
            if not more:
                break
            answer += more
    said = json.loads(answer)
    return not said.get("error") and all(not one.get("e") for outcomes in said["outcomes"].values() for one in outcomes)


def main(path, rate, host):
    over, done, failed = threading.Event(), [], []
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    begun = time.monotonic()

    def work(first):
        for nth in range(first, 1 << 40, WORKERS):
            if over.wait(max(begun + nth / rate - time.monotonic(), 0)):
                return
            try:
                (done if purge(path, host, nth) else failed).append(nth)
            except (OSError, ValueError):
                failed.append(nth)

    workers = [threading.Thread(target=work, args=(first,)) for first in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"purges_per_second": round(len(done) / (time.monotonic() - begun), 1), "purges_failed": len(failed)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]), sys.argv[3])))
