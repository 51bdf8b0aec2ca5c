"""Runs what the pages say. Arguments: --no-cluster, and pages (all by default)."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import expected
from .pages import DOCS, REPOSITORY, Block, Page, all_pages, is_instruction
from .session import Ended, Session
from .validate import Validator

KIT = REPOSITORY / "tests/cluster"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
BINARIES = Path(os.environ.get("BINARIES", TARGET / "debug")).resolve()
BINARY = BINARIES / "varnish-gateway"
# For one block; and for what a `console` shows to come true.
PATIENCE = 240
SHOWN_WITHIN = 90
# Pages at once: they wait more than they work.
AT_ONCE = 3
# It removes the operator in the end.
LAST = DOCS / "getting-started-cluster.md"
# What pages find in their directory.
FOUND = ("examples", "deploy", "charts", "tests/docs", "docs/reference")


class Failed(Exception):
    pass


def step(text):
    print(text, flush=True)


class Run:
    def __init__(self, page, cluster, scratch):
        self.page, self.cluster = page, cluster
        self.directory = Path(tempfile.mkdtemp(prefix=page.path.stem + "-", dir=scratch))
        # varnishd's child is another user.
        self.directory.chmod(0o755)
        self.session = None
        self.ran = 0
        self.not_run = []

    def all(self):
        for block in self.page.blocks:
            if block.has("not-run"):
                self.not_run.append((block, block.attributes["not-run"]))
            elif block.has("dry"):
                dry(block)
            elif block.has("file"):
                file = self.open().directory / block.attributes["file"]
                file.parent.mkdir(parents=True, exist_ok=True)
                # Beside it and renamed, as pages tell people to do: no reader sees half a file.
                (self.directory / ".new").write_text(block.text)
                (self.directory / ".new").rename(file)
            elif block.has("apply"):
                self.strict(block, "kubectl apply -f - <<'PAGE'\n" + block.text + "PAGE\n")
            elif block.language == "sh" and block.has("background"):
                self.background(block)
            elif block.language == "sh":
                self.strict(block, block.text)
            elif block.language == "console":
                self.console(block)
            else:
                continue
            self.ran += not block.has("not-run")

    def open(self):
        """The shell, at the first need."""
        if self.session:
            return self.session
        for name in FOUND:
            if (REPOSITORY / name).exists():
                shutil.copytree(REPOSITORY / name, self.directory / name, symlinks=True)
        self.name_images()
        (self.directory / "target").mkdir()
        (self.directory / "target/release").symlink_to(BINARIES)
        environment = {
            "PATH": f"{BINARIES}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory / ".tmp"),
            "LANG": "C.UTF-8",
        }
        (self.directory / ".tmp").mkdir()
        if self.cluster:
            environment |= self.cluster.environment(self.directory, "docs-" + self.page.path.stem)
            enter = [KIT / "exec", "env", *(f"{name}={environment[name]}" for name in ("KUBECONFIG", "PATH"))]
            environment |= {name: value for name, value in os.environ.items() if name.startswith("VG_")} | {"HOME": os.environ["HOME"]}
        else:
            enter = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        self.session = Session(self.directory, environment, enter)
        return self.session

    def name_images(self):
        """deploy/ as tests/cluster/install applies it: with images that are there."""
        for file in (self.directory / "deploy").glob("*.yaml"):
            text = re.sub(r"(?m)^( *(?:image|value): ).*/(gateway-(?:operator|chaperone))[:@].*", r"\1localhost/\2:dev", file.read_text())
            file.write_text(text)

    def strict(self, block, commands):
        try:
            code, said = self.open().run(commands, PATIENCE, strict=True)
        except Ended:
            raise Failed(where(self.page, block, "a command failed", self.session.last())) from None
        except TimeoutError as late:
            raise Failed(where(self.page, block, str(late), self.session.last())) from None
        if code != 0:
            raise Failed(where(self.page, block, f"exit code {code}", said))

    def background(self, block):
        log = self.open().start(block.text)
        until = re.compile(block.attributes.get("until", ""))
        end = time.monotonic() + SHOWN_WITHIN
        while not until.search(log.read_text() if log.exists() else ""):
            if time.monotonic() > end:
                raise Failed(where(self.page, block, f"{until.pattern!r} was not printed", self.session.last()))
            time.sleep(0.05)

    def console(self, block):
        """Each command, until it prints what the page shows."""
        for command, wanted in expected.commands(block.text):
            end = time.monotonic() + SHOWN_WITHIN
            while True:
                try:
                    code, said = self.open().run(command, PATIENCE, strict=False)
                except (Ended, TimeoutError) as why:
                    raise Failed(where(self.page, block, f"$ {command}{why}", self.session.last())) from None
                lacks = expected.missing(wanted, said)
                if lacks is None and (wanted or code == 0):
                    break
                if time.monotonic() > end:
                    why = f"$ {command}does not print: {lacks}" if lacks else f"$ {command}exit code {code}"
                    raise Failed(where(self.page, block, why, said))
                time.sleep(0.3)

    def end(self):
        if self.session:
            self.session.end()
        if self.cluster and self.session:
            self.cluster.forget("docs-" + self.page.path.stem)


def where(page, block, why, said):
    return f"{page.name}:{block.line}: {why}\n{textwrap.indent(said[-4000:], '    ')}"


def dry(block):
    """Commands that other parts of CI run, or that must not run in a test: their targets exist at least. (structure.py lets nothing else be dry.)"""
    for line in block.text.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            done = subprocess.run(["make", "-n", *words[1:]], cwd=REPOSITORY, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Failed(f"{line}: {done.stderr}")


def wrong_commands(pages):
    """Commands and options of ours that pages only name: they exist."""
    helps = {}

    def help_of(*command):
        if command not in helps:
            done = subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, timeout=60, check=False)
            helps[command] = done.stdout if done.returncode == 0 else ""
        return helps[command]

    for page in pages:
        for line, text in page.mentions:
            words = text.split()[1:]
            if not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
                continue
            known = help_of(words[0])
            if not known:
                yield f"{page.name}:{line}: there is no command `varnish-gateway {words[0]}`"
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
                if known and not re.search(rf"{option}\b(?!-)", known):
                    yield f"{page.name}:{line}: `varnish-gateway {words[0]}` has no option {option}"


class Cluster:
    """Namespaces of the test cluster, one for each page."""

    def __init__(self):
        said = subprocess.run([KIT / "exec", "printenv", "KUBECONFIG", "PATH"], capture_output=True, text=True, check=True)
        self.config, path = said.stdout.splitlines()
        self.path = f"{BINARIES}:{path}"
        self.kubectl = [KIT / "kubectl"]
        self.forgotten = []

    def environment(self, directory, namespace):
        config = directory / ".kubeconfig"
        shutil.copy(self.config, config)
        self.run("delete", "namespace", namespace, "--ignore-not-found", "--timeout=60s")
        self.run("create", "namespace", namespace)
        self.run("config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={config}")
        return {"KUBECONFIG": str(config), "PATH": self.path}

    def forget(self, namespace):
        self.forgotten.append(namespace)
        self.run("delete", "namespace", namespace, "--wait=false")

    def wait_until_forgotten(self):
        if self.forgotten:
            self.run("wait", "--for=delete", "--timeout=80s", *(f"namespace/{name}" for name in self.forgotten))

    def run(self, *arguments):
        subprocess.run([*self.kubectl, *arguments], capture_output=True, timeout=90, check=False)


def one(page, cluster, scratch):
    """A page's run, and what failed."""
    run = Run(page, cluster if page.runs == "cluster" else None, scratch)
    if page.runs == "cluster" and not cluster:
        step(f"{page.name}: needs a cluster, left out")
        return run, None
    begun = time.monotonic()
    try:
        run.all()
        if run.ran:
            step(f"{page.name}: {run.ran} blocks run in {time.monotonic() - begun:.0f} s")
        return run, None
    except Failed as failed:
        step(f"{page.name}: FAILED after {time.monotonic() - begun:.0f} s")
        return run, str(failed)
    finally:
        run.end()


