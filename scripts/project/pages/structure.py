"""Links, anchors, the table of contents, and that every block says what it is."""

import re

from .pages import DOCS, REPOSITORY, all_pages, is_instruction

# What is run, compiled or validated; and what is only shown.
RUN = {"sh", "console", "yaml", "vcl"}
SHOWN = {"text", "json", "nginx", "http"}
ATTRIBUTES = {
    "sh": {"background", "until", "dry", "not-run"},
    "console": {"not-run"},
    "yaml": {"file", "apply", "rules", "values", "not-run"},
    "vcl": set(),
}


def problems():
    pages = all_pages()
    by_path = {page.path: page for page in pages}
    found = []
    for page in pages:
        found += [f"{page.name}:{line}: {why}" for line, why in of_page(page, by_path)]
    return found + list(contents(by_path))


def of_page(page, by_path):
    if page.unclosed:
        yield page.unclosed, "a block that is not closed"
    for line, target in page.links:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.exists():
            yield line, f"{target} does not exist"
        elif anchor and path in by_path and anchor not in by_path[path].anchors:
            yield line, f"{name or 'this page'} has no heading #{anchor}"
    if not is_instruction(page):
        return
    for line in page.indented:
        yield line, "indented code: put it into a fence that says what it is (sh, console, yaml, text)"
    for block in page.blocks:
        if block.language not in RUN | SHOWN:
            yield block.line, f"a block of language {block.language!r}; known are {', '.join(sorted(RUN | SHOWN))}"
            continue
        for name in block.attributes.keys() - ATTRIBUTES.get(block.language, set()):
            yield block.line, f"unknown attribute {name!r} of a block of {block.language}"
        if block.has("not-run") and not block.attributes["not-run"]:
            yield block.line, "not-run needs a reason: not-run=needs-docker"
        if block.has("dry"):
            yield from ((block.line, f"{word}: only `make` and scripts of this repository may be dry") for word in strangers(block))
        commands = block.language in {"sh", "console"} and not (block.has("not-run") or block.has("dry"))
        if (commands or block.has("apply")) and page.runs not in {"one-machine", "cluster"}:
            yield block.line, "commands, and the page does not say where: <!-- runs: one-machine --> or <!-- runs: cluster -->"


def strangers(block):
    """First words of commands that a dry block may not have: no test checks what they would do."""
    for line in block.text.splitlines():
        word = (line.split("#")[0].split() or ["make"])[0]
        if word != "make" and not word.startswith("target/release/") and not (REPOSITORY / word).is_file():
            yield word


def contents(by_path):
    """Every page that instructs is in SUMMARY.md, once. Results and decisions are not part of the book."""
    summary = by_path[DOCS / "SUMMARY.md"]
    listed = [(DOCS / target).resolve() for _, target in summary.links]
    for path in sorted(set(listed)):
        if listed.count(path) > 1:
            yield f"docs/SUMMARY.md: {path.relative_to(REPOSITORY)} is there {listed.count(path)} times"
    for path, page in by_path.items():
        if path.is_relative_to(DOCS) and is_instruction(page) and path not in listed and path != summary.path:
            yield f"docs/SUMMARY.md: {path.relative_to(REPOSITORY)} is missing"
