"""Pages that are written from what the code says: our CRDs, and the features of the Gateway API."""

import re

import yaml
from .pages import DOCS, REPOSITORY

WRITTEN = "<!-- Written by `scripts/generate docs`: do not edit. -->\n"
ALERTS = DOCS / "reference/alerts.yaml"
MONITORING = DOCS / "operations/monitoring.md"
PAGES = {
    "gatewayclassparameters": "gatewayclassparameters.md",
    "varnishcachepolicies": "varnishcachepolicies.md",
    "varnishcacheinvalidations": "varnishcacheinvalidations.md",
}


def written():
    """Path to text."""
    pages = {DOCS / "reference/crds.md": crds(), DOCS / "reference/features.md": features()}
    if ALERTS.exists():
        pages[MONITORING] = monitoring()
        # helm reads what is in the chart alone.
        pages[REPOSITORY / "charts/varnish-gateway/alerts.yaml"] = ALERTS.read_text()
    return pages


# --- alerts: the file is what Prometheus reads, the page shows it


def monitoring():
    page = MONITORING.read_text()
    begin = page.index("```yaml rules\n") + len("```yaml rules\n")
    return page[:begin] + ALERTS.read_text().rstrip("\n") + "\n" + page[page.index("```\n", begin) :]


# --- CRDs


def crds():
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((REPOSITORY / "deploy/crds").glob("*.yaml"))]
    if not definitions:
        raise SystemExit("scripts/generate docs: there is no CRD in deploy/crds")
    kinds = ", ".join(f"[{d['spec']['names']['kind']}](#{d['spec']['names']['kind'].lower()})" for d in definitions)
    parts = [
        "# Custom resources: all fields\n",
        WRITTEN,
        f"Every field of our kinds, from the Rust types by way of `deploy/crds`: {kinds}. **Bold** fields must be given. What the fields do, with defaults and examples, is on "
        "the page of each kind. `varnish-gateway crds` prints the definitions themselves.\n",
    ]
    return "\n".join(parts + [kind(definition) for definition in definitions])


def kind(definition):
    spec = definition["spec"]
    names = spec["names"]
    parts = [f"## {names['kind']}\n"]
    for version in spec["versions"]:
        scope = "cluster-wide" if spec["scope"] == "Cluster" else "in a namespace"
        short = ", ".join(f"`{name}`" for name in names.get("shortNames", []))
        parts.append(f"`{spec['group']}/{version['name']}`, {scope}, short name {short}. [What it does]({PAGES[names['plural']]}).\n")
        schema = version["schema"]["openAPIV3Schema"]
        for top in ("spec", "status"):
            if top in schema["properties"]:
                parts.append("| field | type | |\n|---|---|---|")
                parts += rows(top, schema["properties"][top], top in schema.get("required", []))
                parts.append("")
    return "\n".join(parts)


def rows(path, schema, required):
    yield row(path, schema, required)
    while schema.get("type") == "array":
        schema, path = schema["items"], f"{path}[]"
    for name, child in schema.get("properties", {}).items():
        yield from rows(f"{path}.{name}", child, name in schema.get("required", []))
    values = schema.get("additionalProperties")
    if isinstance(values, dict) and values.get("properties"):
        yield from rows(f"{path}.*", values, False)


def row(path, schema, required):
    name = f"**`{path}`**" if required else f"`{path}`"
    return f"| {name} | {kind_of(schema)} | {cell(about(schema))} |"


def kind_of(schema):
    if schema.get("x-kubernetes-int-or-string"):
        return "number or text"
    what = schema.get("type", "anything")
    if what == "array":
        return f"list of {kind_of(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map to {kind_of(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "time"
    return {"string": "text", "integer": "number", "object": "object"}.get(what, what)


