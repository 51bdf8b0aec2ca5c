"""The configuration that is measured: 10,000 HTTPRoutes, each with a Service and an endpoint of its own.

1,000 hosts have 10 path prefixes each. Routes of one host in the middle are those that requests are measured on.
"""

import json
import os
from pathlib import Path

HOSTS, PATHS = 1_000, 10
# Paths of the measured host. The last one belongs to an origin of its own.
UNCACHED, CACHED, KEYED, ECHO = 5, 6, 7, 8
MEASURED = (HOSTS // 2, UNCACHED)
SOCKET = "http"
# HTTPRoutes and GRPCRoutes do not share hosts.
GRPC_HOST = "calls.example.com"

THREE_FILTERS = """
      filters:
        - type: RequestHeaderModifier
          requestHeaderModifier: {set: [{name: X-Tenant, value: shop}], remove: [X-Debug]}
        - type: ResponseHeaderModifier
          responseHeaderModifier: {add: [{name: X-Served-By, value: bench}]}
        - type: URLRewrite
          urlRewrite: {hostname: origin.example.com}"""

# To the same origin, on a connection of its own.
ONE_MIRROR = f"""
      filters:
        - type: RequestMirror
          requestMirror: {{backendRef: {{name: service-{MEASURED[0]}-{CACHED}, port: 80}}}}"""

# A million objects of 1 KiB, of which the front's memory holds less than a twentieth.
LARGE_STORAGE = "\n  storage: [{name: main, type: malloc, size: 5Gi}]"
FEW_HOT = f"{LARGE_STORAGE}\n  hotObjects: {{bytes: 52428800}}"
NONE_HOT = f"{LARGE_STORAGE}\n  hotObjects: {{enabled: false}}"

CACHING = """\
sub vcl_recv {
  unset req.http.X-Ghost-Pass;
}
sub vcl_backend_response {
  set beresp.ttl = 1h;
}
"""


def host(number=MEASURED[0]):
    return f"shop-{number}.example.com"


def path(number=MEASURED[1]):
    return f"/service-{number}"


def all_routes():
    return ((h, p) for h in range(HOSTS) for p in range(PATHS))


def address(h, p):
    """A loopback address of the endpoint's own; those of measured routes are where the origins listen."""
    if h == MEASURED[0] and p in (UNCACHED, CACHED, KEYED, ECHO):
        return "127.0.0.1"
    nth = h * PATHS + p
    return f"127.{1 + nth // 62_500}.{nth // 250 % 250}.{1 + nth % 250}"


def place(file, text):
    """Whole or not at all, as an editor or kubectl would."""
    beside = Path(file).with_name(f".{Path(file).name}.new")
    beside.write_text(text)
    os.rename(beside, file)


def gateway(port, vcl=None, data_path="Varnish", tls=None, stream=None, parameters=""):
    """`parameters` are further lines of the GatewayClassParameters."""
    reference = f"dataPath: {data_path}{parameters}"
    if vcl:
        reference += "\n  userVCLConfigMapRef: {name: bench-vcl}"
    config_map, https = "", ""
    if vcl:
        config_map = f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bench-vcl}}\ndata:\n  user.vcl: |\n{_indented(vcl)}"
    if tls:
        https = f"    - {{name: https, protocol: HTTPS, port: {tls}, tls: {{certificateRefs: [{{name: bench}}]}}}}\n"
    if stream:
        https += f"    - {{name: tcp, protocol: TCP, port: {stream}}}\n    - {{name: udp, protocol: UDP, port: {stream}}}\n"
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: varnish}}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {{group: gateway.varnish-software.com, kind: GatewayClassParameters, name: bench}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: bench}}
spec:
  {reference}
{config_map}---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: varnish
  listeners:
    - {{name: {SOCKET}, protocol: HTTP, port: {port}}}
{https}"""


def _indented(text):
    return "".join(f"    {line}\n" for line in text.splitlines())


def routes(mark=None, measured=""):
    """`mark` becomes a response header of the measured route, so that one can see which version serves; `measured` are its filters."""
    texts = []
    for h, p in all_routes():
        filters = measured if (h, p) == MEASURED else ""
        if (h, p) == MEASURED and mark is not None:
            filters = f"""
      filters:
        - type: ResponseHeaderModifier
          responseHeaderModifier: {{set: [{{name: X-Mark, value: "{mark}"}}]}}"""
        texts.append(f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: route-{h}-{p}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{host(h)}]
  rules:
    - matches: [{{path: {{type: PathPrefix, value: {path(p)}}}}}]{filters}
      backendRefs: [{{name: service-{h}-{p}, port: 80}}]
""")
    return "---\n".join(texts)


def services(port, echo=None):
    texts = (
        f"""\
apiVersion: v1
kind: Service
metadata: {{name: service-{h}-{p}}}
spec: {{ports: [{{port: 80, targetPort: {_port(h, p, port, echo)}}}]}}
"""
        for h, p in all_routes()
    )
    return "---\n".join(texts)


def _port(h, p, origin, echo):
    return echo if echo and (h, p) == (MEASURED[0], ECHO) else origin


