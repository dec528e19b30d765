"""Which worker gets which GPU: by share and memory, on recorded lists of devices; what cannot be is refused by name."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import make_hosts, make_plan, make_worker
from typer.testing import CliRunner

from hetplan.cli.app import build_app
from hetplan.errors import InputError
from hetplan.executor import gpus
from hetplan.executor.deployment import Deployment
from hetplan.executor.gpus import (
    Device,
    GpuList,
    Want,
    assign,
    devices_of,
    parse_smi,
    place,
    read_gpus,
    visible,
    want_of,
)
from hetplan.executor.keeper import Keeper
from hetplan.executor.kept_process import KeptProcess, StartFailed
from hetplan.executor.shares import LocalMeans, gpu_refusals, held, refusals
from hetplan.executor.site import Host
from hetplan.executor.steps import difference, steps_of
from hetplan.executor.units import LoadSpec, Seen, Unit, named
from hetplan.executor.wanted import Wanted, wanted

QUERIED = """\
0, GPU-aaaa, NVIDIA A100-SXM4-40GB, 40960, Disabled
1, GPU-bbbb, NVIDIA A100-SXM4-40GB, 40960, Disabled
2, GPU-cccc, NVIDIA A100-SXM4-40GB, 40960, Enabled
"""
LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-cccc)
  MIG 3g.20gb     Device  0: (UUID: MIG-three)
  MIG 1g.5gb      Device  1: (UUID: MIG-one)
"""
RECORDED = parse_smi(QUERIED, LISTED)
COMPUTES = {"kind": "command", "command": ["serve"]}


@pytest.fixture
def means(tmp_path: Path) -> LocalMeans:
    """A machine with an MPS daemon and the recorded GPUs."""
    (tmp_path / "control").touch()
    (tmp_path / "gpus.json").write_text(RECORDED.model_dump_json())
    return LocalMeans(mps_pipe=tmp_path, gpu_list=tmp_path / "gpus.json")


def host(*devices: str, **fields: object) -> Host:
    return Host.model_validate(
        {"target": "here", "machines": "gpu", "count": 9, "devices": devices, **fields}
    )  # fmt: skip


def unit(
    name: str,
    share: float | None = None,
    enforce: str = "mps",
    *,
    on: str = "box",
    gpus: int | None = None,
    **load: Any,
) -> Unit:
    made = LoadSpec(f"{name}.a", share_gpu=share, enforce=enforce if share else "none", model=COMPUTES, **load)
    return named(Unit("", name, 0, "gpu", "here", on, gpus=gpus, loads=(made,)))


def given(units: list[Unit], hosts: dict[str, Host], listed: GpuList | None = RECORDED) -> dict[str, list[str]]:
    """Worker -> ids of its devices."""
    got, refused = assign([(one, hosts[one.host]) for one in units], listed)
    assert not refused
    return {one.worker: [device.id for device in got[one.name][1]] for one in units if one.name in got}


def test_the_list_survives_a_file_and_names_memory_and_slices(means: LocalMeans) -> None:
    listed = read_gpus(means.gpu_list)
    assert listed == RECORDED
    assert [gpu.mem_gib for gpu in RECORDED.gpus] == [40.0] * 3
    there = {device.id: device for device in devices_of(host("MIG-three", "MIG-one", "GPU-a"), RECORDED)}
    assert {name: (one.part, one.mem_gib) for name, one in there.items()} == {
        "MIG-three": (3 / 7, 20.0), "MIG-one": (1 / 7, 5.0), "GPU-aaaa": (None, 40.0)
    }  # fmt: skip
    assert [one.id for one in devices_of(host(), RECORDED)] == ["GPU-aaaa", "GPU-bbbb", "MIG-three", "MIG-one"]


