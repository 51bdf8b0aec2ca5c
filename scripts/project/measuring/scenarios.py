"""What is measured in rounds, beside which servers, with which goals."""

from dataclasses import dataclass
from typing import Callable

from . import entrances
from . import load
from .entrances import Request
from .goals import Cpu, Flat, Latency, Ratio
from .peers import Bare, Envoy, Haproxy, Nginx, NginxOnTwo, NginxStream
from .servers import Front, FrontOnTwo, FrontWithFilters, FrontWithMirror, FrontWithPurges, Gateway


@dataclass
class Scenario:
    name: str
    title: str
    request: Request
    # Of the plan.
    generator: Callable
    servers: list
    goals: list
    # Whether the origin must be asked for every request (True), for none (False), or is another one (None).
    asks_origin: bool | None = True
    # So many times as long as the plan says.
    warm_up: int = 1
    # Of what the slowest server can do, as a fixed rate.
    share: float = 0
    # Servers with two threads run on the load's core, too.
    two_cores: bool = False
    note: str = ""


def wrk(connections):
    return lambda plan: load.Wrk(connections)


def transfer(name):
    return lambda plan: load.Transfer(name, plan.gibibytes)


SCENARIOS = [
    Scenario(
        "uncached-4", "Uncached, 1 KiB, 4 connections", entrances.UNCACHED, wrk(4),
        [Front, Nginx, Envoy], [Ratio(Front, Nginx, 1.0), Ratio(Front, Envoy, 2.2)],
    ),
    Scenario(
        "uncached-32", "Uncached, 1 KiB, 32 connections", entrances.UNCACHED, wrk(32),
        [Front, Gateway, Bare, Nginx, Haproxy, Envoy],
        [Ratio(Front, Nginx, 1.0), Ratio(Front, Envoy, 2.2), Ratio(Gateway, Bare, 0.95)],
        note="Bare varnishd says `return (pass)`.",
    ),
    Scenario(
        "uncached-256", "Uncached, 1 KiB, 256 connections", entrances.UNCACHED, wrk(256),
        [Front, Nginx, Haproxy, Envoy], [Ratio(Front, Nginx, 0.9), Ratio(Front, Envoy, 2.2)],
    ),
    Scenario(
        "uncached-16k", "Uncached, 16 KiB, 32 connections", entrances.UNCACHED_16K, wrk(32),
        [Front, Nginx, Haproxy], [Ratio(Front, Nginx, 1.0)],
    ),
    Scenario(
        "uncached-http2", "Uncached, 1 KiB, HTTP/2, 8 connections with 16 streams", entrances.UNCACHED_HTTP2,
        lambda plan: load.H2load(8, 16), [Front, Nginx, Haproxy], [Ratio(Front, Nginx, 1.2)],
        note="Without TLS (prior knowledge). The origin is asked by HTTP/1.1.",
    ),
    Scenario(
        "uncached-tls", "Uncached, 1 KiB, TLS 1.3, 32 connections", entrances.UNCACHED_TLS, wrk(32),
        [Front, Nginx, Haproxy], [Ratio(Front, Nginx, 1.0)],
        note="The same certificate (ECDSA P-256) for all servers, HTTP/1.1, connections kept.",
    ),
    Scenario(
        "filters", "Uncached, 1 KiB, 32 connections, with filters and without", entrances.UNCACHED, wrk(32),
        [Front, FrontWithFilters], [Ratio(FrontWithFilters, Front, 0.97)],
        note="The filters: set a request header and remove one, add a response header, rewrite the host.",
    ),
    Scenario(
        "mirror", "Uncached, 1 KiB, 32 connections, with a mirror and without", entrances.UNCACHED, wrk(32),
        [Front, FrontWithMirror], [Ratio(FrontWithMirror, Front, 0.9)], asks_origin=None,
        note="Every request goes to a second backend, too, which is the same origin. Copies have the lowest priority, so a core that is fully busy drops most of them: `origin_requests` less `count` were sent.",
    ),
    Scenario(
        "grpc", "gRPC: unary calls, 8 connections with 16 streams", entrances.GRPC, lambda plan: load.Calls(8, 16),
        [Front, Nginx, Envoy], [Ratio(Front, Nginx, 1.0), Ratio(Front, Envoy, 2.0)], asks_origin=None,
        note="Messages of 32 bytes, HTTP/2 without TLS on both sides; nginx by `grpc_pass`. The server echoes.",
    ),
    Scenario(
        "hits-32", "Cache hits, 1 KiB, 32 connections", entrances.HITS, wrk(32),
        [Front, Gateway, Bare, Nginx, Haproxy], [Ratio(Front, Bare, 0.65), Ratio(Gateway, Bare, 0.97)], asks_origin=False,
        note="The gateways cache by a VarnishCachePolicy (`forcedTTL`), bare varnishd by its VCL.",
    ),
    Scenario(
        "hits-256", "Cache hits, 1 KiB, 256 connections", entrances.HITS, wrk(256),
        [Front, Gateway, Bare], [Ratio(Front, Bare, 0.5)], asks_origin=False,
    ),
    Scenario(
        "hits-tls", "Cache hits, 1 KiB, TLS 1.3, 32 connections", entrances.HITS_TLS, wrk(32),
        [Front, Gateway, Nginx], [Ratio(Front, Gateway, 1.0)], asks_origin=False,
        note="With `dataPath: Varnish` the front terminates TLS and relays bytes to varnishd.",
    ),
    *(
        Scenario(
            f"hot-{connections}", f"Hot objects: one, 1 KiB, {connections} connections", entrances.HITS, wrk(connections),
            [Front, Nginx, Haproxy], [Ratio(Front, Nginx, 1.5), Ratio(Front, Haproxy, of_haproxy)], asks_origin=False,
        )
        for connections, of_haproxy in ((4, 0.95), (32, 0.95), (256, 1.1))
    ),
    Scenario(
        "hot-zipf", "Hot objects: 10,000 by Zipf's law (0.9), 1 KiB, Vary: Accept-Encoding, 32 connections", entrances.HITS_VARIED,
        lambda plan: load.Wrk(32, "zipf.lua"), [Front, Nginx], [Ratio(Front, Nginx, 1.3)], asks_origin=None, warm_up=12,
        note="Before each run the same load goes on for twelve seconds, so that caches have the objects.",
    ),
    Scenario(
        "hot-16k", "Hot objects: one, 16 KiB, 32 connections", entrances.HITS_16K, wrk(32),
        [Front, Nginx], [Ratio(Front, Nginx, 1.2)], asks_origin=False,
    ),
    Scenario(
        "hot-tls", "Hot objects: one, 1 KiB, TLS 1.3, 32 connections", entrances.HITS_TLS, wrk(32),
        [Front, Nginx], [Ratio(Front, Nginx, 1.2)], asks_origin=False,
    ),
    Scenario(
        "hot-http2-tls", "Hot objects: one, 1 KiB, HTTP/2 with TLS 1.3, 8 connections with 16 streams", entrances.HITS_TLS,
        lambda plan: load.H2load(8, 16), [Front, Nginx], [Ratio(Front, Nginx, 1.2)], asks_origin=False,
    ),
    Scenario(
        "hot-purges", "Hot objects: one, 1 KiB, 32 connections, while others are purged", entrances.HITS, wrk(32),
        [Front, FrontWithPurges], [Ratio(FrontWithPurges, Front, 0.8)], asks_origin=False,
        note="Each purge is an order of its own to `serve`, for a path that nobody asks for. The CPU time of purges is part of the requests' here.",
    ),
    Scenario(
        "hits-key", "Cache hits with a key of parameters and headers, 32 connections", entrances.HITS_KEYED, wrk(32),
        [Front, Gateway, Bare], [Ratio(Gateway, Bare, 0.85)], asks_origin=False,
        note="The policy excludes a query parameter from the key and adds two headers; requests have three parameters and both headers. Bare varnishd gets the same requests.",
    ),
    Scenario(
        "websocket", "WebSocket messages to an echo server and back, 32 connections", entrances.ECHO,
        lambda plan: load.WebSocket(32), [Front, Nginx, Haproxy], [Ratio(Front, Nginx, 0.9)], asks_origin=None,
        note="64 bytes a message. Each connection sends its next message when the last one has come back.",
    ),
    Scenario(
        "download", "A large body down one connection", entrances.ECHO, transfer("download"),
        [Front, Nginx], [Ratio(Front, Nginx, 0.9), Flat(Front)], asks_origin=None, warm_up=0,
    ),
    Scenario(
        "upload", "A large body up one connection", entrances.ECHO, transfer("upload"),
        [Front, Nginx], [Ratio(Front, Nginx, 0.9), Flat(Front)], asks_origin=None, warm_up=0,
        note="nginx does not buffer requests (`proxy_request_buffering off`).",
    ),
    Scenario(
        "tcp-download", "A TCPRoute: bytes from the backend, one connection", entrances.TCP, transfer("download"),
        [Front, Haproxy], [Ratio(Front, Haproxy, 0.95), Flat(Front)], asks_origin=None, warm_up=0,
        note="HAProxy in `mode tcp`: no proxy reads the bytes.",
    ),
    Scenario(
        "tcp-upload", "A TCPRoute: bytes to the backend, one connection", entrances.TCP, transfer("upload"),
        [Front, Haproxy], [Ratio(Front, Haproxy, 0.95), Flat(Front)], asks_origin=None, warm_up=0,
    ),
    Scenario(
        "udp-echo", "A UDPRoute: datagrams to an echo server and back, 32 sockets", entrances.UDP,
        lambda plan: load.Datagrams(32), [Front, NginxStream], [Ratio(Front, NginxStream, 0.9)], asks_origin=None,
        note="64 bytes a datagram. Each socket sends its next datagram when the last one has come back.",
    ),
    Scenario(
        "latency", "p99 at 70 % load, uncached, 1 KiB", entrances.UNCACHED, lambda plan: load.Rate(64, 1000.0),
        [Front, Nginx], [Latency(Front, Nginx, 1.2)], share=0.7,
        note="All servers get the same rate: 70 % of what the slower one had a moment before with `wrk -c32`. Latency counts from the time at which a request was due.",
    ),
    Scenario(
        "two-threads", "CPU per request with two threads, uncached, 1 KiB, 32 connections", entrances.UNCACHED, wrk(32),
        [Front, FrontOnTwo, Nginx, NginxOnTwo], [Cpu(FrontOnTwo, Front, 1.1)], two_cores=True,
        note="With fewer than four cores, the second thread shares its core with load and origin: its caches are theirs, too, and it is woken less often while it waits for the core. nginx with two workers shows what such sharing costs by itself. On such a machine this row tells whether threads get into each other's way, not how throughput grows.",
    ),
]  # fmt: skip


def available():
    """The scenarios, without servers whose programs are not installed."""
    found = []
    for scenario in SCENARIOS:
        if not Envoy.program:
            scenario.servers = [kind for kind in scenario.servers if kind is not Envoy]
            scenario.goals = [goal for goal in scenario.goals if Envoy not in goal.servers()]
        found.append(scenario)
    return found
