"""A question answerer from search to service on this machine: measured, planned, applied, loaded, watched, taken down.

    python examples/rag/run.py            some minutes on two cores; nothing is downloaded
    python examples/rag/run.py --quick    the same with fewer samples and seconds of load

Every step is a `hetplan` command, shown as it runs. The last part grades live answers: first nothing is wrong, then
people type worse than before, the drift is noticed, settings are searched for anew from what is known, and applied.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import operators  # noqa: E402

FILES = ["profile.json", "slo.json"]
ROW = "{:<16} {:>10} {:>10} {:>10} {:>22}  {}"


class Example:
    """The folder that everything happens in."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        operators.FOLDER = folder
        (folder / "mistyped").unlink(missing_ok=True)
        for name in ("profile.json", "slo.json", "operators.py", "evaluate.py", "serve.py"):
            shutil.copy(HERE / name, folder)
        if quick:
            # A few samples on a busy machine bound no percentile tightly.
            (folder / "slo.json").write_text((HERE / "slo.json").read_text().replace('"p95_ms": 100', '"p95_ms": 1000'))
        # Models run in folders of their own: their commands name files by whole paths.
        hosts = (HERE / "site.toml").read_text().replace("python3", sys.executable)
        here = folder.resolve()
        (folder / "site.toml").write_text(hosts.replace('"serve.py", "."', f'"{here / "serve.py"}", "{here}"'))

    def hetplan(self, *words: str, allow: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """Run a command as a user would; the lines of its stream."""
        print(f"$ hetplan {' '.join(words)}", flush=True)
        command = [str(Path(sys.executable).with_name("hetplan")), *words, "--json"]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, env=one_thread)
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        for line in ran.stderr.splitlines():
            print(f"  {line}")
        if ran.returncode not in allow:
            raise SystemExit(f"exit {ran.returncode}: {lines[-1]['exit']['reason'] if lines else ran.stdout[-300:]}")
        return lines

    @property
    def measuring(self) -> list[str]:
        """Who measures, where it is kept, and how much of it."""
        most = (
            ["--set", "max_measurements=8", "--set", "samples_max=80"]
            if self.quick
            else ["--set", "max_measurements=20"]
        )
        return ["--evaluate", "questions", "--site", "site.toml", "--journal", "measured.jsonl", *most]

    def search(self) -> dict[str, Any]:
        """Measure settings until one is known to comply, and plan it."""
        self.hetplan("solve", *FILES, *self.measuring, "-o", "plan.json")
        plan = json.loads((self.folder / "plan.json").read_text())
        chosen: dict[str, Any] = plan["dispatch"]["ask"]
        print(f"  chosen: {chosen['knobs']}, placed {chosen['placement']}")
        return chosen

    def load(self, endpoint: str) -> None:
        """Send questions, and hold what comes back against promise and simulation."""
        seconds = "3" if self.quick else "20"
        words = ["loadtest", "plan.json", *FILES, "measured.jsonl", "--endpoint", endpoint]
        report = self.hetplan(*words, "--duration", seconds, allow=(0, 6, 9))[-1]["report"]
        print(ROW.format("quantity", "promised", "simulated", "measured", "interval", "verdict"))
        for line in report["lines"]:
            if line["measured"] is not None:
                low, high = line["measured"]["interval"]
                name = line["quantity"] + (f" p{line['percentile']:g}" if line["percentile"] is not None else "")
                simulated = (line["simulated"] or {}).get("value")
                measured = [_number(one) for one in (line["promised"], simulated, line["measured"]["value"])]
                print(ROW.format(name, *measured, f"{_number(low)} .. {_number(high)}", line["verdict"]))

    def serve(self, endpoint: str, *, first: int) -> None:
        """Ask questions whose answers are known, and write down how they went, for `hetplan autoscale --live`."""
        right, count = 0, 250 if self.quick else 600
        with open(self.folder / "live.jsonl", "a") as live:
            for number in range(first, first + count):
                said, answer = operators.question(number)
                body = json.dumps({"inputs": {"question": said}}).encode()
                asked = urllib.request.Request(f"{endpoint}/v1/ask", body, {"content-type": "application/json"})
                with urllib.request.urlopen(asked) as reply:
                    score = float(_answer(json.load(reply)) == answer)
                live.write(json.dumps({"app": "ask", "score": score}) + "\n")
                right += score == 1.0
        mistyped = f"{100 * operators.typing():.0f}% of letters mistyped"
        print(f"  {count} questions, {mistyped}: {100 * right / count:.0f}% right")

    def watched(self) -> None:
        """A look at the live answers; where they have drifted, settings are searched for anew and applied."""
        words = ["autoscale", *FILES, *self.measuring, "--live", "live.jsonl", "--once", "--every", "0.2"]
        events = [line["event"] for line in self.hetplan(*words, allow=(0, 3)) if "event" in line]
        said = [event["text"] for event in events if event["what"] != "look"]
        print("  " + ("; ".join(said) or "nothing has drifted"))


def _answer(heard: dict[str, Any]) -> str:
    """The answer in a reply of the router, which has the outputs of every step that says any."""
    found = [one["outputs"]["answer"] for one in heard["outputs"] if one["node"] == "generate"]
    return str(found[0]) if found else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def whole(example: Example) -> None:
    """From search to service."""
    example.search()
    try:
        endpoint = str(example.hetplan("apply", "plan.json", "--site", "site.toml", "--yes")[-1]["endpoint"])
        example.load(endpoint)
        example.serve(endpoint, first=2_000_000)
        example.watched()
        (example.folder / "mistyped").write_text("0.3" if example.quick else "0.22")
        print("people type worse from now on")
        example.serve(endpoint, first=3_000_000)
        example.watched()
        example.serve(endpoint, first=4_000_000)
    finally:
        example.hetplan("down", "--site", "site.toml", "--yes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples and seconds of load")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="hetplan-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        whole(Example(folder, quick=asked.quick))
        print(f"all of it took {time.monotonic() - began:.0f} s")
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