def test_a_list_that_is_none_is_a_fault_of_that_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="doctor --gpus"):
        read_gpus(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text(json.dumps({"gpus": [{"index": 0, "uuid": "GPU-a"}]}))
    with pytest.raises(InputError, match="mem_gib"):
        read_gpus(tmp_path / "bad.json")


def test_without_nvidia_smi_nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_gpus() is None


def test_the_percentage_counts_all_instances(means: LocalMeans) -> None:
    share = held(unit("a", 0.25, instances=2), host("0"), means)
    assert share.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


def test_devices_are_filled_by_share() -> None:
    units = [unit(name, share) for name, share in (("a", 0.75), ("b", 0.25), ("c", 0.75), ("d", 0.25))]
    got = given(units, {"box": host("0", "1")})
    on: dict[str, float] = {}
    for name, share in (("a", 0.75), ("b", 0.25), ("c", 0.75), ("d", 0.25)):
        on[got[name][0]] = on.get(got[name][0], 0.0) + share
    assert on == {"GPU-aaaa": 1.0, "GPU-bbbb": 1.0}


def test_what_the_tightest_device_would_spoil_is_found_by_search() -> None:
    shares = {"a": 0.5, "b": 0.35, "c": 0.35, "d": 0.3, "e": 0.3, "f": 0.2}
    got, refused = place([Want(n, "box", 1, s) for n, s in shares.items()], {"box": [Device("0"), Device("1")]})
    assert not refused
    for device in "01":
        assert sum(shares[name] for name, chosen in got.items() if chosen[0].id == device) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_was_cut_from_whole_devices_fits_back(seed: int) -> None:
    """Devices cut into random parts: a way exists, and no device gets more than it has."""
    draw = random.Random(seed)
    count = draw.randint(1, 4)
    parts = []
    for _ in range(count):
        cuts = sorted([0, 20, *draw.sample(range(1, 20), draw.randint(0, 3))])
        parts += [(high - low) / 20 for low, high in pairwise(cuts)]
    draw.shuffle(parts)
    wants = [Want(str(at), "box", 1, part) for at, part in enumerate(parts)]
    got, refused = place(wants, {"box": [Device(str(at)) for at in range(count)]})
    assert not refused
    for at in range(count):
        assert sum(want.share for want in wants if got[want.name][0].id == str(at)) <= 1.0 + 1e-6


def test_memory_keeps_two_apart_whose_shares_would_fit() -> None:
    units = [unit("a", 0.3, gpu_mem_gib=30.0), unit("b", 0.3, gpu_mem_gib=30.0)]
    assert {one[0] for one in given(units, {"box": host("0", "1")}).values()} == {"GPU-aaaa", "GPU-bbbb"}
    (refused,) = assign([(one, host("0")) for one in units], RECORDED)[1]
    assert "needs 0.3 of a GPU with 33 GiB: 0 has 0.7 and 7 GiB left" in refused


def test_a_worker_of_two_gpus_gets_two_and_nobody_else_gets_either() -> None:
    got = given([unit("a", gpus=2)], {"box": host("0", "1")})
    assert got == {"a": ["GPU-aaaa", "GPU-bbbb"]}
    both = [unit("a", gpus=2), unit("b", 0.1)]
    assert assign([(one, host("0", "1")) for one in both], RECORDED)[1]
    assert visible(Want("a", "box", 2), [Device("0"), Device("1")], limited=False)["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_how_many_gpus_a_worker_has_is_the_hosts_word_then_the_profiles(tmp_path: Path) -> None:
    profile = {
        "format": "hetplan/profile/1.0", "hardware": {
            "gpu": {"kind": "gpu", "provides": {"gpu": 2}}, "cpu": {"kind": "cpu", "provides": {"cpu_cores": 4}}
        },
    }  # fmt: skip
    (tmp_path / "p.json").write_text(json.dumps(profile))
    plan = make_plan(make_worker("w1", hardware="gpu"), make_worker("w2"))
    box: dict[str, Any] = {"target": "here", "machines": ["cpu", "gpu"], "count": 8}
    profiles = [str(tmp_path / "p.json")]
    for stated, gpus_of in ({}, [2, 0]), ({"gpus_per_worker": 3}, [3, 3]):
        made = wanted(plan, make_hosts(tmp_path, files=profiles, hosts={"box": {**box, **stated}}))
        assert [one.gpus for one in made.units.values()] == gpus_of
    assert [one.gpus for one in wanted(plan, make_hosts(tmp_path)).units.values()] == [None, None]


def test_two_hosts_that_name_one_device_share_it() -> None:
    hosts = {"one": host("0"), "two": host("GPU-aaaa", machines="gpu-b")}
    assert given([unit("a", 0.5, on="one"), unit("b", 0.5, on="two")], hosts) == {"a": ["GPU-aaaa"], "b": ["GPU-aaaa"]}
    whole = [unit("a", gpus=1, on="one"), unit("b", gpus=1, on="two")]
    (refused,) = assign([(one, hosts[one.host]) for one in whole], RECORDED)[1]
    assert "needs 1 GPU to itself: 0 has 0 and 0 GiB left" in refused


def test_mig_slices_are_taken_by_their_size_and_one_worker_each(means: LocalMeans) -> None:
    mig = host("MIG-three", "MIG-one")
    fits = [unit("small", 1 / 7, "mig"), unit("large", 3 / 7, "mig")]
    assert given(fits, {"box": mig}) == {"small": ["MIG-one"], "large": ["MIG-three"]}
    assert [refusals(one, mig, means) for one in fits] == [[], []]
    three = [unit("a", 1 / 7, "mig"), unit("b", 3 / 7, "mig"), unit("c", 3 / 7, "mig")]
    (why,) = gpu_refusals(three, {"box": mig}, means)
    assert "needs a MIG slice of 0.429 of a GPU: MIG-three (a slice of 0.429) is taken; MIG-one (a slice of" in why
    (why,) = gpu_refusals([unit("a", 0.5)], {"box": host("MIG-three")}, means)
    assert "needs 0.5 of a GPU: MIG-three (a slice of 0.429) is free" in why, "MPS shares out no slice"


def test_a_slice_of_unknown_size_is_refused(tmp_path: Path) -> None:
    (why,) = refusals(unit("a", 1 / 7, "mig"), host("MIG-x"), LocalMeans(gpu_list=None, mps_pipe=tmp_path))
    assert "how large MIG-x is nobody says" in why
    assert "hetplan doctor --gpus --record" in why


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (("7",), "this machine has no 7; it has 0, 1, 2, MIG-three, MIG-one"),
        (("0", "GPU-aaaa"), "GPU-aaaa is named twice"),
        (("2",), "GPU 2 is divided by MIG; list its slices"),
    ],
)
def test_devices_that_are_wrong_are_refused_by_name(means: LocalMeans, devices: tuple[str, ...], why: str) -> None:
    (said,) = gpu_refusals([unit("a", 0.1)], {"box": host(*devices)}, means)
    assert why in said


