"""A preprocessor of mdBook: links to what is not part of the book lead to the repository."""

import json
import re
import sys
from pathlib import PurePosixPath

REPOSITORY = "https://github.com/varnish/gateway/blob/main/"
LINK = re.compile(r"(\]\(<?)([^)\s>:#]+)(#[^)\s>]*)?(>?\))")
# Blocks and spans of code: what looks like a link in them is none.
CODE = re.compile(r"(?ms)(^ *```.*?^ *```|``.+?``|`[^`\n]+`)")


def chapters(items):
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            yield chapter
            yield from chapters(chapter["sub_items"])


def normal(path):
    parts = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "supports":
        return
    _, book = json.load(sys.stdin)
    found = [chapter for chapter in chapters(book.get("sections") or book.get("items") or []) if chapter.get("path")]
    inside = {chapter["path"] for chapter in found}
    for chapter in found:
        here = PurePosixPath("docs") / PurePosixPath(chapter["path"]).parent

        def link(match, here=here):
            target = normal(here / match[2])
            if target.removeprefix("docs/") in inside and target.startswith("docs/"):
                return match[0]
            return f"{match[1]}{REPOSITORY}{target}{match[3] or ''}{match[4]}"

        parts = CODE.split(chapter["content"])
        parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
        chapter["content"] = "".join(parts)
    json.dump(book, sys.stdout)


main()
