"""What we ship is made of: SPDX 2.3, JSON, on standard output.

    scripts/generate sbom                       our program and its VMOD: crates
    scripts/generate sbom --image IMAGE.tar     an image of scripts/images: Debian's packages in it, and our crates
    scripts/generate sbom --check FILE…         whether such documents have what SPDX asks for; the exit code says it

Crates are out of `cargo metadata`: those that are linked into `gateway` and `ghost` on Linux, or run while these are built, and who depends on whom. Crates for tests
alone are left out. Debian's packages are out of dpkg's own list in the image; what may be done with them, their copyright files in the image say.
The same sources give the same bytes, if SOURCE_DATE_EPOCH is set, or the checkout is a git repository.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from urllib.parse import quote

from ..cluster import REPOSITORY

# Of each image, what of ours is in it.
ROOTS = {"gateway-operator": ("gateway",), "gateway-chaperone": ("gateway", "ghost")}
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


def output(*words):
    run = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"scripts/generate sbom: {' '.join(words)}: {run.stderr.strip()}")
    return run.stdout


def created():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct").strip()
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))


def relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def package(kind, name, version, purl, **more):
    text = re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{name}-{version}")
    return {
        "SPDXID": f"SPDXRef-{text}",
        "name": name,
        "versionInfo": version,
        # Where from, the purl says.
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    } | more


def checksums():
    """By (name, version), out of Cargo.lock."""
    found, name, version = {}, None, None
    for line in (REPOSITORY / "Cargo.lock").read_text().splitlines():
        if match := re.fullmatch(r'(name|version|checksum) = "(.*)"', line):
            key, value = match.groups()
            if key == "name":
                name = value
            elif key == "version":
                version = value
            else:
                found[name, version] = value
    return found


def crates(roots):
    """The version, the roots, all crates and their relations."""
    packages, nodes = {}, {}
    for target in TARGETS:
        metadata = json.loads(output("cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", target))
        packages |= {package["id"]: package for package in metadata["packages"]}
        for node in metadata["resolve"]["nodes"]:
            nodes.setdefault(node["id"], []).extend(node["deps"])
    todo = first = [id for id, package in packages.items() if package["name"] in roots and package["source"] is None]
    edges, seen = set(), set()
    while todo:
        id, todo = todo[-1], todo[:-1]
        if id in seen:
            continue
        seen.add(id)
        for dependency in nodes[id]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                edges.add((id, dependency["pkg"]))
                todo = todo + [dependency["pkg"]]
    hashes, made = checksums(), {}
    for id in seen:
        name, version = packages[id]["name"], packages[id]["version"]
        licence = re.sub(r"\s+", " ", (packages[id]["license"] or "NOASSERTION").replace("/", " OR "))
        made[id] = package("Crate", name, version, f"pkg:cargo/{name}@{quote(version)}", licenseDeclared=licence)
        if (name, version) in hashes:
            made[id]["checksums"] = [{"algorithm": "SHA256", "checksumValue": hashes[name, version]}]
    named = lambda id: made[id]["SPDXID"]  # noqa: E731
    relations = [relation(a, "DEPENDS_ON", b) for a, b in sorted((named(a), named(b)) for a, b in edges)]
    return packages[first[0]]["version"], sorted(map(named, first)), list(made.values()), relations


def stanzas(text):
    for stanza in re.split(r"\n\n+", text):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.M))
        if fields.get("Status", "install ok installed") == "install ok installed" and "Package" in fields:
            yield fields


def debian(path):
    """The image's name, and Debian's packages in it, by dpkg's list: one file, or one for each package where there is no dpkg."""
    lists = {}
    with tarfile.open(path) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for member in layer:
                    if member.isfile() and re.fullmatch(r"(\./)?var/lib/dpkg/(status|status\.d/[^/]+)", member.name):
                        lists[member.name] = layer.extractfile(member).read().decode()
    found = []
    for fields in (fields for text in lists.values() for fields in stanzas(text)):
        name, version, arch = fields["Package"], fields["Version"], fields["Architecture"]
        source = fields.get("Source", name)
        source += "" if "(" in source else f" ({version})"
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={arch}"
        found.append(package("Debian", name, version, purl, supplier="Organization: Debian", sourceInfo=f"source package: {source}"))
    if not found:
        raise SystemExit(f"scripts/generate sbom: {path} has no list of Debian's packages")
    return manifest["RepoTags"][0].rsplit("/", 1)[-1].rsplit(":", 1)[0], found


