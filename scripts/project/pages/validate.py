"""What needs no commands: YAML of Kubernetes, VCL, Prometheus rules, values of the chart."""

import re
import subprocess
import textwrap
from pathlib import Path

import yaml
from .metrics import known as known_metrics
from .pages import REPOSITORY

VCL = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: page}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: page}
spec:
  userVCLConfigMapRef: {name: page, namespace: default}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: page}
spec:
  gatewayClassName: varnish
  listeners: [{name: http, protocol: HTTP, port: 80}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: page}
data:
  user.vcl: |
"""


class Validator:
    def __init__(self, binary, directory, kubectl=None):
        self.binary, self.directory, self.kubectl = binary, Path(directory), kubectl
        self.namespaces = {"default"}

    def yaml(self, block):
        """A reason, or None."""
        try:
            documents = [d for d in yaml.safe_load_all(block.text) if d is not None]
        except yaml.YAMLError as error:
            return f"no YAML: {error}"
        if block.has("rules"):
            return self.rules(documents)
        if block.has("values"):
            return self.values(block.text)
        for document in documents:
            if not isinstance(document, dict) or not {"apiVersion", "kind", "metadata"} <= document.keys():
                return "not a whole object: apiVersion, kind and metadata are needed, so that it can be pasted"
        # Only an API server makes names.
        made = any("generateName" in document["metadata"] for document in documents)
        return (not made and self.checked(block.text)) or (self.kubectl and self.admitted(block.text, documents))

    def checked(self, text):
        """What `check` refuses to read. What would become of the objects is another matter: pages show parts of a whole."""
        file = self.directory / "block.yaml"
        file.write_text(text)
        # Without varnishd nothing is compiled: it is quick.
        said = subprocess.run([self.binary, "check", "--varnishd", "/none", "-f", file], capture_output=True, text=True, timeout=60, check=False)
        refused = [line for line in said.stdout.splitlines() if line.startswith("problem:") and str(file) in line]
        if said.stderr.strip() and not said.stdout:
            return said.stderr.strip()
        return "\n".join(refused) or None

    def admitted(self, text, documents):
        """What the API server refuses."""
        for document in documents:
            namespace = document["metadata"].get("namespace", "default")
            if namespace not in self.namespaces:
                self.namespaces.add(namespace)
                subprocess.run([*self.kubectl, "create", "namespace", namespace], capture_output=True, timeout=60, check=False)
        # Endpoints on this machine are for `serve` alone.
        text = re.sub(r"\b127\.0\.0\.1\b", "192.0.2.1", text)
        verb = "create" if any("generateName" in d["metadata"] for d in documents) else "apply"
        how = [*self.kubectl, verb, "--dry-run=server", "--validate=strict", "-f", "-"]
        if verb == "apply":
            how += ["--server-side", "--force-conflicts"]
        said = subprocess.run(how, input=text, capture_output=True, text=True, timeout=60, check=False)
        return None if said.returncode == 0 else f"the API server refuses it: {said.stderr.strip()}"

    def vcl(self, block):
        file = self.directory / "block.yaml"
        file.write_text(VCL + textwrap.indent(block.text, "    "))
        said = subprocess.run([self.binary, "check", "-f", file], capture_output=True, text=True, timeout=60, check=False)
        return None if said.returncode == 0 else said.stdout + said.stderr

    def rules(self, documents):
        """A PrometheusRule, or the file itself."""
        groups = [g for d in documents for g in (d.get("spec") or d).get("groups", [])]
        if not groups:
            return "no groups of rules"
        known = known_metrics()
        for rule in (rule for group in groups for rule in group["rules"]):
            for metric in sorted(set(re.findall(r"\bvarnish_\w+", rule["expr"]))):
                if known and metric not in known:
                    return f"{rule.get('alert') or rule.get('record')}: no code knows the metric {metric}"
        file = self.directory / "rules.yaml"
        file.write_text(yaml.safe_dump({"groups": groups}))
        said = subprocess.run([REPOSITORY / "scripts/tool", "promtool", "check", "rules", file], capture_output=True, text=True, timeout=300, check=False)
        return None if said.returncode == 0 else said.stdout + said.stderr

    def values(self, text):
        """Values of the chart: its schema takes them, and its templates too."""
        file = self.directory / "values.yaml"
        file.write_text(text)
        chart = REPOSITORY / "charts/varnish-gateway"
        said = subprocess.run([REPOSITORY / "scripts/tool", "helm", "template", "docs", chart, "--values", file], capture_output=True, text=True, timeout=60, check=False)
        return None if said.returncode == 0 else said.stderr
