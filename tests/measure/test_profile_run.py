"""Measuring models of every kind, going on after a crash, and the profile that comes of it."""

from __future__ import annotations

import http.server
import io
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.tiny_models import CALLABLES, write_labelled, write_model

from hetplan.errors import InputError
from hetplan.measure.journal import CellJournal
from hetplan.measure.measure_file import Repeats, Wish, read_wish
from hetplan.measure.profile_cell import cores_of_this_process, pin_cores, rests_s
from hetplan.measure.profile_document import profile_document
from hetplan.measure.profile_run import Measurements, measure
from hetplan.profiles.load_one import load_profile
from hetplan.profiles.merge import merge
from tests.build import planned

HEAD = """
format = "hetplan/measure/1.0"
[machines.cpu-1]
[repeats]
most_waited = 1
warm_up = 1
min_runs = 3
max_runs = 5
max_s = 2
p99_within = 100
[metrics.top1]
kind = "bernoulli"
[tasks.classify]
metric = "top1"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_model(tmp_path / "tiny.onnx")
    write_labelled(tmp_path / "labelled.npz")
    (tmp_path / "measured_callables.py").write_text(CALLABLES)
    monkeypatch.delitem(sys.modules, "measured_callables", raising=False)
    return tmp_path


def measured(folder: Path, text: str, **how: Any) -> tuple[Wish, Measurements]:
    (folder / "measure.toml").write_text(HEAD + text)
    wish, where = read_wish(folder / "measure.toml")
    return wish, measure(wish, where, **how)


ONNX = """
[models.tiny]
task = "classify"
onnx = "tiny.onnx"
axes = {batch = [1, 4]}
at = {batch = 4}
quality = "labelled.npz"
"""


def test_an_onnx_model(folder: Path) -> None:
    wish, found = measured(folder, ONNX)
    profile = load_profile(profile_document(wish, found))
    run = profile.variants["tiny"].runs[0]
    table = profile.tables[run.latency or ""]
    assert table.axes == {"batch": (1, 4)}
    assert set(table.statistics) == {"mean", "std", "p50", "p90", "p95", "p99", "max"}
    assert all(3 <= count <= 5 for count in table.samples)
    assert profile.tables[run.bytes_out or ""].read([{"batch": 1}, {"batch": 4}]).values.tolist() == [12, 48]
    assert run.saturation_qps == pytest.approx(4000 / table.read([{"batch": 4}]).values[0], rel=1e-4)
    assert run.needs["cpu_cores"] == 1
    quality = profile.variants["tiny"].quality
    assert quality is not None
    assert quality.value == 0.75
    details = profile.extensions["measured.tiny"]
    assert details["quality"]["samples"] == 20
    assert details["quality"]["interval"][0] < 0.75 < details["quality"]["interval"][1]
    assert [cell["at"] for cell in details["cpu-1"]["cells"]] == [{"batch": 1}, {"batch": 4}]
    (source,) = profile.sources.values()
    assert "onnxruntime" in (source.tool or "")
    assert source.host is None


def test_a_callable_says_bytes_fanout_and_score(folder: Path) -> None:
    wish, found = measured(
        folder,
        f"""{ONNX}
        [models.called]
        task = "find"
        callable = "measured_callables:load"
        axes = {{batch = [1, 8]}}
        [pipelines.p.stages.a]
        task = "find"
        [pipelines.p.stages.b]
        task = "classify"
        [[pipelines.p.edges]]
        from = "a"
        to = "b"
        """,
    )
    document = profile_document(wish, found)
    profile = load_profile(document)
    table = profile.tables["called-cpu-1"]
    assert table.read([{"batch": 8}], "p50").values[0] >= 0.8
    assert profile.variants["called"].quality is not None
    assert profile.variants["called"].quality.value == 0.5
    (edge,) = profile.pipelines["p"].edges
    assert edge.fanout == {"called": 2.5, "*": 2.5}
    assert edge.bytes == 10


class Cuda:
    """What of torch.cuda a measurement touches; counts how often the device was waited for."""

    waits = 0

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def synchronize(self) -> None:
        self.waits += 1

    def get_device_name(self) -> str:
        return "a GPU"

    def max_memory_reserved(self) -> int:
        return 3 * 2**30

    def empty_cache(self) -> None:
        pass

    reset_peak_memory_stats = empty_cache


def test_a_gpu_is_waited_for_and_its_memory_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    cuda = Cuda()
    threads: list[int] = []
    vars(torch).update(
        __version__="2.9", version=types.SimpleNamespace(cuda="13.0"), cuda=cuda, set_num_threads=threads.append
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    gpu = '[machines.g]\nkind = "gpu"\nprovider = "cuda"\nprovides = {gpu = 1, gpu_mem_gib = 8}\n'
    wish, found = measured(folder, f'{gpu}[models.c]\ntask = "t"\non = ["g"]\ncallable = "measured_callables:load"')
    (cell,) = found.cells
    # Once after loading, then after each run, those to warm up included.
    assert cuda.waits == 1 + 1 + len(cell.samples_ms)
    assert threads == [1]
    profile = load_profile(profile_document(wish, found))
    assert profile.variants["c"].runs[0].needs == {"gpu_mem_gib": 3}
    (source,) = profile.sources.values()
    assert "cuda 13.0, gpu a GPU, torch 2.9" in (source.tool or "")


def test_a_score_of_ones_own(folder: Path) -> None:
    _, found = measured(
        folder,
        """
        [models.called]
        task = "classify"
        callable = "measured_callables:load"
        quality = "labelled.npz"
        score = "measured_callables:half"
        """,
    )
    assert found.qualities["called"].value == 0.5


def test_runs_begin_as_queries_come_and_at_once_where_the_last_took_longer() -> None:
    clock = [0.0]
    rests = rests_s(Repeats(rate_qps=100.0), lambda: clock[0])
    begun = []
    for took_s in [0.0] * 2000 + [1.0] + [0.0] * 50:
        clock[0] += max(next(rests), 0.0)
        begun.append(clock[0])
        clock[0] += took_s
    assert begun[1999] == pytest.approx(20.0, rel=0.1)
    after = [later - earlier for earlier, later in pairwise(begun[2001:])]
    assert after == [0.0] * 49, "some hundred are overdue"
    assert [next(rests_s(Repeats(pause_ms=2.0))) for _ in range(2)] == [0.002, 0.002]


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[Any]
    stated_ms = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(asked)
        body = json.dumps({"score": 0.25, "fanout": 3}).encode()
        self.send_response(503 if asked.get("n") == 9 else 200)
        self.send_header("content-length", str(len(body)))
        if self.stated_ms:
            self.send_header("hetplan-ms", self.stated_ms)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.seen, Endpoint.stated_ms = [], ""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/run"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_the_time_that_a_router_tells_is_the_time(folder: Path, endpoint: str) -> None:
    variant = f'[models.remote]\ntask = "t"\nhttp = "{endpoint}"\naxes = {{batch = [2]}}'
    Endpoint.stated_ms = "123456.000"
    assert set(measured(folder, variant)[1].cells[0].samples_ms) == {123456.0}
    for no_time in ("soon", "-1", "inf", "1e3"):
        Endpoint.stated_ms = no_time
        assert max(measured(folder, variant)[1].cells[0].samples_ms) < 123456.0


def test_an_endpoint(folder: Path, endpoint: str) -> None:
    (folder / "body.json").write_text('{"n": "$batch", "x": ["$batch"]}')
    variant = f'[models.remote]\ntask = "t"\nhttp = "{endpoint}"\nbody = "body.json"\naxes = {{batch = [2, 9]}}'
    wish, found = measured(folder, variant)
    assert {"n": 2, "x": [2]} in Endpoint.seen
    good, bad = found.cells
    assert (good.score, good.fanout, good.bytes_out) == (0.25, 3, 28)
    assert "503" in bad.failed
    table = planned(profile_document(wish, found))["tables"]["remote-cpu-1"]
    assert table["mean"][1] is None
    assert table["mean"][0] > 0


def test_an_endpoint_that_is_not_there(folder: Path) -> None:
    _, found = measured(folder, '[models.remote]\ntask = "t"\nhttp = "http://127.0.0.1:9/run"')
    assert found.cells == []
    assert found.failed[0][0] == "remote on cpu-1"


COMMAND = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    n = asked["knobs"]["batch"]
    answer = {"error": "too large"} if n > 2 else {"seconds": {"a": 0.001 * n, "b": 0.002}, "bytes": {"a": 5, "b": 7}}
    print(json.dumps(answer | {"score": 1.0}), flush=True)
"""


