"""`scripts/docs write` and `check`."""

import sys

import metrics
import reference
import structure
import variables
from pages import REPOSITORY


def check():
    found = [*structure.problems(), *variables.problems(), *metrics.problems()]
    for path, text in reference.written().items():
        if not path.exists() or path.read_text() != text:
            found.append(f"{path.relative_to(REPOSITORY)} is not up to date: run scripts/docs write")
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def write():
    for path, text in reference.written().items():
        path.write_text(text)
    return 0


sys.exit({"check": check, "write": write}[sys.argv[1]]())
