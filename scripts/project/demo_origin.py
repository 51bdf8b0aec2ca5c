"""A small origin for the demo: says its name, and what it was asked. Arguments: name, port. It exits when its standard input closes."""

import itertools
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME, PORT = sys.argv[1], int(sys.argv[2])
requests = itertools.count(1)


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        lines = [f"Hello from {NAME}, request {next(requests)}", f"{self.command} {self.path}"]
        lines += [f"{name.lower()}: {value}" for name, value in self.headers.items()]
        body = ("\n".join(lines) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Origin", NAME)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

    def log_message(self, *_):
        pass


def exit_with_parent():
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=exit_with_parent, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", PORT), Origin).serve_forever()