def test_a_command_that_times_itself(folder: Path) -> None:
    (folder / "measure_it.py").write_text(COMMAND)
    words = json.dumps([sys.executable, "measure_it.py"])
    wish, found = measured(folder, f'[models.c]\ntask = "t"\ncommand = {words}\naxes = {{batch = [1, 2, 4]}}')
    profile = load_profile(profile_document(wish, found))
    assert profile.tables["c-cpu-1"].read([{"batch": 1}, {"batch": 2}]).values.tolist() == [3, 4]
    assert profile.tables["c-cpu-1-bytes-out"].read([{"batch": 1}]).values.tolist() == [7]
    assert profile.extensions["measured.c"]["cpu-1"]["cells"][0]["operators_ms"] == {"a": 1, "b": 2}
    assert [where for where, _ in found.failed] == ["c on cpu-1 at batch 4"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ('callable = "measured_callables:fails"', "no such weights"),
        ('callable = "measured_callables:absent"', "no function absent"),
        ('callable = "no_such_module:f"', "cannot be imported"),
        ('command = ["no-such-command-anywhere"]', "does not start"),
    ],
)
def test_what_cannot_be_measured_is_reported_and_the_rest_is(folder: Path, variant: str, said: str) -> None:
    wish, found = measured(folder, f'{ONNX}\n[models.bad]\ntask = "t"\n{variant}')
    assert said in found.failed[0][1]
    assert list(profile_document(wish, found)["models"]) == ["tiny"]


