"""A cluster in a file: what `kubectl` would do to it, each call written down, failures played as the test says.

The folder holds `calls` (one JSON line per call), `objects.json`, and `play.json`: {"fail": {"apply": "text"},
"unready": {"deployment-prefix": {"reason": ..., "message": ...}}, "slow_s": {"get": 9}, "raw": {...}, "leave": 2}.
Pods of what is deleted go away at once, or so many each time that somebody asks for pods.
"""

import json
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[0]).resolve().parent
KINDS = {
    "deployments.apps": "Deployment",
    "services": "Service",
    "configmaps": "ConfigMap",
    "pods": "Pod",
    "replicasets.apps": "ReplicaSet",
    "horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscaler",
    "poddisruptionbudgets.policy": "PodDisruptionBudget",
    "networkpolicies.networking.k8s.io": "NetworkPolicy",
    "secrets": "Secret",
    "leases.coordination.k8s.io": "Lease",
}


def read(name, otherwise):
    try:
        return json.loads((FOLDER / name).read_text())
    except FileNotFoundError:
        return otherwise


def fail(text):
    sys.stderr.write(text + "\n")
    sys.exit(1)


def value(words, name):
    return next((word.split("=", 1)[1] for word in words if word.startswith(f"--{name}=")), None)


def key(one):
    return f"{one['kind']}/{one['metadata']['name']}"


def meta_of(deployment):
    return deployment["spec"]["template"]["metadata"]["labels"]


def pods_of(deployment, play):
    name = deployment["metadata"]["name"]
    if name in play.get("evicted", ()):
        failed = {"phase": "Failed", "reason": "Evicted"}
        yield {"kind": "Pod", "metadata": {"name": f"{name}-gone", "labels": meta_of(deployment)}, "status": failed}
    trouble = next((said for prefix, said in play.get("unready", {}).items() if prefix in name), None)
    for number in range(deployment["spec"]["replicas"]):
        status = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"restartCount": 0}]}
        if trouble is not None and trouble.get("reason") == "Unschedulable":
            said = {"type": "PodScheduled", "status": "False", "message": trouble["message"]}
            status = {"conditions": [said]}
        elif trouble is not None:
            waiting = {"reason": trouble["reason"], "message": trouble["message"]}
            status = {"conditions": [], "containerStatuses": [{"restartCount": 3, "state": {"waiting": waiting}}]}
        meta = deployment["spec"]["template"]["metadata"]
        if any(name.startswith(prefix) for prefix in play.get("old pods", ())):
            meta = {**meta, "annotations": {"hetplan/made-of": "older"}}
        yield {
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", **meta},
            "spec": {"volumes": deployment["spec"]["template"]["spec"].get("volumes", [])},
            "status": status,
        }


def version_of(one):
    return one["metadata"].get("resourceVersion")


def written(verb, one, objects):
    """`create` and `replace`, by the version that the object carries."""
    old = objects.get(key(one))
    if verb == "create" and old is not None:
        fail(f"Error from server (AlreadyExists): {key(one)} already exists")
    if verb == "replace" and old is None:
        fail(f"Error from server (NotFound): {key(one)} not found")
    if verb == "replace" and version_of(old) != version_of(one):
        fail(f"Error from server (Conflict): {key(one)}: the object has been modified")
    number = int(version_of(old) or 0) + 1 if old is not None else 1
    objects[key(one)] = {**one, "metadata": {**one["metadata"], "resourceVersion": str(number)}}
    print(json.dumps(objects[key(one)]))


def look_at(words, items, play, objects):
    """What a dry run refuses: fields that somebody else owns, and what `modified_by` changes as it is looked at."""
    marked = [one for one in items if version_of(one) is not None]
    if "modified_by" in play and marked:
        changed = objects[key(marked[0])]
        changed["metadata"]["resourceVersion"] += "1"
        changed["spec"].update(play.pop("modified_by").get("spec", {}))
        (FOLDER / "objects.json").write_text(json.dumps(objects))
        (FOLDER / "play.json").write_text(json.dumps(play))
    if any(version_of(one) != version_of(objects[key(one)]) for one in marked):
        fail("Error from server (Conflict): the object has been modified; please apply your changes to the latest")
    if "owned" in play and "--force-conflicts" not in words:
        fail(play["owned"])


def matches(one, selector):
    if selector is None:
        return True
    marks = one["metadata"].get("labels", {})
    return all(marks.get(name) == wanted for name, wanted in (term.split("=") for term in selector.split(",")))


