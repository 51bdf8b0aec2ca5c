"""What finds mistakes in pages finds them. Part of `scripts/generate docs --check`."""

import tempfile
import unittest
from pathlib import Path

from . import conformance
from . import expected
from . import pages

PAGE = """\
<!-- runs: one-machine -->
# A page, with `code`

```sh background until=ready
serve &
```

1. in a list

   ```yaml file=a.yaml
   kind: A
     b: 1
   ```

<!-- hidden
```console
$ echo a \\
> b
a b
$ true
```
-->

    indented

| `kubectl get all` |

<!-- run the commands in this table -->

| question | command |
|---|---|
| what? | `kubectl get a \\| wc -l`, then `b` |

`varnish-gateway serve --bind X` and [a link](other.md#there) and `[none](at all)`.
"""


def page():
    with tempfile.NamedTemporaryFile("w", suffix=".md") as file:
        file.write(PAGE)
        file.flush()
        return pages.read(Path(file.name))


class Conformance(unittest.TestCase):
    def test_names(self):
        self.assertEqual(conformance.named("| 4 | `max-age`, `a_test_of_it`, `a-test.vtc` (`/page`), `no_test` |"), ["a_test_of_it", "a-test.vtc"])


class Pages(unittest.TestCase):
    def test_blocks(self):
        blocks = page().blocks
        self.assertEqual([b.language for b in blocks], ["sh", "yaml", "console", "sh"])
        self.assertEqual(blocks[0].attributes, {"background": "", "until": "ready"})
        self.assertEqual(blocks[1].text, "kind: A\n  b: 1\n")
        self.assertEqual(blocks[3].text, "kubectl get a | wc -l\n")

    def test_the_rest(self):
        read = page()
        self.assertEqual(read.runs, "one-machine")
        self.assertEqual(read.anchors, {"a-page-with-code"})
        self.assertEqual([target for _, target in read.links], ["other.md#there"])
        self.assertEqual(len(read.indented), 1)
        self.assertEqual([text for _, text in read.mentions], ["varnish-gateway serve --bind X"])


class Output(unittest.TestCase):
    def test_commands(self):
        found = expected.commands(page().blocks[2].text)
        self.assertEqual(found, [("echo a \\\nb\n", ["a b"]), ("true\n", [])])

    def test_what_is_there(self):
        self.assertIsNone(expected.missing(["X-Cache: HIT", "b … d"], "HTTP/1.1 200\nx-cache:  HIT\nmore\nb c d\n"))
        self.assertIsNone(expected.missing(["…"], ""))

    def test_what_is_not(self):
        self.assertEqual(expected.missing(["X-Cache: HIT"], "X-Cache: MISS\n"), "X-Cache: HIT")
        self.assertEqual(expected.missing(["b", "a"], "a\nb\n"), "a")
        self.assertEqual(expected.missing(["200 OK"], "200 ok\n"), "200 OK")
