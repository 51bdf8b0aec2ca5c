"""h2spec against `serve` with dataPath Auto: HTTP/2 with prior knowledge on a plain port, and by ALPN on an HTTPS port.

    scripts/test h2spec             both ports; exit code 1 if a case fails
    scripts/test h2spec WORDS...    these parts of h2spec, e.g. http2/6.5 hpack

Takes target/debug/varnish-gateway (PROGRAM=path: another one). Go builds h2spec once, by its module proxy, into
${VG_CLUSTER_DIR:-~/.cache/vg-cluster}. Everything stays on loopback.
"""

import fcntl
import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ..cluster import CACHE, REPOSITORY

# The proxy has no other version of 2.2.
MODULE = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
BIN = CACHE / "bin"
PATIENCE = 60

MANIFESTS = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: varnish}}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {{group: gateway.varnish-software.com, kind: GatewayClassParameters, name: auto}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: auto}}
spec: {{dataPath: Auto}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: varnish
  listeners:
    - {{name: plain, protocol: HTTP, port: {plain}}}
    - {{name: tls, protocol: HTTPS, port: {tls}, tls: {{certificateRefs: [{{name: web}}]}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: web}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{certificate}
  tls.key: |
{key}
---
apiVersion: v1
kind: Service
metadata: {{name: origin}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: origin-1, labels: {{kubernetes.io/service-name: origin}}}}
addressType: IPv4
ports: [{{port: {origin}}}]
endpoints: [{{addresses: ["127.0.0.1"]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: all}}
spec:
  parentRefs: [{{name: web}}]
  rules: [{{backendRefs: [{{name: origin, port: 80}}]}}]
"""


def fail(why):
    raise SystemExit(f"scripts/test h2spec: {why}")


def find_h2spec():
    """Builds it, once; another run that builds it is waited for."""
    own = BIN / "h2spec"
    if own.exists():
        return own
    if not shutil.which("go"):
        fail("Go is not installed: install Go 1.26 or newer")
    BIN.mkdir(parents=True, exist_ok=True)
    with open(BIN / "h2spec.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not own.exists():
            print(f"scripts/test h2spec: building {MODULE}, once", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=BIN) as made:
                settings = {"GOBIN": made, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
                subprocess.run(
                    ["go", "install", "-trimpath", "-ldflags", "-s -w", MODULE],
                    env={**os.environ, **settings}, cwd=made, check=True,
                )
                os.replace(Path(made) / "h2spec", own)
    return own


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self.rfile.readline() or "0", 16):
                self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                pass
        else:
            self.rfile.read(int(self.headers.get("content-length", 0)))
        # Some cases want an answer that is longer than a small window.
        body = b"" if self.command == "HEAD" else b"x" * 64
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_OPTIONS = answer

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Cases break connections off."""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def certificate(directory):
    key, chain = directory / "tls.key", directory / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", chain],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    return tuple("".join(f"    {line}\n" for line in file.read_text().splitlines()) for file in (chain, key))


def wait_until_served(program, port, log):
    deadline = time.monotonic() + PATIENCE
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    while time.monotonic() < deadline and program.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                client.sendall(request)
                if client.recv(64).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            pass
        time.sleep(0.1)
    fail(f"the gateway does not serve:\n{log.read_text()}")


def run(h2spec, name, port, words):
    """Whether all cases pass."""
    tls = ["--tls", "--insecure"] if name == "TLS" else []
    command = [h2spec, "--strict", "--host", "localhost", "--port", str(port), "--timeout", "4", *tls, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    counts = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
    print(f"h2spec on the {name} port: {counts[0] if counts else 'no result'}")
    # Fewer cases than there are would be a result of h2spec, not of ours.
    too_few = not words and (not counts or int(counts[1]) < 140)
    if done.returncode != 0 or not counts or counts[4] != "0" or counts[3] != "0" or too_few:
        print(done.stdout.partition("Failures:")[2] or done.stdout, done.stderr, sep="\n")
        return False
    return True


def main():
    program = Path(os.environ.get("PROGRAM") or REPOSITORY / "target/debug/varnish-gateway")
    if not program.exists():
        fail(f"there is no {program}: cargo build --workspace")
    h2spec = find_h2spec()
    origin = Server(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="h2spec-") as made:
        directory = Path(made)
        # varnishd's own user must pass through.
        directory.chmod(0o755)
        ports = {"plain": free_port(), "tls": free_port(), "origin": origin.server_address[1]}
        chain, key = certificate(directory)
        manifests = directory / "all.yaml"
        manifests.write_text(MANIFESTS.format(certificate=chain, key=key, **ports))
        log = directory / "log"
        with log.open("w") as output:
            gateway = subprocess.Popen(
                [program, "serve", "--bind", "127.0.0.1", "-f", manifests, "--state-dir", directory / "state"],
                stdout=output, stderr=output, env={**os.environ, "DASHBOARD_ADDR": "off"},
            )
        try:
            wait_until_served(gateway, ports["plain"], log)
            words = sys.argv[1:]
            # A list: both run, whatever the first says.
            passed = [run(h2spec, name, ports[port], words) for name, port in (("plain", "plain"), ("TLS", "tls"))]
            if gateway.poll() is not None:
                fail(f"the gateway is gone:\n{log.read_text()}")
        finally:
            gateway.terminate()
            try:
                gateway.wait(30)
            except subprocess.TimeoutExpired:
                gateway.kill()
                gateway.wait()
    sys.exit(0 if all(passed) else 1)
