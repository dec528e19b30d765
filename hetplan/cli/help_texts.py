"""Texts of the help: the examples of each command, and the text of `hetplan` alone."""

from __future__ import annotations

__all__ = ["EXAMPLES", "WELCOME"]

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": (
        "hetplan init --model resnet50 --machine t4=0.526 --ms t4:1=6,8=24 --rate 500 --slo p99=100 -o mine",
        "hetplan init --latencies measured.csv --prices prices.csv --rate 500 --slo p99=100 -o mine",
    ),
    "solve": (
        "hetplan solve profile.json slo.json -o plan.json",
        "hetplan solve machines.json prices.json slo.json --set derate=0.9 --gap 0.001",
        "hetplan solve profile.json slo.json -o - | hetplan show -",
    ),
    "verify": ("hetplan verify plan.json profile.json slo.json",),
    "simulate": (
        "hetplan simulate plan.json profile.json slo.json",
        "hetplan simulate plan.json profile.json slo.json --arrivals gamma:0.5 --baselines --svg plan.svg",
    ),
    "loadtest": (
        "hetplan loadtest plan.json profile.json slo.json --endpoint http://127.0.0.1:8600",
        "hetplan loadtest plan.json profile.json slo.json --endpoint http://127.0.0.1:8600 --arrivals gamma:0.5",
    ),
    "compare": (
        "hetplan compare plan.json profile.json slo.json --demand rates.csv --hours 24:48 --svg money.svg",
        "hetplan compare now.json saving.json",
    ),
    "explain": ("hetplan explain plan.json profile.json slo.json",),
    "whatif": ("hetplan whatif profile.json slo.json --vary budget=1:5",),
    "show": ("hetplan show plan.json profile.json slo.json", "hetplan show plan.json --view bill --csv bill.csv"),
    "report": (
        "hetplan report plan.json profile.json slo.json -o report.html",
        "hetplan report plan.json -o report.html",
    ),
    "desk": ("hetplan desk profile.json slo.json", "HETPLAN_TOKEN=... hetplan desk --no-page --port 8610"),
    "diff": ("hetplan diff old.json new.json --exit-code", "hetplan diff plan.json --site site.toml --exit-code"),
    "apply": (
        "hetplan apply plan.json --site site.toml",
        "hetplan apply plan.json --site site.toml --yes",
        "hetplan apply --undo --site site.toml --yes",
        "hetplan apply plan.json --site site.toml --set rule=weighted-least --yes",
        "hetplan apply --restore --site site.toml --systemd /etc/systemd/system",
    ),
    "status": ("hetplan status --site site.toml", "hetplan status --site site.toml -o state.json --over 10"),
    "autoscale": (
        "hetplan autoscale profile.json slo.json --site site.toml",
        "hetplan autoscale profile.json slo.json --site site.toml --once --dry-run",
    ),
    "down": ("hetplan down --site site.toml --yes",),
    "check": ("hetplan check profile.json slo.json", "hetplan check --schema profile > profile.schema.json"),
    "profile": ("hetplan profile measure.toml -o profile.json",),
    "import": ("hetplan import gpu_info.json -o imported",),
    "render": (
        "hetplan render plan.json profile.json slo.json --to kubernetes --site site.toml -o deploy",
        "hetplan render profile.json slo.json --to mps -o pool.mps",
    ),
    "list": ("hetplan list problems", "hetplan list options pool", "hetplan list laws deepseek-v3 h200 vllm --json"),
    "doctor": ("hetplan doctor",),
}
"""Command -> the examples at the end of its help."""

WELCOME = """hetplan {version} - plans ML inference on mixed GPUs and CPUs.

First steps:
  hetplan init --example pool                         copy an example
  hetplan init                                        write files from your own numbers
  hetplan check profile.json slo.json                 check your files
  hetplan solve profile.json slo.json -o plan.json    make a plan
  hetplan list problems                               list the problems
  hetplan --help                                      list all commands

docs/reference/files.md describes the files."""