def test_an_axis_that_the_model_does_not_have(folder: Path) -> None:
    write_model(folder / "fixed.onnx", batch=1)
    with pytest.raises(InputError, match="no input of the model has this axis"):
        measured(folder, '[models.fixed]\ntask = "t"\nonnx = "fixed.onnx"\naxes = {batch = [1, 2]}')


def test_a_free_dimension_that_is_no_axis(folder: Path) -> None:
    with pytest.raises(InputError, match="free dimension"):
        measured(folder, '[models.a]\ntask = "t"\nonnx = "tiny.onnx"\naxes = {}')


class Stops(threading.Event):
    """Set when it has been looked at so often."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_where_it_was(folder: Path) -> None:
    journal = CellJournal(folder / "j")
    wish, first = measured(folder, ONNX, journal=journal, cancel=Stops(10))
    journal.close()
    assert not first.complete
    assert len(first.cells) == 1
    partial = profile_document(wish, first)
    assert planned(partial)["tables"]["tiny-cpu-1"]["mean"][1] is None
    load_profile(partial)

    journal = CellJournal(folder / "j")
    _, second = measured(folder, ONNX, journal=journal)
    journal.close()
    assert (second.complete, second.resumed, len(second.cells)) == (True, 1, 2)
    assert second.cells[0] == first.cells[0]

    journal = CellJournal(folder / "j")
    _, third = measured(folder, ONNX, journal=journal)
    journal.close()
    assert third.resumed == 2
    assert profile_document(wish, third) == profile_document(wish, second)


@pytest.mark.slow
def test_a_changed_model_is_measured_anew(folder: Path) -> None:
    for width in (8, 16):
        write_model(folder / "tiny.onnx", width=width)
        journal = CellJournal(folder / "j")
        _, found = measured(folder, ONNX, journal=journal)
        journal.close()
        assert found.resumed == 0


def test_a_journal_that_a_kill_cut_off(tmp_path: Path) -> None:
    journal = CellJournal(tmp_path / "j")
    journal.add({"a": 1}, {"x": 1})
    journal.add({"a": 2}, {"x": 2})
    journal.close()
    whole = (tmp_path / "j").read_bytes()
    for cut in range(len(whole.splitlines(keepends=True)[0]), len(whole)):
        (tmp_path / "j").write_bytes(whole[:cut])
        again = CellJournal(tmp_path / "j")
        kept = [again.get({"a": number}) for number in (1, 2)]
        assert kept[1] is None
        again.add({"a": 2}, {"x": 2})
        again.close()
        assert CellJournal(tmp_path / "j").get({"a": 2}) == {"x": 2}


@pytest.mark.parametrize("content", [b'{"format":"other/1.0"}\n', b"nonsense\nmore\n", b'{"a":1}\n'])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(InputError, match="no journal"):
        CellJournal(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == content


def test_pinning_is_undone() -> None:
    before = cores_of_this_process()
    with pin_cores(before[:1]):
        assert cores_of_this_process() == before[:1]
    assert cores_of_this_process() == before


def test_cores_that_are_not_there(folder: Path) -> None:
    with pytest.raises(InputError, match="may use the cores"):
        measured(folder, ONNX.replace("[models.tiny]", "[machines.big]\nthreads = 4096\n[models.tiny]"))


def test_prices_merge_from_a_file_of_their_own(folder: Path) -> None:
    wish, found = measured(folder, ONNX)
    prices = {"format": "hetplan/profile/1.0", "machines": {"cpu-1": {"price_per_hour": 0.1}}}
    both, _, faults = merge([("measured.json", profile_document(wish, found)), ("prices.json", prices)])
    assert faults == []
    assert load_profile(both).offers["cpu-1"].hardware == "cpu-1"


BUSY = """
import time
def load():
    def prepare(point):
        def run():
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass
        return run
    return prepare
