"""Every test that reference/caching-conformance.md names exists."""

import re

from .pages import DOCS, REPOSITORY

PAGE = DOCS / "reference/caching-conformance.md"
CRATES = REPOSITORY / "crates"


def problems():
    vtc = {file.name for file in (CRATES / "ghost/tests/vtc").glob("*.vtc")}
    sources = "\n".join(file.read_text() for name in ("gateway/tests", "router") for file in sorted((CRATES / name).rglob("*.rs")))
    tests = vtc | set(re.findall(r"\bfn (\w+)\(", sources))
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        for name in named(line) if line.startswith("|") else []:
            if name not in tests:
                yield f"{PAGE.relative_to(REPOSITORY)}:{number}: there is no test `{name}`"


def named(line):
    """What is written as the names of tests are: with .vtc, or of three words at least."""
    return re.findall(r"`([a-z0-9-]+\.vtc|[a-z0-9]+(?:_[a-z0-9]+){2,})`", line)
