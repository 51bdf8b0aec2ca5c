"""Servers that are measured, and their origins. Each has its files in one directory."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from string import Template

from . import manifests
from . import processes

HERE = Path(__file__).parent
BODY = "x" * 1024
_UNVERIFIED = ssl._create_unverified_context()


class Server:
    """A process that answers on loopback ports."""

    name = "?"
    # By entrance; `port` for all others.
    ports = {}

    def __init__(self, directory, port, cores, command, **options):
        self.directory, self.port = directory, port
        self.log = open(directory / f"{type(self).__name__.lower()}.log", "ab+")
        self.process = processes.start(command, cores, self.log, **options)

    def port_of(self, request):
        return self.ports.get(request.entrance, self.port)

    def ready(self):
        processes.wait_for(self._answers, f"an answer of {self.name}: see {self.log.name}")
        return self

    def _answers(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended:\n{self.said()[-2000:]}")
        try:
            return self.get("/").status < 600
        except OSError:
            return False

    def get(self, path, host=manifests.host()):
        return _get(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10), path, {"Host": host})

    def check(self, request):
        """Whether the server answers the request as it should. HTTP/2, WebSockets and streams are checked by their load generators."""
        if request.entrance in ("http2", "echo", "tcp", "udp", "grpc"):
            return
        for _ in range(2):
            port = self.port_of(request)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            if request.scheme == "https":
                connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=_UNVERIFIED)
            headers = {"Host": manifests.host(), **dict(line.split(": ") for line in request.headers)}
            answer = _get(connection, request.path, headers)
            if answer.status != 200 or answer.body.decode() != "x" * request.length:
                raise RuntimeError(f"{self.name} answers {request.path} with {answer.status}, {len(answer.body)} bytes")

    @contextmanager
    def meanwhile(self):
        """What else happens while it is measured; what is found out about that is part of the result."""
        yield {}

    def said(self):
        return Path(self.log.name).read_text(errors="replace")

    def end(self):
        processes.end(self.process)
        self.log.close()


def _get(connection, path, headers):
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.body = answer.read()
        return answer
    finally:
        connection.close()


def filled(template, file, **values):
    """A configuration from its template beside this file."""
    file.write_text(Template((HERE / template).read_text()).substitute(values))
    return file


def certificate(directory):
    """Makes a key and a certificate, ECDSA P-256, once for all servers of a directory's parent."""
    key, certificate, both = (directory.parent / name for name in ("key.pem", "cert.pem", "both.pem"))
    if not both.exists():
        names = ["-subj", "/CN=bench", "-addext", f"subjectAltName=DNS:{manifests.host()}"]
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
        subprocess.run(["openssl", "req", *kind, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)
        both.write_text(certificate.read_text() + key.read_text())
    return certificate, key, both


class Origin(Server):
    name = "origin (nginx)"

    def __init__(self, directory, port):
        bodies = {"body": BODY, "body_16k": "$kib" * 16}
        conf = filled("origin.conf", directory / "origin.conf", dir=directory, port=port, **bodies)
        super().__init__(directory, port, processes.origin_cores(), ["nginx", "-p", directory, "-c", conf])

    def requests(self):
        """How many it has answered, this question included."""
        return int(self.get("/origin-status").body.split()[9])


class EchoOrigin(Server):
    name = "origin of WebSockets, large bodies and datagrams"
    program = None

    def __init__(self, directory, port):
        super().__init__(directory, port, processes.origin_cores(), [self.program, "origin", f"127.0.0.1:{port}"])


class GrpcOrigin(Server):
    name = "origin of gRPC calls"

    def __init__(self, directory, port):
        super().__init__(directory, port, processes.origin_cores(), [EchoOrigin.program, "grpc", f"127.0.0.1:{port}"])

    def _answers(self):
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0


class AnyOrigin(Server):
    name = "origin at every loopback address"

    def __init__(self, directory, port):
        super().__init__(directory, port, processes.origin_cores(), [sys.executable, HERE / "any_origin.py", port])


class Gateway(Server):
    """`varnish-gateway serve` with the manifests in `directory/manifests`."""

    name = "gateway, dataPath Varnish"
    program = None
    data_path = "Varnish"
    threads = 1
    # Of the measured uncached route.
    filters = ""
    # Further lines of its GatewayClassParameters.
    parameters = ""

    def __init__(self, directory, port, origin, echo=None, grpc=None, vcl=None):
        self.manifests = directory / "manifests"
        self.state = directory / "state" / "default_web"
        if echo:
            tls, stream = processes.free_ports(2)
            # TCP and UDP may have the same port.
            self.ports = {"tls": tls, "hits-tls": tls, "tcp": stream, "udp": stream}
            origins = (origin, echo, grpc or echo)
            manifests.write_measured(self.manifests, (port, tls, stream), origins, self.data_path, certificate(directory)[:2], self.filters, self.parameters)
        else:
            manifests.write(self.manifests, port, origin, vcl, self.data_path)
        command = [self.program, "--log", "json", "serve", "-f", self.manifests]
        command += ["--bind", "127.0.0.1", "--state-dir", directory / "state"]
        super().__init__(directory, port, processes.server_cores(self.threads), command)

    def events(self, kind):
        lines = (json.loads(line) for line in self.said().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == kind]

    def ready(self):
        processes.wait_for(self._listens, f"the gateway's start: see {self.log.name}", 120)
        return self

    def _listens(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended:\n{self.said()[-2000:]}")
        return self.events("listening") and self.events("reloaded")

    def reloaded(self, count, seconds=60):
        """Waits for that many reloads since the start."""
        processes.wait_for(lambda: len(self.events("reloaded")) >= count, f"reload {count}", seconds)


class Front(Gateway):
    """The front owns all ports and carries HTTP."""

    name = "gateway, dataPath Auto"
    data_path = "Auto"


class FrontWithFilters(Front):
    name = "gateway, dataPath Auto, three header filters"
    filters = manifests.THREE_FILTERS


class FrontWithMirror(Front):
    name = "gateway, dataPath Auto, one mirror"
    filters = manifests.ONE_MIRROR


class FrontWithPurges(Front):
    name = "gateway, dataPath Auto, 1,000 purges a second"
    WANTED = 1_000

    @contextmanager
    def meanwhile(self):
        socket_of_serve = self.directory / "state" / "control" / "serve.sock"
        command = [sys.executable, HERE / "purges.py", socket_of_serve, self.WANTED, manifests.host()]
        purges = processes.start(command, [processes.cores()[1]], self.log, stdout=subprocess.PIPE)
        found = {}
        try:
            yield found
        finally:
            purges.terminate()
            text = purges.communicate(timeout=30)[0]
            processes.end(purges)
        found.update(json.loads(text))


class FrontOfAMillion(Front):
    """Its cache has a million objects before it is measured."""

    name = "gateway, dataPath Auto, a million objects"
    parameters = manifests.FEW_HOT

    def ready(self):
        super().ready()
        url = f"http://127.0.0.1:{self.port}{manifests.path(manifests.CACHED)}/numbered/"
        command = ["wrk", "-t1", "-c32", "-d900s", "-s", HERE / "fill.lua", "-H", f"Host: {manifests.host()}", url]
        subprocess.run([str(word) for word in command], check=True, stdout=self.log)
        return self


class FrontOfAMillionWithoutHot(FrontOfAMillion):
    name = "gateway, dataPath Auto, a million objects, none hot"
    parameters = manifests.NONE_HOT


class FrontOnTwo(Front):
    name = "gateway, dataPath Auto, two threads"
    threads = 2


class Chaperone(Gateway):
    """`varnish-gateway chaperone`: what runs in a pod, without the reading and translating of Gateway API objects."""

    name = "chaperone"

    def __init__(self, directory, port, origin, main_vcl):
        self.directory = directory
        self.state = directory / "state"
        self.state.mkdir(mode=0o755)
        shutil.copy(main_vcl, directory / "main.vcl")
        self.routing = directory / "routing.json"
        self.endpoints = directory / "endpoints.yaml"
        manifests.place(self.routing, manifests.routing(port))
        manifests.place(self.endpoints, manifests.endpoints(origin))
        admin, health = processes.free_ports(2)
        environment = {
            **os.environ,
            "VARNISH_ADMIN_PORT": str(admin),
            "HEALTH_ADDR": f"127.0.0.1:{health}",
            "VARNISH_LISTEN": f"http-{port}=127.0.0.1:{port},http",
            "VCL_PATH": str(directory / "main.vcl"),
            "ROUTING_CONFIG_PATH": str(self.routing),
            "ENDPOINTS_PATH": str(self.endpoints),
            "WORK_DIR": str(self.state),
        }
        command = [self.program, "--log", "json", "chaperone"]
        Server.__init__(self, directory, port, processes.server_cores(), command, env=environment)