def main(arguments):
    with_cluster = "--no-cluster" not in arguments
    names = [str(Path(a)) for a in arguments if not a.startswith("--")]
    if not BINARY.exists() or not (BINARIES / "libvmod_ghost.so").exists():
        raise SystemExit(f"scripts/test docs: {BINARY} or its VMOD is missing: run cargo build --workspace")
    pages = [p for p in all_pages() if is_instruction(p) and (not names or p.name in names)]
    pages.sort(key=lambda page: page.path == LAST)
    if not pages:
        raise SystemExit(f"scripts/test docs: no such page: {' '.join(names)}")
    cluster = Cluster() if with_cluster else None
    failures, not_run, ran, validated, begun = [], [], 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vg-docs-") as scratch:
        # varnishd's child is another user.
        os.chmod(scratch, 0o755)
        validator = Validator(BINARY, scratch, cluster and cluster.kubectl)
        for page in pages:
            for block in page.blocks:
                check = {"yaml": validator.yaml, "vcl": validator.vcl}.get(block.language)
                if check and not block.has("not-run"):
                    validated += 1
                    if why := check(block):
                        failures.append(where(page, block, "is not valid", str(why)))
        if not names:
            for file in sorted(REPOSITORY.glob("examples/**/*.yaml")):
                validated += 1
                if why := validator.yaml(example := Block(1, "yaml", {}, file.read_text())):
                    failures.append(where(Page(file), example, "is not valid", why))
            failures += wrong_commands(pages)
        step(f"{validated} blocks of YAML and VCL validated in {time.monotonic() - begun:.0f} s")
        def run_page(page):
            return one(page, cluster, scratch)

        *most, last = pages if with_cluster and pages[-1].path == LAST else [*pages, None]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = list(pool.map(run_page, most))
        if last:
            cluster.wait_until_forgotten()
            done.append(run_page(last))
    for run, failure in done:
        ran += run.ran
        failures += [failure] if failure else []
        not_run += [f"{run.page.name}:{block.line}: {reason}" for block, reason in run.not_run]
    for line in not_run:
        step(f"not run: {line}")
    for failure in failures:
        print(failure, file=sys.stderr)
    step(f"{ran} blocks run, {validated} validated, {len(not_run)} not run, {len(failures)} failed in {time.monotonic() - begun:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
