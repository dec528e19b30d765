"""A cluster in a file: what `kubectl` would do to it, each call written down, failures played as the test says.

The folder holds `calls` (one JSON line per call), `objects.json`, and `play.json`: {"fail": {"apply": "text"},
"unready": {"deployment-prefix": {"reason": ..., "message": ...}}, "slow_s": {"get": 9}, "leave": 2, "owned": "text",
"away": 2, "kill": [4, "before"]}. Pods of what is deleted go away at once, or so many each time that somebody asks.
"kill" ends the program that calls for the 4th time with SIGKILL, before or after the call did its work.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[0]).resolve().parent
KINDS = {
    "deployments.apps": "Deployment",
    "services": "Service",
    "configmaps": "ConfigMap",
    "pods": "Pod",
    "horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscaler",
    "poddisruptionbudgets.policy": "PodDisruptionBudget",
    "leases.coordination.k8s.io": "Lease",
    "httproutes.gateway.networking.k8s.io": "HTTPRoute",
    "scaledobjects.keda.sh": "ScaledObject",
}
READY = [{"type": "Ready", "status": "True"}]


def read(name, otherwise):
    try:
        return json.loads((FOLDER / name).read_text())
    except FileNotFoundError:
        return otherwise


def write(name, content):
    # Several are called side by side: no other may read half of it.
    (FOLDER / f"{name}.new").write_text(json.dumps(content))
    (FOLDER / f"{name}.new").replace(FOLDER / name)


def fail(text):
    sys.stderr.write(text + "\n")
    sys.exit(1)


def value(words, name):
    return next((word.split("=", 1)[1] for word in words if word.startswith(f"--{name}=")), None)


def key(one):
    return f"{one['kind']}/{one['metadata']['name']}"


def pods_of(deployment, play):
    name, meta = deployment["metadata"]["name"], deployment["spec"]["template"]["metadata"]
    if name in play.get("evicted", ()):
        failed = {"phase": "Failed", "reason": "Evicted"}
        yield {"kind": "Pod", "metadata": {"name": f"{name}-gone", "labels": meta["labels"]}, "status": failed}
    trouble = next((said for prefix, said in play.get("unready", {}).items() if name.startswith(prefix)), None)
    for number in range(deployment["spec"].get("replicas", 1)):
        status = {"conditions": READY, "containerStatuses": [{"restartCount": 0}]}
        if trouble is not None and trouble.get("reason") == "Unschedulable":
            status = {"conditions": [{"type": "PodScheduled", "status": "False", "message": trouble["message"]}]}
        elif trouble is not None:
            waiting = {"reason": trouble["reason"], "message": trouble["message"]}
            status = {"conditions": [], "containerStatuses": [{"restartCount": 3, "state": {"waiting": waiting}}]}
        yield {"kind": "Pod", "metadata": {"name": f"{name}-{number}", **meta}, "status": status}


def status_of(deployment, play):
    """What the server says of a Deployment: all of its pods are of the present template."""
    pods = [pod for pod in pods_of(deployment, play) if pod["status"].get("phase") != "Failed"]
    ready = sum(pod["status"]["conditions"] == READY for pod in pods)
    count = {"replicas": len(pods), "updatedReplicas": len(pods), "readyReplicas": ready}
    return {**deployment, "status": {**deployment.get("status", {}), **count, **play.get("status", {})}}


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


def matches(one, selector):
    if selector is None:
        return True
    marks = one["metadata"].get("labels", {})
    return all(marks.get(name) == wanted for name, wanted in (term.split("=") for term in selector.split(",")))


def act(words, given, play, objects):
    verb = words[0]
    if verb == "apply":
        if "owned" in play and "--force-conflicts" not in words:
            fail(play["owned"])
        if "--dry-run=server" not in words:
            objects.update({key(one): one for one in given["items"]})
    elif verb == "diff":
        changed = [one for one in given["items"] if objects.get(key(one)) != one]
        for one in changed:
            version = one["apiVersion"].replace("/", ".")
            name = f"{version}.{one['kind']}.default.{one['metadata']['name']}"
            print(f"diff -u -N /tmp/LIVE-12/{name} /tmp/MERGED-34/{name}")
        sys.exit(1 if changed else 0)
    elif verb in ("create", "replace"):
        written(verb, given, objects)
    elif verb == "get" and given is not None:
        found = [objects[key(one)] for one in given["items"] if key(one) in objects]
        found = [status_of(one, play) if one["kind"] == "Deployment" else one for one in found]
        print(json.dumps({"kind": "List", "items": found}) if found else "")
    elif verb == "get" and words[2][0] != "-":
        found = objects.get(f"{KINDS[words[1]]}/{words[2]}")
        print(json.dumps(found) if found is not None else "")
    elif verb == "delete" and words[1].startswith("--raw="):
        name = f"Lease/{words[1].split('/')[-1]}"
        if version_of(objects.get(name, {"metadata": {}})) != given["preconditions"]["resourceVersion"]:
            fail("Error from server (Conflict): the object has been modified")
        del objects[name]
    elif verb == "get":
        for word in words[1].split(","):
            if word not in KINDS:
                fail(f'error: the server doesn\'t have a resource type "{word.split(".")[0]}"')
        kinds = {KINDS[word] for word in words[1].split(",")}
        if "Pod" in kinds and "leave" in play:
            leaving = [name for name, one in objects.items() if one["kind"] == "Pod"]
            for name in leaving[: play["leave"]]:
                del objects[name]
            write("objects.json", objects)
        found = [*objects.values()]
        found += [pod for one in objects.values() if one["kind"] == "Deployment" for pod in pods_of(one, play)]
        found = [status_of(one, play) if one["kind"] == "Deployment" else one for one in found]
        found = [one for one in found if one["kind"] in kinds and matches(one, value(words, "selector"))]
        print(json.dumps({"kind": "List", "items": found}))
    elif verb == "rollout":
        pods = pods_of(objects[f"Deployment/{words[2].split('/')[1]}"], play)
        if any(pod["status"].get("conditions") != READY for pod in pods if pod["status"].get("phase") != "Failed"):
            fail("error: timed out waiting for the condition")
    elif verb == "delete":
        gone = [f"{KINDS[word.split('/')[0]]}/{word.split('/')[1]}" for word in words[1:] if "/" in word]
        ended = [objects[k] for k in gone if k.startswith("Deployment/") and k in objects and "leave" in play]
        objects.update({key(pod): pod for one in ended for pod in pods_of(one, play)})
        for name in gone:
            objects.pop(name, None)
    if verb in ("apply", "delete", "create", "replace"):
        write("objects.json", objects)


def main():
    words = sys.argv[1:]
    given = json.loads(sys.stdin.read()) if "--filename=-" in words else None
    with (FOLDER / "calls").open("a") as calls:
        calls.write(
            json.dumps({"words": words, "given": given, "diff": os.environ.get("KUBECTL_EXTERNAL_DIFF")}) + "\n"
        )
    play, objects = read("play.json", {}), read("objects.json", {})
    verb, (kill_at, when) = words[0], play.get("kill", (0, ""))
    kill = kill_at == len((FOLDER / "calls").read_text().splitlines())
    if kill and when == "before":
        os.kill(os.getppid(), signal.SIGKILL)
        sys.exit(1)
    if play.get("away", 0) > 0:
        write("play.json", {**play, "away": play["away"] - 1})
        fail("Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused")
    time.sleep(play.get("slow_s", {}).get(verb, 0))
    for wanted, text in play.get("fail", {}).items():
        if verb == wanted.split()[0] and all(part in " ".join(words) for part in wanted.split()):
            fail(text)
    act(words, given, play, objects)
    if kill:
        os.kill(os.getppid(), signal.SIGKILL)


main()
