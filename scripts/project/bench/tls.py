"""TLS, measured in one interleaved run: the front with varnishd, hitch with varnishd, and nginx, with one certificate.

    scripts/bench tls                 writes docs/results/tls.md
    ROUNDS=1 SECONDS_EACH=2 scripts/bench tls

Needs `make build`. Everything runs on loopback in a directory of its own, and ends with this. At most 6 minutes.
"""

import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

from ..cluster import REPOSITORY as ROOT

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = int(os.environ.get("SECONDS_EACH", "5"))
IDLE = int(os.environ.get("IDLE_CONNECTIONS", "1000"))
PROGRAM = pathlib.Path(os.environ.get("PROGRAM", ROOT / "target/release/varnish-gateway"))
STARTED = []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(*command, **more):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
    STARTED.append(process)
    return process


def wait_for(address):
    """A port, or the path of a unix socket."""
    deadline = time.time() + 30
    unix = not isinstance(address, int)
    while time.time() < deadline:
        try:
            with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe:
                probe.connect(str(address) if unix else ("127.0.0.1", address))
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no server listens on {address}")


def processes(root):
    """A process and all that came of it."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pids):
    total = 0
    for pid in pids:
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+)", text, re.M).group(1)) * 1024
    return total


def certificate(at):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
         "-keyout", at / "key.pem", "-out", at / "cert.pem", "-subj", "/CN=bench.test", "-addext", "subjectAltName=DNS:bench.test"],
        check=True, capture_output=True)
    (at / "both.pem").write_text((at / "key.pem").read_text() + (at / "cert.pem").read_text())


def nginx(at, name, servers):
    config = at / f"{name}.conf"
    config.write_text(f"""
