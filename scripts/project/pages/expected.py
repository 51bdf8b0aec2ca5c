"""Output as a page shows it, against output as it was: loosely."""

import re


def commands(text):
    """Blocks of `console`: `$ command`, `> more of it`, and what it prints."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        elif found and line.strip():
            found[-1][1].append(line)
    return [("\n".join(command) + "\n", lines) for command, lines in found]


def words(line):
    return " ".join(line.split())


def missing(wanted, got):
    """The first line that is not there, in order. `…` stands for anything; so does the space between words."""
    lines = [words(line) for line in got.splitlines()]
    at = 0
    for want in wanted:
        pattern = ".*".join(re.escape(part) for part in words(want).split("…"))
        if want.strip() == "…":
            continue
        while at < len(lines) and not re.search(pattern, lines[at], re.IGNORECASE if ":" in want else 0):
            at += 1
        if at == len(lines):
            return want
        at += 1
    return None
