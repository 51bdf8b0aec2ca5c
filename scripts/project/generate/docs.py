"""Pages of docs/ that are written from the code: reference/crds.md, reference/features.md; alerts in operations/monitoring.md.

    scripts/generate docs            writes them
    scripts/generate docs --check    checks these pages, links, the table of contents, environment variables, ports, names of tests; a second, no network

Commands and YAML of the pages are run by scripts/test docs.
"""

import io
import sys
import unittest

from ..pages import conformance, metrics, reference, selftest, structure, variables
from ..pages.pages import REPOSITORY


def check():
    found = [*structure.problems(), *variables.problems(), *metrics.problems(), *conformance.problems()]
    for path, text in reference.written().items():
        if not path.exists() or path.read_text() != text:
            found.append(f"{path.relative_to(REPOSITORY)} is not up to date: run scripts/generate docs")
    # The checks themselves find mistakes.
    output = io.StringIO()
    if not unittest.TextTestRunner(output).run(unittest.defaultTestLoader.loadTestsFromModule(selftest)).wasSuccessful():
        found.append(output.getvalue())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    if sys.argv[1:]:
        raise SystemExit("usage: scripts/generate docs [--check]")
    for path, text in reference.written().items():
        path.write_text(text)
    return 0
