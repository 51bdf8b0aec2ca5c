"""Pages of the book, taken apart: fenced blocks, links, headings. Knows nothing of what is done with them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ..cluster import REPOSITORY

DOCS = REPOSITORY / "docs"

FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*(.*?)\s*$")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)])( +)\S")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
# <!-- runs: cluster -->
# <!-- run the commands in this table -->: `kubectl …` in its rows are commands like those of a block
TABLE = "<!-- run the commands in this table -->"
INLINE = re.compile(r"`((?:kubectl|varnish-gateway|make) [^`]+)`")
RUNS = re.compile(r"<!-- runs: ([a-z-]+) -->")


@dataclass
class Block:
    """One fenced block: ```language word key=value."""

    line: int
    language: str
    attributes: dict
    text: str

    def has(self, name):
        return name in self.attributes


@dataclass
class Page:
    path: Path
    blocks: list = field(default_factory=list)
    links: list = field(default_factory=list)  # (line, target)
    anchors: set = field(default_factory=set)
    mentions: list = field(default_factory=list)  # (line, `varnish-gateway …`) in the text, or in blocks that are only shown
    indented: list = field(default_factory=list)  # lines with code that no fence names
    unclosed: int = 0
    runs: str = ""

    @property
    def name(self):
        return str(self.path.relative_to(REPOSITORY))


def attributes(words):
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def anchor(heading):
    """As GitHub and mdBook make it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"[`*]", "", heading)
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def read(path):
    page = Page(path)
    block = closing = None
    indent = list_indent = 0
    blank, table = True, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if block is not None:
            if fence and fence[2].startswith(closing) and not fence[3]:
                block.text = "\n".join(block.text) + "\n"
                page.blocks.append(block)
                if block.language == "text":
                    page.mentions += [(block.line, line) for line in block.text.splitlines() if line.startswith("varnish-gateway ")]
                block = None
            else:
                block.text.append(line[indent:] if not line[:indent].strip() else line.lstrip())
            continue
        if fence:
            language, *words = fence[3].split() or [""]
            indent, closing = len(fence[1]), fence[2]
            block = Block(number, language, attributes(words), [])
            blank = False
            continue
        if runs := RUNS.search(line):
            page.runs = runs[1]
        page.mentions += [(number, code[1]) for code in INLINE.finditer(line) if code[1].startswith("varnish-gateway ")]
        if line == TABLE:
            table = "awaited"
        elif table and line.startswith("|"):
            table = "begun"
            page.blocks += [Block(number, "sh", {}, code[1].replace("\\|", "|") + "\n") for code in INLINE.finditer(line)]
        elif table == "begun":
            table = ""
        if heading := HEADING.match(line):
            name, count = anchor(heading[1]), 0
            while (numbered := f"{name}-{count}" if count else name) in page.anchors:
                count += 1
            page.anchors.add(numbered)
        plain = re.sub(r"`[^`]*`", lambda code: " " * len(code[0]) if "](" in code[0] else code[0], line)
        page.links += [(number, link[1]) for link in LINK.finditer(plain)]
        at = len(line) - len(line.lstrip())
        if item := ITEM.match(line):
            list_indent = len(item[1]) + len(item[2]) + len(item[3])
        elif line.strip() and at == 0:
            list_indent = 0
        elif line.strip() and blank and at >= list_indent + 4:
            page.indented.append(number)
        blank = not line.strip() or (blank and at >= list_indent + 4)
    page.unclosed = block.line if block else 0
    return page


def all_pages():
    """The book, and what stands beside it. Results and decisions hold no instructions, but links."""
    found = [*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md"), *REPOSITORY.glob("tests/*/README.md")]
    found += REPOSITORY.glob("charts/*/README.md")
    return [read(path) for path in sorted(found)]


def is_instruction(page):
    """Whose commands and YAML are run."""
    in_docs = page.path.is_relative_to(DOCS) and not any(
        page.path.is_relative_to(DOCS / part) for part in ("results", "adr")
    )
    return in_docs or page.path == REPOSITORY / "README.md"
