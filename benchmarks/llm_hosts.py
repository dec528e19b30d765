"""Text on real processes: the embedded engine against its simulation, and what the router adds to a stream.

    python benchmarks/llm_hosts.py truth [--seconds 40] [--only LAW]
    python benchmarks/llm_hosts.py router [--seconds 8]

`truth`: cells of two laws (a roofline of two pieces, and one whose parts add up), three loads and two mixes of lengths.
Two workers keep the law, the router sends each request to one by `least-work/1`; the very requests that are sent are
played in the simulator. A cell is true where p95 of TTFT and of TPOT are within 10% of the simulation, and goodput
within a point. `router`: a server that answers at once and makes a token every 20 ms is behind a worker; 50 streams at
a time, begun one after the other, go to the worker and to the router, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
from multiprocessing import Process
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hetplan.cli.loadtest import TextLoad, text_load
from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked
from hetplan.executor.site import read_site
from hetplan.measure.load_send import Target, send_load
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.workers import Load, Worker

LAWS = {
    "roofline": [{"base_ms": 8.0, "token_ms": 0.2, "pair_ms": 1e-5}, {"base_ms": 30.0, "kv_token_ms": 0.0005}],
    "sum": [{"base_ms": 20.0, "token_ms": 0.12, "kv_token_ms": 0.0005, "sequence_ms": 0.2}],
}
MIXES = {"short": ([[80, 30], [300, 50]], [0.6, 0.4]), "long": ([[300, 20], [1500, 60]], [0.7, 0.3])}
RATES = {("roofline", "short"): 9.0, ("roofline", "long"): 5.0, ("sum", "short"): 12.0, ("sum", "long"): 6.0}
"""About what two machines of the law hold of the mix; the loads are shares of it."""
LOADS = (0.5, 0.7, 0.85)
ENGINE = {"kv_tokens": 20000, "context_tokens": 4096, "most_tokens": 512, "most_seqs": 32}


def profile_of(law: str) -> dict[str, Any]:
    """One model on one type of machine, whose engine has this law."""
    return {
        "format": "hetplan/profile/1.0",
        "machines": {"gpu": {"provides": {"gpu": 1}}},
        "models": {"talker": {"task": "chat", "runs": {"gpu": {"law": {"pieces": LAWS[law], **ENGINE}}}}},
    }


def slo_of(law: str, mix: str, load: float) -> dict[str, Any]:
    """A demand, and limits that some requests miss."""
    bins, share = MIXES[mix]
    axes = ["input_tokens", "output_tokens"]
    wish = {
        "task": "chat", "attainment": 0.5,
        "latency": {"ttft_p95_ms": 500, "tpot_p95_ms": 80},
        "rate_qps": load * RATES[law, mix], "mix": {"axes": axes, "bins": bins, "share": share},
    }  # fmt: skip
    return {"format": "hetplan/slo/1.0", "apps": {"chat": wish}}


def plan_of(count: int, output: float) -> Plan:
    """So many machines, by least work."""
    serve = {"max_batch": 32, "concurrency": 32, "most_tokens": 512, "most_seqs": 32}
    load = Load(id="l", app="chat", variant="talker", serve=serve)
    worker = Worker(id="w", hardware="gpu", count=count, queue="per-load", loads=(load,))
    rule = {"rule": "least-work/1", "ttft_ms": 500.0, "limit": {"l": 4.0}, "output_tokens": output}
    data = {
        "question": "llm", "method": Method(formulation="by hand"), "inputs": InputHashes(profile="p", slo="s"),
        "workers": (worker,), "dispatch": {"chat": rule}, "routing": {"chat": [{"to": {"l": 1.0}}]},
    }  # fmt: skip
    return with_digest(Plan.model_validate(data))


def hosts_of(folder: Path, rule: dict[str, Any]) -> Any:
    """This machine plays all."""
    return read_site({
        "state_dir": str(folder / "state"), "files": [str(folder / "profile.json")], "router": {"port": 0},
        "targets": {"here": {"kind": "local"}}, "models": {"*": rule},
        "hosts": {"box": {"target": "here", "machines": ["gpu"], "count": 8, "gpus_per_worker": 0}},
    })  # fmt: skip


def truth(seconds: float, only: str | None) -> None:
    """The table of cells."""
    true, within = 0, 0
    columns = ("law", "mix", "rate/s", "requests", "TTFT p95 simulated", "measured", "off", "TPOT p95 simulated")
    print(f"| {' | '.join((*columns, 'measured', 'off', 'goodput simulated', 'measured', 'points'))} |")
    print("|---" * (len(columns) + 5) + "|")
    cells = [(law, mix, load) for law in LAWS for mix in MIXES for load in LOADS if only in (None, law)]
    for number, (law, mix, load) in enumerate(cells):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "profile.json").write_text(json.dumps(profile_of(law)))
            (folder / "slo.json").write_text(json.dumps(slo_of(law, mix, load)))
            inputs = load_inputs([folder / "profile.json"], folder / "slo.json")
            bins, share = MIXES[mix]
            plan = plan_of(2, sum(part * size[1] for part, size in zip(share, bins, strict=True)))
            with Deployment(hosts_of(folder, {"kind": "sleep"})) as deployment:
                try:
                    endpoint = deployment.apply(plan).endpoint
                    report = text_load(plan, inputs, TextLoad(endpoint, seconds, seed=number))
                finally:
                    deployment.down(wait_s=30.0)
        lines = {line.name: line for line in report.lines}
        found = [lines["ttft_ms p95"], lines["tpot_ms p95"], lines["goodput"]]
        pairs = [(one.simulated[0], one.measured.value) for one in found if one.simulated and one.measured]
        off = [measured / simulated - 1.0 for simulated, measured in pairs[:2]]
        points = 100.0 * (pairs[2][1] - pairs[2][0])
        well = all(abs(one) <= 0.1 for one in off)
        within += well
        true += well and abs(points) <= 1.0
        times = " | ".join(
            f"{simulated:.0f} | {measured:.0f} | {100 * share_off:+.1f}%"
            for (simulated, measured), share_off in zip(pairs[:2], off, strict=True)
        )
        requests = report.apps["chat"].requests
        rate = load * RATES[law, mix]
        goodput = f"{pairs[2][0]:.3f} | {pairs[2][1]:.3f} | {points:+.1f}"
        print(f"| {law} | {mix} | {rate:.1f} | {requests} | {times} | {goodput} |", flush=True)
    said = f"{within} of {len(cells)} cells within 10% at p95 of TTFT and TPOT"
    print(f"\n{said}; {true} of them with goodput within a point too.")


# What the router adds

TOKEN = b'data: {"choices": [{"text": " so"}]}\n\n'


async def _stub(port_file: str, tokens: int, every_s: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (
                        int(one.split(b":")[1])
                        for one in head.split(b"\r\n")
                        if one.lower().startswith(b"content-length")
                    ),
                    0,
                )
                await reader.readexactly(length)
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    continue
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for _ in range(tokens):
                    writer.write(b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))
                    await asyncio.sleep(every_s)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


def run_stub(port_file: str, tokens: int, every_s: float) -> None:
    """The server behind the worker, in a process of its own."""
    asyncio.run(_stub(port_file, tokens, every_s))


def cpu_s(pid: int) -> float:
    """What a process has taken of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def router(seconds: float, *, streams: int = 50, tokens: int = 50, rounds: int = 4) -> None:
    """TTFT and tokens through the router and without it, by turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profile.json").write_text(json.dumps(profile_of("sum")))
        stub = Process(target=run_stub, args=(str(folder / "port"), tokens, 0.02))
        stub.start()
        while not (folder / "port").exists() or not (folder / "port").read_text():
            pass
        rule = {"url": f"http://127.0.0.1:{(folder / 'port').read_text()}"}
        with Deployment(hosts_of(folder, rule)) as deployment:
            try:
                endpoint = deployment.apply(plan_of(1, float(tokens))).endpoint
                (seen,) = deployment.observe()
                assert seen.endpoint is not None
                direct = f"http://127.0.0.1:{seen.endpoint.port}"
                pid = next(
                    one for one in marked((folder / "state" / "targets" / "here").resolve())
                    if b"serving.router" in Path(f"/proc/{one}/cmdline").read_bytes() and cpu_s(one) > 0.0
                )  # fmt: skip
                _compare(direct, endpoint, pid, seconds, streams=streams, tokens=tokens, rounds=rounds)
            finally:
                deployment.down(wait_s=30.0)
                stub.terminate()


def _compare(
    direct: str, endpoint: str, pid: int, seconds: float, *, streams: int, tokens: int, rounds: int
) -> None:  # fmt: skip
    first: dict[str, list[float]] = {"worker": [], "router": []}
    last: dict[str, list[float]] = {"worker": [], "router": []}
    gaps: dict[str, list[float]] = {"worker": [], "router": []}
    cpu = made = 0.0
    for _ in range(rounds):
        for way, url in (("worker", direct), ("router", endpoint)):
            # One begins when another ends, so that so many are open at a time and no two begin together.
            due = np.arange(0.0, seconds, 0.02 * tokens / streams)
            body = json.dumps({"prompt": [1] * 100, "max_tokens": tokens, "stream": True}).encode()
            target = Target(
                "chat", f"{url}/v1/completions", due, np.zeros(len(due), np.int32), [body], streams=True
            )  # fmt: skip
            before = cpu_s(pid)
            (sent,) = send_load([target], timeout_s=60.0)
            known = [(one, due) for one, due in zip(sent.marks, sent.due_s.tolist(), strict=True) if one is not None]
            assert all(one.tokens == tokens for one, _ in known), "tokens were lost"
            first[way] += [1e3 * (one.first_s - due) for one, due in known]
            last[way] += [1e3 * (one.last_s - due) for one, due in known]
            gaps[way] += [1e3 * one.gap_s for one, _ in known]
            if way == "router":
                cpu += cpu_s(pid) - before
                made += tokens * len(known)
    print(f"{streams} streams at a time, {tokens} tokens each, {len(first['router'])} streams by each way")
    print("| | by the worker alone | by the router | added |\n|---|---|---|---|")
    for what, values in (("first token", first), ("last token", last), ("longest gap", gaps)):
        for at in (50, 95):
            one, other = (float(np.percentile(values[way], at)) for way in ("worker", "router"))
            print(f"| {what}, p{at}, ms | {one:.2f} | {other:.2f} | {other - one:+.2f} |")
    means = [statistics.fmean(values) for values in (first["worker"], first["router"])]
    print(f"| first token, mean, ms | {means[0]:.2f} | {means[1]:.2f} | {means[1] - means[0]:+.2f} |")
    print(f"\nThe router's processor time: {1e3 * cpu / made:.3f} ms per token, its stream's begin and end included.")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("truth", "router"))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", choices=tuple(LAWS))
    asked = parser.parse_args()
    if asked.what == "truth":
        truth(asked.seconds or 40.0, asked.only)
    else:
        router(asked.seconds or 8.0)


if __name__ == "__main__":
    main()
