"""The origin of the docs' pages: counts its answers, says what it was asked, and gives products a tag. Arguments: port, name."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PORT, NAME = int(sys.argv[1]), sys.argv[2]
count = 0


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802 # the library's name
        global count
        count += 1
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = f"{NAME}: answer {count}, {self.command} {self.path}, Host {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        parts = urlsplit(self.path).path.split("/")
        if parts[1] == "products" and len(parts) > 2:
            self.send_header("Surrogate-Key", f"product-{parts[2]}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Origin).serve_forever()