def about(schema):
    """Its description, and what the API server refuses, in words."""
    said = [" ".join(schema.get("description", "").split())]
    element = schema
    while element.get("type") == "array":
        element = element["items"]
    if element is not schema and not schema.get("description"):
        said.append(" ".join(element.get("description", "").split()))
    if "default" in schema:
        said.append(f"Default: `{schema['default']}`.")
    if "enum" in element:
        said.append("One of " + ", ".join(f"`{value}`" for value in element["enum"]) + ".")
    said.append(bounds(schema))
    if element.get("pattern"):
        said.append(f"Matches `{element['pattern']}`.")
    if schema.get("x-kubernetes-preserve-unknown-fields") and "as in a Pod" not in said[0].lower().replace("pod", "Pod"):
        said.append("As in a Pod.")
    rules = schema.get("x-kubernetes-validations", [])
    said += ["Checked: " + "; ".join(rule["message"] for rule in rules) + "."] if rules else []
    return " ".join(part for part in said if part)


def bounds(schema):
    names = (("minimum", "at least {}"), ("maximum", "at most {}"), ("minItems", "at least {} of them"), ("maxItems", "at most {} of them"),
             ("maxProperties", "at most {} of them"), ("maxLength", "at most {} characters"))  # fmt: skip
    found = [text.format(f"{schema[name]:g}") for name, text in names if name in schema]
    return (", ".join(found).capitalize() + ".") if found else ""


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


# --- features


# What each feature of the Gateway API is, in a few words. A feature without words, or words without a feature, is an error.
FEATURES = {
    "BackendTLSPolicy": "TLS to backends, verified",
    "BackendTLSPolicySANValidation": "`subjectAltNames` of a BackendTLSPolicy",
    "Gateway": "Gateways, listeners, their statuses",
    "GatewayBackendClientCertificate": "`tls.backend.clientCertificateRef`: the gateway's own certificate to backends",
    "GatewayFrontendClientCertificateValidation": "`tls.frontend`: certificates of clients",
    "GatewayFrontendClientCertificateValidationInsecureFallback": "its mode `AllowInsecureFallback`",
    "GatewayHTTPListenerIsolation": "the most specific listener takes a request, and no other",
    "GatewayHTTPSListenerDetectMisdirectedRequests": "421 for a request on a connection of another name",
    "GatewayInfrastructure": "labels and annotations for what is made for a Gateway",
    "GatewayPort8080": "listeners on port 8080",
    "GRPCRoute": "calls by service, method and headers, with the filters of HTTPRoutes",
    "GRPCRouteNamedRouteRule": "`rules[].name` of a GRPCRoute",
    "GatewayAddressEmpty": "`addresses` without a value",
    "GatewayStaticAddresses": "`addresses` of type IPAddress",
    "HTTPRoute": "hosts, paths, headers, weights, request headers, redirects",
    "HTTPRoute303RedirectStatusCode": "redirects with 303",
    "HTTPRoute307RedirectStatusCode": "redirects with 307",
    "HTTPRoute308RedirectStatusCode": "redirects with 308",
    "HTTPRouteBackendProtocolH2C": "HTTP/2 to backends with `appProtocol: kubernetes.io/h2c`",
    "HTTPRouteBackendProtocolWebSocket": "WebSocket to backends with `appProtocol: kubernetes.io/ws`",
    "HTTPRouteBackendRequestHeaderModification": "filters of a single backendRef",
    "HTTPRouteBackendTimeout": "`timeouts.backendRequest`",
    "HTTPRouteCORS": "CORS",
    "HTTPRouteDestinationPortMatching": "`parentRefs[].port`, on the port a request came to",
    "HTTPRouteHostRewrite": "URLRewrite of the host",
    "HTTPRouteMethodMatching": "`matches[].method`",
    "HTTPRouteNamedRouteRule": "`rules[].name`",
    "HTTPRouteParentRefPort": "`parentRefs[].port`",
    "HTTPRoutePathRedirect": "redirects of the path",
    "HTTPRoutePathRewrite": "URLRewrite of the path",
    "HTTPRoutePortRedirect": "redirects to another port",
    "HTTPRouteQueryParamMatching": "`matches[].queryParams`",
    "HTTPRouteRequestMirror": "RequestMirror",
    "HTTPRouteRequestMultipleMirrors": "several mirrors of a rule",
    "HTTPRouteRequestPercentageMirror": "mirrors of a share of requests",
    "HTTPRouteRequestTimeout": "`timeouts.request`",
    "HTTPRouteResponseHeaderModification": "ResponseHeaderModifier",
    "HTTPRouteRetry": "`retry`: codes and attempts",
    "HTTPRouteRetryBackendTimeout": "`retry` after `timeouts.backendRequest`",
    "HTTPRouteRetryConnectionError": "`retry` after lost and refused connections",
    "HTTPRouteSchemeRedirect": "redirects to https",
    "ListenerSet": "listeners that ListenerSets add to a Gateway",
    "ReferenceGrant": "references into other namespaces",
    "TCPRoute": "TCP listeners and their backends",
    "TLSRoute": "TLSRoute, passed through",
    "TLSRouteModeMixed": "listeners of both modes side by side",
    "TLSRouteModeTerminate": "TLSRoute, decrypted by the gateway",
    "UDPRoute": "UDP listeners and their backends",
}


