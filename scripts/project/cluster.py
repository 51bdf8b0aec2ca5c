"""A cluster of this machine (tests/cluster) for a test or a benchmark, and what both do in it."""

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KIT = REPOSITORY / "tests/cluster"
CACHE = Path(os.environ.get("VG_CLUSTER_DIR") or Path.home() / ".cache/vg-cluster")
PATIENCE = 180
BEGUN = time.monotonic()


def say(line):
    print(f"{time.monotonic() - BEGUN:6.1f} s  {line}", flush=True)


def fail(line):
    raise SystemExit(f"{sys.argv[0]}: {line}")


def step(*words):
    subprocess.run([str(word) for word in words], cwd=REPOSITORY, check=True)


def fast():
    """The option of scripts/images that FAST=1 asks for."""
    return ["--fast"] if os.environ.get("FAST") else []


def run_inside(name, *command, images=(), prepare=(KIT / "install",), keep=None, **options):
    """Brings a cluster up, runs `command` where its pods can be reached, and takes the cluster down again.

    `images` are arguments for scripts/images, or None to use the images that are there. `prepare` is a command, or a function. After a failure
    logs, events and objects are collected. The cluster stays up with KEEP=1, or as `keep` says. Returns the finished process.
    """
    os.environ.setdefault("VG_CLUSTER_NAME", name)
    step(KIT / "build")
    if images is not None:
        step(REPOSITORY / "scripts/images", *images)
    step(KIT / "down")
    try:
        step(KIT / "up")
        prepare() if callable(prepare) else step(*prepare)
        done = subprocess.run([str(word) for word in (KIT / "exec", *command)], cwd=REPOSITORY, **options)
        if done.returncode != 0:
            logs = CACHE / "failed" / os.environ["VG_CLUSTER_NAME"]
            subprocess.run([str(KIT / "collect"), str(logs)])
            print(f"{sys.argv[0]}: failed; logs, events and objects are in {logs}", file=sys.stderr)
        return done
    finally:
        if not (os.environ.get("KEEP") if keep is None else keep):
            step(KIT / "down")


def kubectl(*words, input=None, check=True):
    done = subprocess.run(["kubectl", *words], input=input, capture_output=True, text=True)
    if check and done.returncode != 0:
        fail(f"kubectl {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def until(what, good, patience=PATIENCE, pause=0.1):
    """The first true value of `good`."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = good()
        if value:
            return value
        time.sleep(pause)
    fail(f"not within {patience} s: {what}")


def echo(namespace, replicas=1):
    """The suite's echo server behind Service `echo`, to be added to other manifests."""
    return f"""---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: echo, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: echo}}}}
  template:
    metadata: {{labels: {{app: echo}}}}
    spec:
      containers:
      - name: echo
        image: localhost/echo-basic:1
        imagePullPolicy: Never
        env: [{{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
        readinessProbe: {{httpGet: {{path: /, port: 3000}}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 30}}
---
apiVersion: v1
kind: Service
metadata: {{name: echo, namespace: {namespace}}}
spec: {{selector: {{app: echo}}, ports: [{{port: 80, targetPort: 3000}}]}}
"""


def status(address, host, port=80, timeout=30):
    """The status of the response, or what went wrong."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    try:
        connection.request("GET", "/", headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException) as e:
        return repr(e)
    finally:
        connection.close()
