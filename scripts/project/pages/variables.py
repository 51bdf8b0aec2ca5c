"""Environment variables and ports: those that the code reads are on a page, and those of the pages are read by the code."""

import re

from .pages import DOCS, REPOSITORY

# Who reads them, and the page with the table.
READERS = {
    "crates/operator/src": "reference/operator.md",
    "crates/chaperone/src": "reference/chaperone.md",
}
# Read by libraries, or by every command.
COMMON = {"LOG_LEVEL"}
VARIABLE = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|NAMESPACE"


def problems():
    environment = (DOCS / "reference/environment.md").read_text()
    for crate, page in READERS.items():
        code = "\n".join(text(path) for path in (REPOSITORY / crate).rglob("*.rs"))
        calls = r"(?:get|text|path|seconds|address|duration|flag|number|ratio|env::var|var_os|var)"
        read = set(re.findall(rf'\b{calls}\(\s*"({VARIABLE})"', code))
        told = set(re.findall(rf"^\| `({VARIABLE})`", (DOCS / page).read_text(), re.M))
        for name in sorted(read - told - COMMON):
            yield f"docs/{page}: {name}, which {crate} reads, is not in its table"
        for name in sorted(told - read - COMMON):
            if not re.search(rf'"{name}"', code):
                yield f"docs/{page}: {name}, which is in its table, is not read in {crate}"
        for name in sorted(told):
            if f"`{name}`" not in environment:
                yield f"docs/reference/environment.md: {name} is missing"
    yield from ports()


def text(path):
    """Without its tests."""
    return path.read_text().split("#[cfg(test)]")[0]


def ports():
    """The numbers of ports.md are those of the code."""
    page = (DOCS / "reference/ports.md").read_text()
    code = "\n".join(text(path) for path in (REPOSITORY / "crates").rglob("src/**/*.rs") if path.name != "tests.rs")
    for number in sorted(set(re.findall(r"^\| (\d{2,5})\b", page, re.M))):
        if number not in {"80", "443"} and not re.search(rf"\b{number}\b", code):
            yield f"docs/reference/ports.md: no code knows port {number}"
    for number in sorted(set(re.findall(r"_PORT: u16 = (\d+);", code)) | set(re.findall(r'"(?:127\.0\.0\.1)?:(\d{4,5})"', code))):
        if not re.search(rf"\b{number}\b", page):
            yield f"docs/reference/ports.md: port {number}, which the code knows, is missing"
