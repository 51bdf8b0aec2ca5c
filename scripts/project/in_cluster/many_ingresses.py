"""Many Ingresses on one Varnish Service; runs where the cluster's addresses are reachable."""

import base64
import random
import ssl
import subprocess
import time

from . import client
from . import kube
from . import scale

HOSTS = 5
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{kube.NAMESPACE}/ingresses"


def varnish():
    path, body = kube.gateway()
    body["spec"]["infrastructure"] = {"labels": {"app": "varnish-ingress"}}
    return path, body


def certificate(name):
    """A Secret with a pair of its own, and the certificate as DER. Its chain is as long as those that people have."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout /dev/stdout -subj".split()
    made = subprocess.run([*command, f"/CN={name}"], capture_output=True, check=True, text=True).stdout
    begin = made.index("-----BEGIN CERTIFICATE")
    key, own = made[:begin], made[begin:]
    data = {"tls.crt": base64.b64encode((own * 4).encode()).decode(), "tls.key": base64.b64encode(key.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls", "data": data}
    return (f"/api/v1/namespaces/{kube.NAMESPACE}/secrets", secret), ssl.PEM_cert_to_DER_cert(own)


def with_tls(one, name, der):
    """The Ingress with this certificate for all its hosts."""
    names = [rule["host"] for rule in one[1]["spec"]["rules"]]
    one[1]["spec"]["tls"] = [{"hosts": names, "secretName": name}]
    client.CERTIFICATES.update(dict.fromkeys(names, der))
    return one


def ingress(name, hosts):
    backend = {"service": {"name": "echo", "port": {"number": 8080}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return INGRESSES, {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "annotations": {"kubernetes.io/ingress.class": "varnish"}},
        "spec": {"rules": [{"host": host, "http": {"paths": paths}} for host in hosts]},
    }


def hosts(number):
    return [f"h{number}-{nth}.example.com" for nth in range(HOSTS)]


def one_more(api, address, count, existing, known):
    """One at a time: from the POST to the first 200 of its last host. With the certificate that all have, or one of its own."""

    def new(number):
        names = [f"new{number}-{nth}.example.com" for nth in range(HOSTS)]
        one = ingress(f"new{number:05}", names)
        if len(known) == 1:
            one = with_tls(one, *known[0])
        elif known:
            secret, der = certificate(f"new{number}")
            api.create(*secret)
            one = with_tls(one, f"new{number}", der)
        return one, [(name, "/") for name in names]

    return scale.one_at_a_time(api, address, [new(number) for number in range(count)], existing)


def with_address(api):
    listed = api.call("GET", f"{INGRESSES}?limit=10000")["items"]
    return sum(1 for one in listed if one.get("status", {}).get("loadBalancer", {}).get("ingress"))


def measure(count, more, patience, certificates, say):
    api = kube.Api()
    address = scale.prepare(api, varnish())
    say(f"Varnish Service at {address}")
    empty = scale.memories()
    known = []
    for number in range(certificates):
        secret, der = certificate(f"certificate{number}")
        api.create(*secret)
        known.append((f"certificate{number}", der))

    def one(number):
        plain = ingress(f"i{number:05}", hosts(number))
        return with_tls(plain, *known[number % certificates]) if known else plain

    created = kube.create_all(api, (one(number) for number in range(count)))
    say(f"{count} Ingresses with {HOSTS} hosts each and {certificates} certificates created in {created:.1f} s")
    routes = [(host, "/") for number in range(count) for host in hosts(number)]
    some = random.sample(routes, min(2000, len(routes))) + routes[-100:]
    answered = client.all_answer(address, some, patience)
    say(f"  {len(some)} of their hosts answer, {answered:.1f} s after the last was created")
    end = time.monotonic() + 120
    while (addresses := with_address(api)) < count and time.monotonic() < end:
        time.sleep(1)
    say(f"  {addresses} have an address")
    time.sleep(5)
    found = one_more(api, address, more, routes, known)
    say(f"  one more is served after {found['mean_ms']} ms in the mean; load: {found['load']}")
    return {
        "ingresses": count,
        "hosts_each": HOSTS,
        "certificates": certificates,
        "created_seconds": round(created, 1),
        "all_answer_seconds": round(answered, 1),
        "with_address": addresses,
        "new": found,
        "empty": empty,
        "memory": scale.memories(),
        "config_maps": scale.config_maps(api),
    }