"""


@pytest.mark.slow
def test_on_a_busy_machine_nothing_is_written_as_if_it_were_measured(folder: Path) -> None:
    """Three others take the model's core: its times are three times as long and more."""
    (folder / "measured_busy.py").write_text(BUSY)
    core = cores_of_this_process()[0]
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    variant = '[models.v]\ntask = "classify"\ncallable = "measured_busy:load"\naxes = {batch = [1]}\n'
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3)]
    try:
        _, found = measured(folder, variant)
        cell = found.cells[0]
        assert cell.waited is not None
        assert cell.waited > 0.3
        assert [code for code, _, why in found.warnings() if "waited for a core" in why] == ["W-busy"]
        (folder / "measure.toml").write_text((HEAD + variant).replace("most_waited = 1", "most_waited = 0.3"))
        refused = measure(*read_wish(folder / "measure.toml"))
        ((code, where, why),) = refused.warnings()
        assert (code, where) == ("W-not-measured", "v on cpu-1 at batch 1")
        assert "the machine is busy: for" in why
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("most", "refused"), [(1, False), (0.99, True)])
def test_a_wish_that_takes_any_machine_refuses_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: float, refused: bool
) -> None:
    """Threads that wait for a core on a machine whose host takes cores too: more than all of the time is not lost."""
    monkeypatch.setattr("hetplan.measure.profile_cell._Machine.waited", 1.0)
    jiffies = iter(range(0, 10_000, 10))
    monkeypatch.setattr("hetplan.measure.profile_cell._stolen_and_all", lambda: (next(jiffies), 2 * next(jiffies)))
    (folder / "nothing.py").write_text("def load():\n    return lambda point: lambda: None")
    variant = '[models.v]\ntask = "classify"\ncallable = "nothing:load"\naxes = {batch = [1, 2]}\n'
    wish = (HEAD + variant).replace("most_waited = 1", f"most_waited = {most}")
    (folder / "measure.toml").write_text(wish)
    found = measure(*read_wish(folder / "measure.toml"))
    assert all(cell.stolen > 0 for cell in found.cells)
    assert [bool(cell.failed) for cell in found.cells] == [refused] * len(found.cells)


class Behind(http.server.BaseHTTPRequestHandler):
    """A router that says that it had each query for 4 ms."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.send_header("hetplan-ms", "4.000")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.slow
def test_an_onnx_model_is_measured_through_a_router_unless_the_wish_says_otherwise(folder: Path) -> None:
    Behind.seen = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked, closed = [], []

    def serve(model: dict[str, Any], *, cores: tuple[int, ...]) -> Any:
        asked.append((Path(model["path"]).name, model["threads"], model["providers"], len(cores)))
        url = f"http://127.0.0.1:{server.server_address[1]}/v1/measured"
        return types.SimpleNamespace(url=url, pids=(os.getpid(),), close=lambda: closed.append(1))

    try:
        wish, found = measured(folder, ONNX, serve=serve)
        assert asked == [("tiny.onnx", 1, ["CPUExecutionProvider"], 1)]
        assert len(closed) == 1
        for cell in found.cells:
            assert set(cell.samples_ms) == {4.0}, "the router's time, not the sender's"
            assert cell.beside_ms is not None
            assert cell.rate_qps is not None, "queries come at a rate that was found while warming up"
        headers, body = Behind.seen[-1]
        assert headers["hetplan-at"] == "batch=4"
        assert np.load(io.BytesIO(body)).shape == (4, 4), "inputs travel"
        document = profile_document(wish, found)
        profile = load_profile(document)
        (source,) = profile.sources.values()
        assert (source.note or "").endswith("measured through a router, inputs included")
        assert profile.tables[next(name for name in profile.tables if "bytes" in name)].read(
            [{"batch": 4}]
        ).values.tolist() == [48]
        assert found.qualities["tiny"].value == 0.75
        assert set(measured(folder, ONNX, serve=None)[1].cells[0].samples_ms) != {4.0}
        alone = HEAD.replace("[repeats]", '[repeats]\nthrough = "nothing"')
        (folder / "measure.toml").write_text(alone + ONNX)
        assert measure(*read_wish(folder / "measure.toml"), serve=serve).cells[0].through == ""
        assert len(asked) == 1
    finally:
        server.shutdown()
        server.server_close()


def test_a_router_that_does_not_start_leaves_the_model_unmeasured(folder: Path) -> None:
    def serve(model: dict[str, Any], **how: Any) -> Any:
        raise OSError("the worker does not start: no room")

    _, found = measured(folder, ONNX, serve=serve)
    assert {cell.failed for cell in found.cells} == {"the worker does not start: no room"}
