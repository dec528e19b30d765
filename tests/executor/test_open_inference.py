"""The Open Inference Protocol at router and worker: a public client, and what it cannot ask."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases.deployments import Client, make_hosts, make_plan, make_worker

from hetplan.executor.deployment import Deployment

SCRIPT = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = []
    for one in asked["inputs"]:
        if one and "fail" in one:
            said = None
            break
        x = (one or {}).get("x", [[0.0]])
        names = (one or {}).get("name", ["nobody"])
        doubled = [[2 * item for item in row] for row in x]
        said.append({"y": doubled, "greeting": ["hello " + str(who) for who in names]})
    print(json.dumps({"outputs": said} if said is not None else {"error": "these inputs fail"}), flush=True)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The router's: queries reach its workers over its link alone."""
    folder = tmp_path_factory.mktemp("v2")
    (folder / "model.py").write_text(SCRIPT)
    models = {"*": {"kind": "command", "command": [sys.executable, str(folder / "model.py")]}}
    with Deployment(make_hosts(folder, models=models)) as deployment:
        try:
            yield deployment.apply(make_plan(make_worker("w1", 1))).endpoint
        finally:
            deployment.down(wait_s=60.0)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tritonclient") is None, reason="needs tritonclient[http]")
@pytest.mark.parametrize("binary", [True, False])
def test_a_public_client_asks_the_router(address: str, binary: bool) -> None:
    import tritonclient.http as triton

    model = "app"
    with triton.InferenceServerClient(address.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready(model)
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        assert client.get_model_metadata(model)["name"] == model
        x = np.array([[1.5, 2.0], [3.0, -4.5]], dtype=np.float32)
        given = triton.InferInput("x", [2, 2], "FP32")
        given.set_data_from_numpy(x, binary_data=binary)
        who = triton.InferInput("name", [2], "BYTES")
        who.set_data_from_numpy(np.array([b"Ada", b"Bo"], dtype=np.object_), binary_data=binary)
        wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("greeting", "y")]
        found = client.infer(model, [given, who], outputs=wanted, request_id="7")
        np.testing.assert_allclose(found.as_numpy("y"), 2 * x)
        greeting = [one.decode() if isinstance(one, bytes) else one for one in found.as_numpy("greeting").tolist()]
        assert greeting == ["hello Ada", "hello Bo"]
        assert found.get_response()["id"] == "7"
        every = client.infer(model, [given])
        np.testing.assert_allclose(every.as_numpy("y"), 2 * x)
        with pytest.raises(triton.InferenceServerException, match="no output 'z'"):
            client.infer(model, [given], outputs=[triton.InferRequestedOutput("z")])
        with pytest.raises(triton.InferenceServerException, match="no model 'other'"):
            client.infer("other", [given])


def tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], **changes}


def test_what_is_no_inference_is_answered_400_with_the_reason(address: str) -> None:
    client = Client(address)
    for body, part in (
        ({"inputs": 7}, "has inputs"),
        ({"inputs": [tensor(shape=[3, 2])]}, "2 values for the shape"),
        ({"inputs": [tensor(parameters={"binary_data_size": 8})]}, "8 bytes are announced and 0 came"),
        ({"inputs": [{"name": "x"}]}, "shape"),
        ([], "has inputs"),
        ({"inputs": [tensor()], "outputs": [5]}, "outputs are objects with a name"),
        ({"inputs": [tensor()], "outputs": [{"name": "y", "parameters": 5}]}, "outputs are objects with a name"),
        ({"inputs": [tensor()], "outputs": {"name": "y"}}, "outputs are objects with a name"),
        ({"inputs": [tensor()], "parameters": []}, "no inference request"),
        ({"inputs": [tensor(shape=[float("inf")])]}, "no inference request"),
        ({"inputs": [tensor(parameters={"binary_data_size": -4})]}, "-4 bytes are announced"),
    ):
        client.connection.request("POST", "/v2/models/app/infer", json.dumps(body))
        answer = client.connection.getresponse()
        assert (answer.status, part in json.loads(answer.read())["error"]) == (400, True), body
    head = json.dumps({"inputs": [{**tensor(datatype="BF16", parameters={"binary_data_size": 4})}]}).encode()
    fields = {"inference-header-content-length": str(len(head))}
    client.connection.request("POST", "/v2/models/app/infer", head + b"\0" * 4, fields)
    assert b"BF16 is not known" in client.connection.getresponse().read()
    client.connection.request("POST", "/v2/models/app/infer", json.dumps({"inputs": [tensor(name="fail")]}))
    failed = client.connection.getresponse()
    assert (failed.status, json.loads(failed.read())) == (500, {"error": "these inputs fail"})
    client.connection.request("DELETE", "/v2/models/app/infer")
    refused = client.connection.getresponse()
    assert (refused.status, refused.getheader("allow"), refused.read() != b"") == (405, "POST", True)
    client.connection.request("GET", "/v2/other")
    missing = client.connection.getresponse()
    assert (missing.status, json.loads(missing.read())) == (404, {"error": "no such path"})
