"""Requests that are measured: at which of a server's entrances, and for what.

An entrance is a port of its own where a peer needs one (`hits` of nginx has a cache, `plain` has none). The gateway tells these requests apart by their path.
"""

from dataclasses import dataclass

from . import manifests

TLS = ("tls", "hits-tls")


@dataclass(frozen=True)
class Request:
    entrance: str
    path: str
    # Beside Host.
    headers: tuple = ()
    length: int = 1024

    @property
    def scheme(self):
        return "https" if self.entrance in TLS else "http"


_UNCACHED = f"{manifests.path(manifests.UNCACHED)}/object"
_CACHED = f"{manifests.path(manifests.CACHED)}/object"
_KEYED = f"{manifests.path(manifests.KEYED)}/object?page=2&utm_source=mail&category=shoes"

UNCACHED = Request("plain", _UNCACHED)
UNCACHED_16K = Request("plain", f"{manifests.path(manifests.UNCACHED)}/16k", length=16384)
UNCACHED_HTTP2 = Request("http2", _UNCACHED)
UNCACHED_TLS = Request("tls", _UNCACHED)
HITS = Request("hits", _CACHED)
HITS_16K = Request("hits", f"{manifests.path(manifests.CACHED)}/16k", length=16384)
# The script of the load appends the number of an object.
HITS_VARIED = Request("hits", f"{manifests.path(manifests.CACHED)}/varied/", ("Accept-Encoding: gzip",))
HITS_NUMBERED = Request("hits", f"{manifests.path(manifests.CACHED)}/numbered/")
HITS_TLS = Request("hits-tls", _CACHED)
HITS_KEYED = Request("hits", _KEYED, ("Accept-Language: de", "X-Device: phone"))
# Bodies of any size, and WebSockets.
ECHO = Request("echo", f"{manifests.path(manifests.ECHO)}/echo")
# The same origin behind listeners of TCP and UDP.
TCP = Request("tcp", ECHO.path)
UDP = Request("udp", ECHO.path)
# A call of a service behind a GRPCRoute.
GRPC = Request("grpc", "/bench.Echo/Unary")
