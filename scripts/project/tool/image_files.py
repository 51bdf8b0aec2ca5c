"""Looks into a docker-archive, as scripts/images makes them.

    scripts/tool image-files --extract IMAGE.tar DIR NAME…     files of the image whose paths end so, into DIR
    scripts/tool image-files --root IMAGE.tar DIR              the whole image, of one layer or several, into DIR
    scripts/tool image-files --rename IMAGE.tar OLD NEW        the same archive with another name of the image, on standard output
    scripts/tool image-files --sizes IMAGE.tar                 bytes of the archive, of the files, and compressed
"""

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path


def layers(archive):
    manifest = json.load(archive.extractfile("manifest.json"))
    return [tarfile.open(fileobj=archive.extractfile(name)) for name in manifest[0]["Layers"]]


def extract(path, folder, *wanted):
    found = {}
    with tarfile.open(path) as archive:
        for layer in layers(archive):
            for member in layer:
                for name in wanted:
                    if member.isfile() and ("/" + member.name).endswith("/" + name):
                        found[name] = (member.mode, layer.extractfile(member).read())
    for name in wanted:
        if name not in found:
            raise SystemExit(f"image-files: {path} has no file {name}")
        mode, data = found[name]
        file = Path(folder) / Path(name).name
        file.write_bytes(data)
        file.chmod(mode & 0o777)


def root(path, folder):
    """Without whiteouts: for images that delete nothing of a layer below."""
    with tarfile.open(path) as archive:
        for layer in layers(archive):
            layer.extractall(folder, filter="tar") if hasattr(tarfile, "tar_filter") else layer.extractall(folder)


def rename(path, old, new):
    with tarfile.open(path) as archive, tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as out:
        for member in archive:
            if member.name == "repositories":
                continue
            data = archive.extractfile(member) if member.isfile() else None
            if member.name == "manifest.json":
                manifest = json.load(data)
                tags = manifest[0]["RepoTags"]
                if old not in tags:
                    raise SystemExit(f"image-files: {path} is called {tags}, not {old}")
                manifest[0]["RepoTags"] = [new]
                text = json.dumps(manifest).encode()
                member.size, data = len(text), io.BytesIO(text)
            out.addfile(member, data)


def sizes(path):
    class Count(io.RawIOBase):
        count = 0

        def write(self, data):
            Count.count += len(data)
            return len(data)

    files = 0
    with tarfile.open(path) as archive:
        for layer in layers(archive):
            files += sum(member.size for member in layer if member.isfile())
    with open(path, "rb") as source, gzip.GzipFile(fileobj=Count(), mode="wb", compresslevel=6) as out:
        while data := source.read(1 << 20):
            out.write(data)
    print(json.dumps({"archive": Path(path).stat().st_size, "files": files, "compressed": Count.count}))


def main():
    command, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if command == "--extract" and len(arguments) > 2:
        extract(*arguments)
    elif command == "--root" and len(arguments) == 2:
        root(*arguments)
    elif command == "--rename" and len(arguments) == 3:
        rename(*arguments)
    elif command == "--sizes" and len(arguments) == 1:
        sizes(*arguments)
    else:
        raise SystemExit(__doc__)
