"""Many Ingresses on one Varnish Service; runs where the cluster's addresses are reachable."""

import random
import time

import client
import kube
import scale

HOSTS = 5
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{kube.NAMESPACE}/ingresses"


def varnish():
    path, body = kube.gateway()
    body["spec"]["infrastructure"] = {"labels": {"app": "varnish-ingress"}}
    return path, body


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


def one_more(api, address, count, existing):
    """One at a time: from the POST to the first 200 of its last host."""

    def new(number):
        names = [f"new{number}-{nth}.example.com" for nth in range(HOSTS)]
        return ingress(f"new{number:05}", names), [(name, "/") for name in names]

    return scale.one_at_a_time(api, address, [new(number) for number in range(count)], existing)


def with_address(api):
    listed = api.call("GET", f"{INGRESSES}?limit=10000")["items"]
    return sum(1 for one in listed if one.get("status", {}).get("loadBalancer", {}).get("ingress"))


def measure(count, more, patience, say):
    api = kube.Api()
    address = scale.prepare(api, varnish())
    say(f"Varnish Service at {address}")
    empty = scale.memories()
    created = kube.create_all(api, (ingress(f"i{number:05}", hosts(number)) for number in range(count)))
    say(f"{count} Ingresses with {HOSTS} hosts each created in {created:.1f} s")
    routes = [(host, "/") for number in range(count) for host in hosts(number)]
    some = random.sample(routes, min(2000, len(routes))) + routes[-100:]
    answered = client.all_answer(address, some, patience)
    say(f"  {len(some)} of their hosts answer, {answered:.1f} s after the last was created")
    end = time.monotonic() + 120
    while (addresses := with_address(api)) < count and time.monotonic() < end:
        time.sleep(1)
    say(f"  {addresses} have an address")
    time.sleep(5)
    found = one_more(api, address, more, routes)
    say(f"  one more is served after {found['mean_ms']} ms in the mean; load: {found['load']}")
    return {
        "ingresses": count,
        "hosts_each": HOSTS,
        "created_seconds": round(created, 1),
        "all_answer_seconds": round(answered, 1),
        "with_address": addresses,
        "new": found,
        "empty": empty,
        "memory": scale.memories(),
        "config_maps": scale.config_maps(api),
    }
