"""From measuring to serving, on one machine without a GPU: profile, plan, apply, load, compare.

Two engines keep the laws of truth.json without computing (`python -m hetplan.executor.emulator`). They are profiled as
any server is, by streaming from them: what is planned with is what was measured, not what is true. The plan's fleet is
started with these engines, gets its demand as streams, and what came is set beside promise and simulation. About three
minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
HETPLAN = [sys.executable, "-m", "hetplan"]
EMULATOR = [sys.executable, "-m", "hetplan.executor.emulator"]

MEASURE = """
format = "hetplan/measure/1.0"
[machines.small]
kind = "gpu"
provides = {{gpu = 1}}
[machines.large]
kind = "gpu"
provides = {{gpu = 1}}

[engines.talker-small]
url = "http://127.0.0.1:{small}/v1/completions"
name = "talker-small"
model = "talker"
machine = "small"
kv_tokens = 20000
context_tokens = 4096
most_seqs = 32
concurrency = {streams}
input_tokens = {lengths}

[engines.talker-large]
url = "http://127.0.0.1:{large}/v1/completions"
name = "talker-large"
model = "talker"
machine = "large"
kv_tokens = 60000
context_tokens = 4096
most_seqs = 64
concurrency = {streams}
input_tokens = {lengths}
"""

HOSTS = """
files = ["measured.json", "slo.json"]
router = {{ port = 0 }}

[targets.here]
kind = "local"

[hosts.box]
target = "here"
machines = ["small", "large"]
count = 16
gpus_per_worker = 0                 # nothing computes, so no GPU is asked for

[models."*"]                        # a real fleet says "vllm serve ..." here
command = ["{python}", "-m", "hetplan.executor.emulator", "{{variant}}-{{hardware}}", "{truth}", "--port", "{{port}}",
           "--most-tokens", "{{max_tokens}}", "--most-seqs", "{{max_seqs}}"]
"""


def hetplan(*words: str | Path, folder: Path, show: bool = True) -> str:
    """Run a command; it must succeed, but for a load, whose exit code is said."""
    print("$ hetplan", *words, flush=True)
    done = subprocess.run([*HETPLAN, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)
    if show:
        print(done.stdout, flush=True)
    if done.returncode and words[0] != "loadtest":
        raise SystemExit(f"{done.stderr}\nhetplan {words[0]} ended with {done.returncode}")
    if words[0] == "loadtest":
        print(f"(exit {done.returncode})\n{done.stderr[-500:]}")
    return done.stdout


@contextmanager
def engines(folder: Path) -> Iterator[dict[str, int]]:
    """One engine of each type, where it listens."""
    started, ports = [], {}
    try:
        for name in ("small", "large"):
            words = [
                sys.executable,
                "-m",
                "hetplan.executor.emulator",
                f"talker-{name}",
                str(HERE / "truth.json"),
                "--port",
                "0",
            ]
            process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=folder)
            started.append(process)
            assert process.stderr is not None
            found = re.search(r":(\d+)$", process.stderr.readline())
            assert found is not None, "the engine did not start"
            ports[name] = int(found[1])
        yield ports
    finally:
        for process in started:
            process.terminate()
            process.wait()


def served(url: str) -> None:
    """Ask once, as a client of OpenAI's would, and show what came."""
    said = {"model": "assistant", "messages": [{"role": "user", "content": "How are you?"}], "max_tokens": 8}
    asked = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(said).encode())
    for _ in range(50):
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                print("the router says:", json.loads(answer.read())["choices"][0]["message"]["content"])
            return
        except urllib.error.HTTPError:
            time.sleep(0.2)


def run(folder: Path, *, quick: bool, seconds: float) -> None:
    """All of it, in this folder."""
    shutil.copy(HERE / "slo.json", folder)
    shutil.copy(HERE / "prices.json", folder)
    lengths, streams = ([32, 500, 1000, 1800], [2, 12]) if quick else ([32, 200, 500, 1000, 1800], [1, 4, 12, 24])
    with engines(folder) as ports:
        (folder / "measure.toml").write_text(MEASURE.format(**ports, lengths=lengths, streams=streams))
        hetplan("profile", "measure.toml", "-o", "measured.json", folder=folder)
    hetplan("solve", "measured.json", "prices.json", "slo.json", "-o", "plan.json", folder=folder)
    hosts = HOSTS.format(python=sys.executable, truth=HERE / "truth.json")
    (folder / "site.toml").write_text(hosts)
    try:
        said = hetplan("apply", "plan.json", "--site", "site.toml", "--yes", folder=folder)
        found = re.search(r"http://[^/\s]+", said)
        assert found is not None
        served(found[0])
        files = ("plan.json", "measured.json", "prices.json", "slo.json")
        hetplan("loadtest", *files, "--endpoint", found[0], "--duration", str(seconds), folder=folder)
        hetplan("status", "--site", "site.toml", folder=folder)
    finally:
        hetplan("down", "--site", "site.toml", "--yes", folder=folder, show=False)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cells and seconds of load")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    asked = parser.parse_args()
    folder = (asked.keep or Path(tempfile.mkdtemp(prefix="hetplan-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(folder, quick=asked.quick, seconds=min(asked.seconds, 8.0) if asked.quick else asked.seconds)
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
