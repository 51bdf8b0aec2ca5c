"""The servers that are compared, and their origin. Each runs on a core of its own kind, with its files in one directory."""

import http.client
import json
import os
import shutil
import sys
from pathlib import Path
from string import Template

import manifests
import processes

HERE = Path(__file__).parent
BODY = "x" * 1024


class Server:
    """A process that answers on a loopback port."""

    name = "?"
    # What requests have beside path and host.
    query = ""
    headers = ()

    def __init__(self, directory, port, core, command, **options):
        self.directory, self.port = directory, port
        self.log = open(directory / f"{type(self).__name__.lower()}.log", "ab+")
        self.process = processes.start(command, core, self.log, **options)

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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            answer.body = answer.read()
            return answer
        finally:
            connection.close()

    def said(self):
        return Path(self.log.name).read_text(errors="replace")

    def end(self):
        processes.end(self.process)
        self.log.close()


def filled(template, file, **values):
    """A configuration out of its template beside this file."""
    file.write_text(Template((HERE / template).read_text()).substitute(values))
    return file


class Origin(Server):
    name = "origin (nginx)"

    def __init__(self, directory, port):
        conf = filled("origin.conf", directory / "origin.conf", dir=directory, port=port, body=BODY)
        super().__init__(directory, port, processes.cores()[2], ["nginx", "-p", directory, "-c", conf])

    def requests(self):
        """How many it has answered, this question included."""
        return int(self.get("/origin-status").body.split()[9])


class AnyOrigin(Server):
    name = "origin at every loopback address"

    def __init__(self, directory, port):
        super().__init__(directory, port, processes.cores()[2], [sys.executable, HERE / "any_origin.py", port])


class Bare(Server):
    name = "bare varnishd"

    def __init__(self, directory, port, origin, vcl):
        file = filled(vcl, directory / vcl, origin=origin)
        state = directory / "bare"
        command = ["varnishd", "-F", "-n", state, "-a", f"127.0.0.1:{port}", "-f", file]
        super().__init__(directory, port, processes.cores()[0], command)


class Nginx(Server):
    name = "nginx"

    def __init__(self, directory, port, origin, cached):
        cache = "proxy_cache bench; proxy_cache_valid 200 1h;" if cached else ""
        conf = filled(
            "nginx.conf", directory / "nginx.conf", dir=directory, port=port, origin=origin, cache=cache
        )
        super().__init__(directory, port, processes.cores()[0], ["nginx", "-p", directory, "-c", conf])


class Haproxy(Server):
    name = "haproxy"

    def __init__(self, directory, port, origin, cached):
        use, store = "http-request cache-use bench", "http-response cache-store bench"
        lines = {"use": use, "store": store} if cached else {"use": "", "store": ""}
        conf = filled("haproxy.cfg", directory / "haproxy.cfg", port=port, origin=origin, **lines)
        super().__init__(directory, port, processes.cores()[0], ["haproxy", "-db", "-f", conf])


class Gateway(Server):
    """`varnish-gateway serve` with the manifests in `directory/manifests`."""

    name = "gateway"
    program = None
    data_path = "Varnish"

    def __init__(self, directory, port, origin, vcl=None, policy=None):
        self.manifests = directory / "manifests"
        self.state = directory / "state" / "default_web"
        manifests.write(self.manifests, port, origin, vcl, self.data_path)
        if policy:
            manifests.place(self.manifests / "policy.yaml", policy)
        command = [self.program, "--log", "json", "serve", "-f", self.manifests]
        command += ["--bind", "127.0.0.1", "--state-dir", directory / "state"]
        super().__init__(directory, port, processes.cores()[0], command)

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
    """The same with `dataPath: Auto`: the front owns the port and carries HTTP."""

    name = "gateway, dataPath Auto"
    data_path = "Auto"


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
        Server.__init__(self, directory, port, processes.cores()[0], command, env=environment)
