"""A client that counts every failure: 1 KiB answers over kept connections, until SIGTERM.

    steady.py PORT CONNECTIONS PAUSE HOST PATH…

A connection rests PAUSE seconds after each answer. Says in JSON what it saw. Nothing is tried again: a connection that ends before the whole answer is a failed request.
"""

import json
import selectors
import signal
import socket
import sys
import time
from collections import Counter, deque

LENGTH = 1024
PATIENCE = 10.0


class Connection:
    def __init__(self, port, turn):
        self.port, self.turn = port, turn
        self.socket = None

    def ask(self, requests, seen):
        """Sends the next request; on a new connection where the server has asked for one."""
        request = requests[self.turn % len(requests)]
        self.turn += 1
        self.answer, self.begun = b"", time.monotonic()
        try:
            if self.socket is None:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
                seen["connections"] += 1
            self.socket.sendall(request)
        except OSError as error:
            self.drop()
            seen[f"failed: {type(error).__name__}"] += 1
            return False
        return True

    def read(self):
        """None while the answer is not whole; then the result of the request."""
        try:
            more = self.socket.recv(65536)
        except OSError as error:
            self.drop()
            return f"failed: {type(error).__name__}"
        if not more:
            self.drop()
            return "failed: closed in the middle" if self.answer else "failed: closed without an answer"
        self.answer += more
        head, whole, body = self.answer.partition(b"\r\n\r\n")
        if not whole:
            return None
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if len(body) < int(fields.get("content-length", LENGTH)):
            return None
        if fields.get("connection", "").lower() == "close":
            self.drop()
        status = lines[0].split()[1]
        return "ok" if status == "200" and len(body) == LENGTH else f"failed: {status}, {len(body)} bytes"

    def drop(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def main(port, count, pause, host, *paths):
    requests = [f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for path in paths]
    seen, slowest, waiting, resting = Counter(), 0.0, selectors.DefaultSelector(), deque()
    going = [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())

    def rest(connection):
        resting.append((time.monotonic() + float(pause), connection))

    for turn in range(int(count)):
        rest(Connection(int(port), turn))
    # What has begun is finished; it counts, too.
    while going or waiting.get_map():
        while going and resting and resting[0][0] <= time.monotonic():
            connection = resting.popleft()[1]
            if connection.ask(requests, seen):
                waiting.register(connection.socket, selectors.EVENT_READ, connection)
            else:
                rest(connection)
        for key, _ in waiting.select(0.001):
            outcome = key.data.read()
            if outcome:
                waiting.unregister(key.fileobj)
                seen[outcome] += 1
                slowest = max(slowest, time.monotonic() - key.data.begun)
                rest(key.data)
        late = [key for key in waiting.get_map().values() if time.monotonic() - key.data.begun > PATIENCE]
        for key in late:
            waiting.unregister(key.fileobj)
            key.data.drop()
            seen[f"failed: no answer within {PATIENCE:.0f} s"] += 1
            rest(key.data)
    return {"seen": dict(seen), "slowest_ms": round(slowest * 1e3, 1)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