worker_processes 2;
pid {at}/{name}.pid;
error_log {at}/{name}.log;
daemon off;
events {{ worker_connections 20000; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {at}/{name}-body;
  proxy_temp_path {at}/{name}-proxy;
  fastcgi_temp_path {at}/{name}-fcgi;
  uwsgi_temp_path {at}/{name}-uwsgi;
  scgi_temp_path {at}/{name}-scgi;
  proxy_cache_path {at}/{name}-cache keys_zone=all:10m;
  {servers}
}}
""")
    return start("nginx", "-c", str(config), "-p", str(at), "-e", str(at / f"{name}.log"))


def origin(at):
    port = free_port()
    files = at / "files"
    files.mkdir()
    (files / "small").write_bytes(b"x" * 1024)
    with open(files / "large", "wb") as large:
        large.truncate(1 << 30)
    nginx(at, "origin", f"""
  server {{
    listen 127.0.0.1:{port};
    root {files};
    sendfile on;
    location /small {{ add_header Cache-Control max-age=3600; }}
    location /large {{ add_header Cache-Control no-store; }}
  }}""")
    wait_for(port)
    return port


def front(at, upstream):
    port = free_port()
    manifests = at / "manifests"
    manifests.mkdir()
    block = lambda name: "".join(f"    {line}\n" for line in (at / name).read_text().splitlines())
    (manifests / "all.yaml").write_text(f"""
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
spec: {{userVCLConfigMapRef: {{name: vcl}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: vcl}}
data:
  user.vcl: |
    sub vcl_recv {{ if (req.url == "/small") {{ unset req.http.X-Ghost-Pass; }} }}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: varnish
  listeners: [{{name: https, protocol: HTTPS, port: {port}, tls: {{certificateRefs: [{{name: cert}}]}}}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: all}}
spec:
  parentRefs: [{{name: web}}]
  rules: [{{backendRefs: [{{name: origin, port: 80}}]}}]
---
apiVersion: v1
kind: Service
metadata: {{name: origin}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: origin, labels: {{kubernetes.io/service-name: origin}}}}
addressType: IPv4
ports: [{{port: {upstream}}}]
endpoints: [{{addresses: ["127.0.0.1"]}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: cert}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{block("cert.pem")}  tls.key: |
{block("key.pem")}""")
    process = start(str(PROGRAM), "serve", "--bind", "127.0.0.1", "-f", str(manifests), "--state-dir", str(at / "state"),
                    stdout=open(at / "front.log", "wb"), stderr=subprocess.STDOUT)
    wait_for(port)
    # TLS is the program's own, varnishd are its children.
    return port, lambda: [process.pid], lambda: processes(process.pid)


def hitch(at, upstream):
    port = free_port()
    vcl = at / "hitch.vcl"
    vcl.write_text(f"""vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{upstream}"; }}
sub vcl_recv {{ if (req.url != "/small") {{ return (pass); }} return (hash); }}
""")
    sock = at / "hitch.sock"
    mask = "vsl_mask=-VCL_call,-VCL_return,-Timestamp,-RespHeader,-ReqHeader,-Hit,-Begin,-End,-Link,-SessOpen,-SessClose"
    varnishd = start("varnishd", "-F", "-n", str(at / "hitch-varnish"), "-a", f"{sock},PROXY,mode=666", "-f", str(vcl),
                     "-p", mask, "-p", "feature=+http2", stdout=open(at / "hitch-varnish.log", "wb"), stderr=subprocess.STDOUT)
    wait_for(sock)
    config = at / "hitch.conf"
    config.write_text(f"""
frontend = "[127.0.0.1]:{port}"
backend = "{sock}"
pem-file = "{at}/both.pem"
write-proxy-v2 = on
workers = 2
alpn-protos = "h2,http/1.1"
{'user = "nobody"' if os.getuid() == 0 else ''}
""")
    os.chmod(at / "both.pem", 0o644)
    process = start("hitch", f"--config={config}", stdout=open(at / "hitch.log", "wb"), stderr=subprocess.STDOUT)
    wait_for(port)
    return port, lambda: processes(process.pid), lambda: processes(process.pid) + processes(varnishd.pid)


def nginx_front(at, upstream):
    port = free_port()
    process = nginx(at, "tls", f"""
  ssl_certificate {at}/cert.pem;
  ssl_certificate_key {at}/key.pem;
  ssl_protocols TLSv1.2 TLSv1.3;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    location /small {{ proxy_cache all; proxy_pass http://127.0.0.1:{upstream}; }}
    location / {{ proxy_buffering off; proxy_pass http://127.0.0.1:{upstream}; }}
  }}""")
    wait_for(port)
    return port, lambda: processes(process.pid), lambda: processes(process.pid)


def hits(port):
    output = subprocess.run(["wrk", "-t2", "-c32", f"-d{SECONDS}s", f"https://127.0.0.1:{port}/small"],
                            capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in output, output
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))


def handshakes(port, pids):
    """Full ones a second, and a core-second: four clients at once."""
    before, begun = cpu_seconds(pids), time.time()
    command = ["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-new", "-time", str(SECONDS)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(4)]
    outputs = [client.communicate()[0] for client in clients]
    count = sum(int(re.search(r"(\d+) connections in \d+ real", output).group(1)) for output in outputs)
    took = time.time() - begun
    return count / took, count / max(cpu_seconds(pids) - before, 0.01)


def idle_memory(port, pids):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    before, kept = memory(pids()), []
    for _ in range(IDLE):
        kept.append(context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="bench.test"))
    time.sleep(2)
    used = (memory(pids()) - before) / IDLE
    for stream in kept:
        stream.close()
    time.sleep(1)
    return used


def download(port, pids):
    """CPU seconds for 1 GiB."""
    before = cpu_seconds(pids)
    subprocess.run(["curl", "-sk", "--http1.1", "-o", "/dev/null", "--fail", f"https://127.0.0.1:{port}/large"], check=True)
    return cpu_seconds(pids) - before


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    subprocess.run([ROOT / "scripts/setup", "bench-tls"], check=True)
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is missing: make build")
    resource_limit()
    at = pathlib.Path(tempfile.mkdtemp(prefix="vg-bench-tls-"))
    os.chmod(at, 0o755)
    try:
        certificate(at)
        upstream = origin(at)
        made = {"front + varnishd": front(at, upstream), "hitch + varnishd": hitch(at, upstream), "nginx": nginx_front(at, upstream)}
        results = {name: {"hits": [], "handshakes": [], "per core": [], "cpu": []} for name in made}
        for name, (port, *_) in made.items():
            fetched = subprocess.run(["curl", "-sSk", "--fail", "-o", "/dev/null", f"https://127.0.0.1:{port}/small"])
            if fetched.returncode:
                logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in at.glob("*.log"))
                sys.exit(f"{name} does not serve\n{logs}")
        for name, (port, tls, _) in made.items():
            results[name]["memory"] = idle_memory(port, tls)
        for _ in range(ROUNDS):
            for name, (port, tls, _) in made.items():
                results[name]["hits"].append(hits(port))
            for name, (port, tls, _) in made.items():
                each, per_core = handshakes(port, tls())
                results[name]["handshakes"].append(each)
                results[name]["per core"].append(per_core)
            for name, (port, tls, _) in made.items():
                results[name]["cpu"].append(download(port, tls()))
        report(results)
    finally:
        for process in reversed(STARTED):
            process.terminate()
        for process in STARTED:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(at, ignore_errors=True)


def resource_limit():
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def report(results):
    median = statistics.median
    lines = [
        "# TLS: front + varnishd, hitch + varnishd, nginx", "",
        f"`scripts/bench tls`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.release()}; {ROUNDS} interleaved rounds of "
        f"{SECONDS} s, medians. ECDSA P-256; clients on the same cores.", "",
        "| | cached 1 KiB hits a second (wrk, 32 keep-alive connections) | full handshakes a second (4 × openssl s_time) | handshakes a CPU second of the TLS process "
        f"| bytes for an idle connection ({IDLE}) | CPU seconds of the TLS process for 1 GiB |", "|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        lines.append(f"| {name} | {median(result['hits']):,.0f} | {median(result['handshakes']):,.0f} | {median(result['per core']):,.0f} "
                     f"| {result['memory']:,.0f} | {median(result['cpu']):.2f} |")
    lines += ["", "The TLS process is `varnish-gateway serve` without varnishd, hitch without varnishd, all of nginx (which is also the cache and the proxy).", ""]
    text = "\n".join(lines)
    print(text)
    if not os.environ.get("PROGRAM"):
        (ROOT / "docs/results/tls.md").write_text(text)
    print(json.dumps(results), file=sys.stderr)