def kind_of(word):
    return KINDS[word]


def main():
    words = sys.argv[1:]
    given = sys.stdin.read() if "--filename=-" in words else ""
    with (FOLDER / "calls").open("a") as calls:
        calls.write(json.dumps({"words": words, "given": json.loads(given) if given else None}) + "\n")
    play, objects = read("play.json", {}), read("objects.json", {})
    verb = words[0]
    if play.get("away", 0) > 0:
        (FOLDER / "play.json").write_text(json.dumps({**play, "away": play["away"] - 1}))
        fail("Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused")
    time.sleep(play.get("slow_s", {}).get(verb, 0))
    for wanted, text in play.get("fail", {}).items():
        if verb == wanted.split()[0] and all(part in " ".join(words) for part in wanted.split()):
            fail(text)
    if verb == "apply" and "--dry-run=server" in words:
        look_at(words, json.loads(given)["items"], play, objects)
    elif verb == "apply":
        items = json.loads(given)["items"]
        for one in items:
            old = objects.get(key(one))
            if old is not None and old.get("immutable") and old["data"] != one["data"]:
                fail(f'ConfigMap "{one["metadata"]["name"]}" is invalid: data: Forbidden: field is immutable')
            objects[key(one)] = one
    elif verb == "diff":
        changed = [one for one in json.loads(given)["items"] if objects.get(key(one)) != one]
        print("\n".join(f"+ {key(one)}" for one in changed))
        sys.exit(1 if changed else 0)
    elif verb == "get" and words[1].startswith("--raw=") and words[1].endswith("/healthz"):
        found = [one["data"]["config.json"] for one in objects.values() if "routes" in str(one.get("data"))]
        if play.get("deaf"):
            fail("Error from server (Forbidden): pods is forbidden: cannot get resource pods/proxy")
        print(json.dumps({"ready": True, "follows": json.loads(found[0])["routes"].get("revision")}))
    elif verb == "get" and any(word.startswith("--raw=") for word in words):
        print(json.dumps(play.get("raw", {})))
    elif verb in ("create", "replace"):
        written(verb, json.loads(given), objects)
    elif verb == "get" and words[2][0] != "-":
        found = objects.get(f"{kind_of(words[1])}/{words[2]}")
        print(json.dumps(found) if found is not None else "")
    elif verb == "delete" and words[1].startswith("--raw="):
        name = f"Lease/{words[1].split('/')[-1]}"
        if version_of(objects.get(name, {"metadata": {}})) != json.loads(given)["preconditions"]["resourceVersion"]:
            fail("Error from server (Conflict): the object has been modified")
        del objects[name]
    elif verb == "get":
        kinds = {kind_of(word) for word in words[1].split(",")}
        if "Pod" in kinds and "leave" in play:
            leaving = [name for name, one in objects.items() if one["kind"] == "Pod"]
            objects = {name: one for name, one in objects.items() if name not in leaving[: play["leave"]]}
            (FOLDER / "objects.json").write_text(json.dumps(objects))
        found = [*objects.values()]
        for one in objects.values():
            if one["kind"] == "Deployment":
                found += pods_of(one, play)
        found = [one for one in found if one["kind"] in kinds and matches(one, value(words, "selector"))]
        print(json.dumps({"kind": "List", "items": found}))
    elif verb == "rollout":
        name = words[2].split("/")[1]
        pods = list(pods_of(objects[f"Deployment/{name}"], play))
        if any(pod["status"]["conditions"] != [{"type": "Ready", "status": "True"}] for pod in pods):
            fail("error: timed out waiting for the condition")
    elif verb == "delete":
        if value(words, "selector"):
            kinds = {kind_of(word) for word in words[1].split(",")}
            gone = [k for k, one in objects.items() if one["kind"] in kinds and matches(one, value(words, "selector"))]
        else:
            named = [word.split("/") for word in words[1:] if word.split("/")[0] in KINDS]
            gone = [f"{kind_of(kind)}/{name}" for kind, name in named]
        ended = [objects[k] for k in gone if k.startswith("Deployment/") and k in objects and "leave" in play]
        objects |= {key(pod): pod for one in ended for pod in pods_of(one, play)}
        objects = {k: one for k, one in objects.items() if k not in gone}
    if verb in ("apply", "delete", "create", "replace"):
        # Several are called side by side: no other may read half of it.
        (FOLDER / "objects.new").write_text(json.dumps(objects))
        (FOLDER / "objects.new").replace(FOLDER / "objects.json")


main()
