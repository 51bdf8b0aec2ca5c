"""Many Ingresses on one Varnish Service; runs where the cluster's addresses are reachable."""

import http.client
import random
import threading
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


def create(api, count, threads=8):
    """Seconds that it took."""
    begun, numbers, lock, failed = time.monotonic(), iter(range(count)), threading.Lock(), []

    def work():
        while not failed:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                api.create(*ingress(f"i{number:05}", hosts(number)))
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failed:
        raise RuntimeError(f"Ingresses could not be created: {failed[0]}")
    return time.monotonic() - begun


def one_more(api, address, count, existing):
    """One at a time: from the POST to the first 200 of its last host."""
    ask, found = client.Client(address), []
    with client.Load(address, existing) as load:
        time.sleep(1)
        for number in range(count):
            names = [f"new{number}-{nth}.example.com" for nth in range(HOSTS)]
            api.call("GET", "/version")  # a connection that is open
            before = {str(ask.status(names[-1], "/"))}
            sent = time.monotonic()
            api.create(*ingress(f"new{number:05}", names))
            created = time.monotonic()
            while (status := ask.status(names[-1], "/")) != 200 and time.monotonic() - created < 30:
                before.add(str(status))
                time.sleep(0.001)
            served = time.monotonic()
            after = {}
            while time.monotonic() - served < 0.5:
                ask.close()
                again = str(ask.status(random.choice(names), "/"))
                after[again] = after.get(again, 0) + 1
                time.sleep(0.02)
            found.append({
                "ms_from_sent": round((served - sent) * 1000, 1),
                "ms_from_created": round((served - created) * 1000, 1),
                "before": sorted(before),
                "after": after,
                "answered": status == 200,
            })
            time.sleep(random.uniform(0.2, 0.5))
    return {"each": found, "load": load.result(), **scale.summary(found)}


def with_address(api):
    listed = api.call("GET", f"{INGRESSES}?limit=10000")["items"]
    return sum(1 for one in listed if one.get("status", {}).get("loadBalancer", {}).get("ingress"))


def measure(count, more, patience, say):
    api = kube.Api()
    api.create(*kube.namespace())
    for path, body in kube.origin():
        api.create(path, body)
    api.create(*varnish())
    address = kube.address(api)
    say(f"Varnish Service at {address}")
    empty = scale.memories()
    created = create(api, count)
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