def document(image=None):
    name, others = debian(image) if image else ("varnish-gateway", [])
    version, roots, packages, relations = crates(ROOTS.get(name, ROOTS["gateway-chaperone"]))
    if image:
        whole = package("Image", name, version, f"pkg:oci/{name}?tag={quote(version)}", primaryPackagePurpose="CONTAINER")
        contained = [*roots, *(other["SPDXID"] for other in others)]
        relations += [relation(whole["SPDXID"], "CONTAINS", id) for id in sorted(contained)]
        packages, roots = [whole, *packages, *others], [whole["SPDXID"]]
    packages.sort(key=lambda package: package["SPDXID"])
    digest = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{version}-{digest[:32]}",
        "creationInfo": {"created": created(), "creators": ["Tool: scripts/generate sbom", "Organization: Varnish Gateway"]},
        "packages": packages,
        "relationships": [relation("SPDXRef-DOCUMENT", "DESCRIBES", id) for id in roots] + relations,
    }


def wrong(made):
    """What SPDX 2.3 asks for and `made` has not."""
    for key in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships"):
        if not made.get(key):
            yield f"no {key}"
            return
    if (made["spdxVersion"], made["dataLicense"], made["SPDXID"]) != ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"):
        yield "not a document of SPDX 2.3"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made["creationInfo"].get("created", "")):
        yield "creationInfo.created is no time in UTC"
    if not re.fullmatch(r"https?://[^#\s]+", made["documentNamespace"]):
        yield "documentNamespace is no URI"
    ids = {"SPDXRef-DOCUMENT"}
    word = r"\(*[A-Za-z0-9.-]+\+?\)*"
    for one in made["packages"]:
        who = one.get("name", "a package without a name")
        for key in ("SPDXID", "name", "versionInfo", "downloadLocation", "licenseDeclared", "licenseConcluded", "copyrightText"):
            if not one.get(key):
                yield f"{who}: no {key}"
        if not re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one.get("SPDXID", "")):
            yield f"{who}: SPDXID {one.get('SPDXID')}"
        elif one["SPDXID"] in ids:
            yield f"{who}: SPDXID {one['SPDXID']} is there twice"
        ids.add(one.get("SPDXID"))
        if not re.fullmatch(rf"{word}( (AND|OR|WITH) {word})*", one.get("licenseDeclared", "")):
            yield f"{who}: {one.get('licenseDeclared')} is no licence expression"
        if one.get("SPDXID", "").startswith("SPDXRef-Crate-") and one.get("licenseDeclared") == "NOASSERTION":
            yield f"{who}: a crate without a licence"
    for one in made["relationships"]:
        for end in (one["spdxElementId"], one["relatedSpdxElement"]):
            if end not in ids:
                yield f"a relationship names {end}, which is not there"
    reached = {one["relatedSpdxElement"] for one in made["relationships"]}
    for id in sorted(ids - reached - {"SPDXRef-DOCUMENT"}):
        yield f"{id} belongs to nothing"


def check(files):
    code = 0
    for file in files:
        for problem in wrong(json.loads(Path(file).read_text())):
            print(f"scripts/generate sbom: {file}: {problem}", file=sys.stderr)
            code = 1
    return code


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--check"] and len(arguments) > 1:
        return check(arguments[1:])
    if arguments and (arguments[0] != "--image" or len(arguments) != 2):
        raise SystemExit(__doc__)
    json.dump(document(*arguments[1:]), sys.stdout, indent=1)
    print()