def endpoints(port, moved=(), echo=None):
    """`moved` are routes whose endpoint is at another address: 127.0.0.2 for the measured, 126 further for others."""
    texts = []
    for h, p in all_routes():
        at = address(h, p)
        if (h, p) in moved:
            at = "127.0.0.2" if (h, p) == MEASURED else at.replace("127.1.", "127.2.", 1)
        texts.append(f"""\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: service-{h}-{p}-1
  labels: {{kubernetes.io/service-name: service-{h}-{p}}}
addressType: IPv4
ports: [{{port: {_port(h, p, port, echo)}}}]
endpoints: [{{addresses: ["{at}"]}}]
""")
    return "---\n".join(texts)


def write(directory, gateway_port, origin_port, vcl=None, data_path="Varnish"):
    directory.mkdir(mode=0o755)
    place(directory / "gateway.yaml", gateway(gateway_port, vcl, data_path))
    place(directory / "routes.yaml", routes())
    place(directory / "services.yaml", services(origin_port))
    place(directory / "endpoints.yaml", endpoints(origin_port))


def write_measured(directory, ports, origins, data_path, pems, filters="", parameters=""):
    """All that is measured at once: plain and TLS, uncached and cached routes, and one of the origin of WebSockets and large bodies."""
    directory.mkdir(mode=0o755)
    certificate, key = (_indented(pem.read_text()) for pem in pems)
    secret = f"""\
apiVersion: v1
kind: Secret
metadata: {{name: bench}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{certificate}  tls.key: |
{key}"""
    place(directory / "gateway.yaml", gateway(ports[0], None, data_path, *ports[1:], parameters))
    place(directory / "routes.yaml", routes(measured=filters))
    place(directory / "services.yaml", services(*origins[:2]))
    place(directory / "endpoints.yaml", endpoints(origins[0], echo=origins[1]))
    place(directory / "secret.yaml", secret)
    place(directory / "streams.yaml", streams(origins[1]))
    place(directory / "grpc.yaml", calls(origins[2]))
    place(directory / "policies.yaml", policy(CACHED) + "---\n" + policy(KEYED, KEY))


def streams(origin):
    """A TCPRoute and a UDPRoute to one origin."""
    routes = (
        f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: stream}}
spec:
  parentRefs: [{{name: web, sectionName: {name}}}]
  rules: [{{backendRefs: [{{name: stream, port: 7}}]}}]
"""
        for kind, name in (("TCPRoute", "tcp"), ("UDPRoute", "udp"))
    )
    ports = ", ".join(f"{{name: {name}, port: 7, protocol: {name.upper()}}}" for name in ("tcp", "udp"))
    service = f"apiVersion: v1\nkind: Service\nmetadata: {{name: stream}}\nspec: {{ports: [{ports}]}}\n"
    endpoints = f"""\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: stream-1, labels: {{kubernetes.io/service-name: stream}}}}
addressType: IPv4
ports: [{ports.replace("port: 7", f"port: {origin}")}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""
    return "---\n".join([*routes, service, endpoints])


def calls(origin):
    """A GRPCRoute to one server, for the measured host."""
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {{name: calls}}
spec:
  parentRefs: [{{name: web, sectionName: {SOCKET}}}]
  hostnames: [{GRPC_HOST}]
  rules: [{{matches: [{{method: {{service: bench.Echo}}}}], backendRefs: [{{name: calls, port: 80}}]}}]
---
apiVersion: v1
kind: Service
metadata: {{name: calls}}
spec: {{ports: [{{name: grpc, port: 80, appProtocol: kubernetes.io/h2c}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: calls-1, labels: {{kubernetes.io/service-name: calls}}}}
addressType: IPv4
ports: [{{name: grpc, port: {origin}, appProtocol: kubernetes.io/h2c}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""


KEY = """\
  cacheKey:
    headers: [Accept-Language, X-Device]
    queryParameters: {exclude: [utm_source]}
"""


def policy(p, key=""):
    """A cache policy for one route of the measured host."""
    return f"""\
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {{name: bench-{p}}}
spec:
  targetRef: {{group: gateway.networking.k8s.io, kind: HTTPRoute, name: route-{MEASURED[0]}-{p}}}
  forcedTTL: 1h
{key}"""


def routing(gateway_port, mark=None):
    """routing.json as the operator writes it, for the chaperone without `serve` around it."""
    socket = f"http-{gateway_port}"
    vhosts = {}
    for h, p in all_routes():
        route = {
            "hostname": host(h),
            "path_match": {"type": "PathPrefix", "value": path(p)},
            "backends": [{"service": f"service-{h}-{p}", "namespace": "default", "port": 80, "port_name": ""}],
            "listeners": [socket],
            "listener_names": [SOCKET],
            "route_name": f"default/route-{h}-{p}",
            "rule_index": 0,
        }
        vhosts.setdefault(host(h), {"routes": []})["routes"].append(route)
    listeners = [{"name": SOCKET, "socket": socket}]
    return json.dumps({"version": 3, "listeners": listeners, "vhosts": vhosts})