def test_without_devices_all_that_the_machine_lists_are_used_else_it_is_refused(means: LocalMeans) -> None:
    units = [unit("a", gpus=1), unit("b", gpus=1)]
    assert given(units, {"box": host()}) == {"a": ["GPU-aaaa"], "b": ["GPU-bbbb"]}
    blind = LocalMeans(mps_pipe=means.mps_pipe)
    object.__setattr__(blind, "gpus", None)
    (why,) = refusals(unit("a", 0.5), host(), blind)
    assert "hosts.box.devices is empty and nvidia-smi is not here, so all would be on GPU 0" in why
    (why,) = gpu_refusals(units, {"box": host()}, blind)
    assert "2 workers that need a GPU would all be on GPU 0" in why
    assert gpu_refusals(units, {"box": host(enforcement="none")}, blind) == []
    asleep = [unit("a", gpus=1), unit("b", gpus=1)]
    sleeps = [Unit(**{**vars(one), "loads": (LoadSpec("x", model={"kind": "sleep"}),)}) for one in asleep]
    assert gpu_refusals(sleeps, {"box": host()}, blind) == [], "who sleeps needs no GPU"


def test_a_client_of_mps_has_a_limit_of_memory(means: LocalMeans) -> None:
    blind = LocalMeans(mps_pipe=means.mps_pipe)
    object.__setattr__(blind, "gpus", None)
    (why,) = refusals(unit("a", 0.5), host("0"), blind)
    assert "the memory of 0 is not known" in why
    assert refusals(unit("a", 0.5, gpu_mem_gib=4.0), host("0"), blind) == []
    want = want_of(unit("a", 0.5, gpu_mem_gib=10.0), host("0"))
    assert want is not None
    said = visible(want, devices_of(host("0"), RECORDED), limited=True)
    assert said == {"CUDA_VISIBLE_DEVICES": "GPU-aaaa", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=11264M"}


def test_more_than_a_gpu_in_one_worker_is_refused(means: LocalMeans) -> None:
    (why,) = refusals(unit("a", 0.3, instances=4), host("0"), means)
    assert "0.3 of a GPU in each of 4 instances" in why
    assert "no GPU has so much" in why


def test_the_keeper_starts_each_process_with_its_own_device(
    tmp_path: Path, means: LocalMeans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process is started with, over two orders and a stop; a worker without a GPU sees none."""
    shown: dict[str, dict[str, str]] = {}

    async def noted(kept: KeptProcess, _limit_s: float, *, other_ports: object = ()) -> None:
        shown[kept.name], kept.status = kept._environment, "ready"

    monkeypatch.setattr(KeptProcess, "start", noted)
    keeper = Keeper(tmp_path, means)
    box = host("0", "1").model_dump(mode="json")

    async def start(*units: Unit) -> None:
        await keeper._start({"limit_s": 1.0, "units": [{"unit": one.as_dict(), "host": box} for one in units]})

    async def run() -> None:
        a, b, c, d = unit("a", 0.75), unit("b", 0.5), unit("c", 0.25), unit("d", gpus=0)
        await start(a, b)
        await start(c, d)
        device = {one.worker: shown[one.name]["CUDA_VISIBLE_DEVICES"] for one in (a, b, c, d)}
        assert device == {"a": "GPU-aaaa", "b": "GPU-bbbb", "c": "GPU-aaaa", "d": ""}
        assert shown[a.name]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=30720M"
        with pytest.raises(StartFailed, match=r"no room on the GPUs: e-0-\w+ needs 0.75 of a GPU"):
            await start(unit("e", 0.75))
        await keeper._forget(a.name, drain_s=0.0)
        await start(unit("e", 0.75))
        assert shown[unit("e", 0.75).name]["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"

    asyncio.run(run())


def test_steps_wait_for_the_share_that_a_stop_frees(tmp_path: Path) -> None:
    """Eight workers may run here, but the GPU takes what comes only when what runs has gone."""
    box = {"target": "here", "machines": ["gpu"], "count": 8, "devices": ["0"]}
    hosts = make_hosts(tmp_path, hosts={"box": box})
    old, new = unit("w1", 0.75), unit("w2", 0.5)
    seen = Seen(old.name, old.content, "ready", unit=old)
    plan = make_plan(make_worker("w2", hardware="gpu", load={"share": {"gpu": 0.5, "enforce": "mps"}}))
    goal = Wanted("plan", plan.workers, {new.name: new}, {})
    done = [step.do for step in steps_of(difference([seen], goal, routed=False), goal, hosts)]
    assert done.index("stop") < done.index("start")
    box["devices"] = ["0", "1"]
    hosts = make_hosts(tmp_path, hosts={"box": box})
    done = [step.do for step in steps_of(difference([seen], goal, routed=False), goal, hosts)]
    assert done.index("start") < done.index("stop")


def test_an_apply_is_refused_where_the_recorded_gpus_are_not_enough(tmp_path: Path, means: LocalMeans) -> None:
    settings = {"gpu_list": str(means.gpu_list), "mps_pipe": str(means.mps_pipe)}
    box = {"target": "here", "machines": ["gpu"], "count": 8, "devices": ["0"]}
    made = make_hosts(tmp_path, hosts={"box": box}, targets={"here": {"kind": "local", "settings": settings}})
    worker = make_worker("w1", 2, hardware="gpu", load={"share": {"gpu": 0.6, "enforce": "mps"}})
    with Deployment(made) as deployment:
        with pytest.raises(InputError, match=r"no room on the GPUs: w1-\d-\w+ needs 0.6 of a GPU: 0 has 0.4"):
            deployment.difference(make_plan(worker))
        assert deployment.difference(make_plan(worker.model_copy(update={"count": 1})))


def test_the_doctor_shows_and_records_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = build_app()
    monkeypatch.setattr(gpus, "read_gpus", lambda: RECORDED)
    ran = CliRunner().invoke(command, ["doctor", "--gpus", "--record", str(tmp_path / "out.json")])
    assert ran.exit_code == 0
    assert "MIG-three" in ran.output
    assert "of MPS" in ran.output
    assert read_gpus(tmp_path / "out.json") == RECORDED
    monkeypatch.setattr(gpus, "read_gpus", lambda: None)
    ran = CliRunner().invoke(command, ["doctor", "--gpus"])
    assert (ran.exit_code, "nvidia-smi is not here" in ran.output) == (1, True)