# Features of the suite v1.6.3 that no GatewayClass declares, and why.
NOT_DECLARED = {
    "`Mesh` and `MeshClusterIPMatching`, `MeshConsumerRoute`, `MeshHTTPRoute…`": "profiles of service meshes: routes whose parent is a Service. This is a gateway, and such routes are left to the mesh",
}


def features():
    source = (REPOSITORY / "crates/translate/src/features.rs").read_text()
    supported = re.findall(r'^    "(\w+)",$', source, re.M)
    experimental = re.findall(r'"(\w+)"', re.search(r"EXPERIMENTAL: \[&str; \d+\] =\s*\[(.*?)\];", source, re.S)[1])
    oldest, newest = re.search(r"MINOR_VERSIONS.* = (\d+)\.\.=(\d+);", source).groups()
    if len(supported) != int(re.search(r"SUPPORTED: \[&str; (\d+)\]", source)[1]):
        raise SystemExit("scripts/generate docs: crates/translate/src/features.rs is not in the form that this script reads")
    for name in set(supported + experimental) ^ set(FEATURES):
        raise SystemExit(f"scripts/generate docs: feature {name}: it must be in features.rs and, with a few words, in scripts/project/pages/reference.py")
    parts = [
        "# Supported features of the Gateway API\n",
        WRITTEN,
        f"The Gateway API's CRDs of versions 1.{oldest} to 1.{newest}. Every GatewayClass of ours says in `status.supportedFeatures` what is in these tables, and the conformance suite tests just that "
        "(`make test-conformance`; with the CRDs of the experimental channel `make test-conformance-experimental`; the reports of both are in [results](../results)). "
        "An object that uses a feature that is not supported says so in its status. "
        "What is missing in plain words: [routing](routing.md), [TLS](tls.md), and [compared with other gateways](../comparison.md).\n",
        "| feature | what it is |\n|---|---|",
    ]
    parts += [f"| `{name}` | {FEATURES[name]} |" for name in supported]
    parts += [
        "\n## With the CRDs of the experimental channel\n",
        "The fields of these features are in no CRD of the standard channel: the API server would drop them. The operator looks at the annotation `gateway.networking.k8s.io/channel` of the HTTPRoute CRD, and declares them where it says `experimental`. "
        "`serve` and `check` read the fields of both channels.\n",
        "| feature | what it is |\n|---|---|",
    ]
    parts += [f"| `{name}` | {FEATURES[name]} |" for name in experimental]
    parts += [
        "\n`sessionPersistence` is a field of the experimental channel, too, and [works](../guides/sessions.md). The suite v1.6.3 has neither a name nor a test for it.\n",
        "## Not declared\n",
        "The suite v1.6.3 marks none of its features and tests as provisional. All features of the profiles GATEWAY-HTTP, GATEWAY-TLS, GATEWAY-GRPC, GATEWAY-TCP and GATEWAY-UDP are declared.\n",
        "| feature | why not |\n|---|---|",
    ]
    parts += [f"| {names} | {why} |" for names, why in NOT_DECLARED.items()]
    return "\n".join(parts) + "\n"
