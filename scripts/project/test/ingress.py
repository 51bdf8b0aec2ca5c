"""Ingresses in a whole cluster, as users see them: classes, default backend, hosts with wildcards and TLS, 10 pods in turn, 16 paths.

    scripts/test ingress             builds what is missing, brings a cluster up, runs the scenarios, and takes the cluster down

KEEP=1 leaves the cluster up; FAST=1 builds images with the profile `fast`; NO_BUILD=1 takes those that are there. Needs root.
"""

import os
import sys

from ..cluster import fast, run_inside


def main():
    if "--inside" in sys.argv:
        # It asks for the cluster's address when it is imported.
        from ..in_cluster import ingress_scenarios

        return ingress_scenarios.main()
    images = None if os.environ.get("NO_BUILD") else fast()
    return run_inside("test-ingress", "scripts/test", "ingress", "--inside", images=images).returncode
