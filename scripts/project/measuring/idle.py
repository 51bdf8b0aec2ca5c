"""Memory for an idle connection: thousands of them, each after one request, without and with TLS."""

import os
import socket
import ssl
import time

from . import manifests
from . import processes
from .entrances import UNCACHED, UNCACHED_TLS
from .peers import Nginx
from .servers import Front, Origin

# So many come first: what a server allocates once is not counted.
FIRST = 1_000
MOST_PLAIN = 3.0


def idle(directory, plan):
    found = {}
    for kind in (Front, Nginx):
        for name, request in (("plain", UNCACHED), ("tls", UNCACHED_TLS)):
            place = directory / f"{kind.__name__.lower()}-{name}"
            place.mkdir(mode=0o755)
            one = _measure(place, kind, request, plan)
            plan.say(f"  {kind.name}, {name}: {one['kib']:.2f} KiB a connection")
            found.setdefault(kind.name, {})[name] = one
    ours, theirs = found[Front.name], found[Nginx.name]
    return {
        "connections": plan.idle,
        "settle_seconds": plan.settle,
        "found": found,
        "verdicts": [
            (f"idle: {Front.name}, an idle connection takes at most {MOST_PLAIN:.0f} KiB", f"{ours['plain']['kib']:.2f} KiB",
             ours["plain"]["kib"] <= MOST_PLAIN),
            (f"idle: {Front.name}, an idle TLS connection takes at most what nginx's takes",
             f"{ours['tls']['kib']:.2f} KiB, nginx {theirs['tls']['kib']:.2f} KiB", ours["tls"]["kib"] <= theirs["tls"]["kib"]),
        ],
    }  # fmt: skip


def _measure(place, kind, request, plan):
    """A new server, since one that was busy before has memory to spare."""
    at = place / "server"
    at.mkdir(mode=0o755)
    origin_port, unused, port = processes.free_ports(3)
    origin = Origin(place, origin_port).ready()
    server = kind(at, port, origin_port, unused).ready()
    server.check(request)
    connections = []
    try:
        connections += _open(server, request, FIRST)
        before = _settled(server, plan)
        connections += _open(server, request, plan.idle)
        after = _settled(server, plan)
        alive = sum(_is_open(one) for one in connections)
    finally:
        for one in connections:
            one.close()
    server.end()
    origin.end()
    if alive < len(connections):
        raise RuntimeError(f"{server.name} closed {len(connections) - alive} of {len(connections)} idle connections")
    return {"kib": (after - before) * 1024 / plan.idle, "before_mib": before, "after_mib": after}


def _settled(server, plan):
    """MiB, after idle connections were parked. Some requests go on meanwhile: allocators give pages back only while a program allocates."""
    deadline = time.monotonic() + plan.settle
    while time.monotonic() < deadline:
        for _ in range(20):
            server.get(UNCACHED.path)
        time.sleep(0.5)
    return processes.rss(processes.tree(server.process.pid))


def _open(server, request, count):
    context = ssl._create_unverified_context() if request.scheme == "https" else None
    asked = f"GET {request.path} HTTP/1.1\r\nHost: {manifests.host()}\r\n\r\n".encode()
    return [_ask(server.port_of(request), context, asked, request.length) for _ in range(count)]


def _ask(port, context, asked, length):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    if context:
        connection = context.wrap_socket(connection, server_hostname=manifests.host())
    connection.sendall(asked)
    answer = b""
    while len(answer.partition(b"\r\n\r\n")[2]) < length:
        more = connection.recv(65536)
        if not more:
            raise RuntimeError(f"the server closed a connection: {answer[:200]!r}")
        answer += more
    return connection


def _is_open(connection):
    """Looks at the socket below TLS, which may have session tickets to read."""
    with socket.socket(fileno=os.dup(connection.fileno())) as below:
        below.setblocking(False)
        try:
            return below.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
