"""A shell that runs a page's commands one after the other, in namespaces of its own: whatever they start ends with it."""

import os
import select
import subprocess
import time
from pathlib import Path


class Ended(Exception):
    """The shell is gone: a command failed in a block of `sh`."""


class Session:
    def __init__(self, directory, environment, enter):
        """`enter`: what stands before the shell, `unshare …` or the cluster's `exec`."""
        self.directory = Path(directory)
        self.logs = self.directory / ".steps"
        self.logs.mkdir()
        self.count = 0
        self.told, tell = os.pipe()
        self.shell = subprocess.Popen(
            [*enter, "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "bash", "--noprofile", "--norc"],
            cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, pass_fds=[tell], text=True,
        )  # fmt: skip
        os.close(tell)
        # Others must not inherit it: the end of the shell is the end of the pipe.
        # It may be 9 itself.
        close = "" if tell == 9 else f" {tell}>&-"
        self.say(f"exec 9>&{tell}{close}; set -o pipefail")

    def say(self, line):
        try:
            self.shell.stdin.write(line + "\n")
            self.shell.stdin.flush()
        except BrokenPipeError:
            raise Ended from None

    def run(self, commands, seconds, strict):
        """Exit code and output. With `strict` the first command that fails ends the shell."""
        self.count += 1
        script, log = self.logs / f"{self.count}.sh", self.logs / f"{self.count}.log"
        script.write_text(commands)
        on, off = ("set -e; ", "; code=$?; set +e") if strict else ("", "; code=$?")
        self.say(f"{on}. {script} >{log} 2>&1 </dev/null 9>&-{off}; echo $code >&9")
        end = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self.told], [], [], max(0, min(0.2, end - time.monotonic())))
            if ready:
                code = os.read(self.told, 64).decode().strip()
                if not code:
                    raise Ended
                return int(code), log.read_text(errors="replace")
            if self.shell.poll() is not None:
                raise Ended
            if time.monotonic() > end:
                raise TimeoutError(f"not done within {seconds} s")

    def start(self, commands):
        """In the background; the log to look at."""
        self.count += 1
        script, log = self.logs / f"{self.count}.sh", self.logs / f"{self.count}.log"
        script.write_text(commands)
        self.say(f"bash {script} >{log} 2>&1 </dev/null 9>&- &")
        return log

    def last(self):
        log = self.logs / f"{self.count}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def end(self):
        os.close(self.told)
        self.shell.kill()
        self.shell.stdin.close()
        self.shell.wait()
