"""The KServe v2 protocol: the examples of its specification, in JSON and with binary tensors, by urllib.

From kserve/open-inference-protocol, specification/protocol/inference_rest.md; kserve/kserve, docs/predict-api/v2; and
triton-inference-server/server, docs/protocol/extension_binary_data.md. The specification's model has inputs and outputs
of its own: its examples are replayed with ours in their place, in the same shapes, and as they stand they are refused in
the form that it gives."""
import array
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, finish, floats, predict, queries, same

prior = GOLDEN + "index-prior.safetensors"
rows = queries(GOLDEN + "log.safetensors")[:2]
flat = [x for row in rows for x in row]
expected = [[a["id"] for a in line["answers"]] for line in predict(prior, "-k", "3", GOLDEN + "log.safetensors")[:2]]
expected_ids = [i for row in expected for i in row]


def binary(head, *tensors):
    text = json.dumps(head).encode()
    return text + b"".join(tensors), {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))}


def split(reply):
    """The object and the tensors behind it, by name."""
    size = int(reply.headers["Inference-Header-Content-Length"])
    head, at, found = json.loads(reply.body[:size]), size, {}
    for output in head["outputs"]:
        if "parameters" in output:
            n = output["parameters"]["binary_data_size"]
            found[output["name"]] = reply.body[at: at + n]
            at += n
    return head, found, len(reply.body) - at


with Server(prior, "--name", "mymodel") as s:
    # ---- Health and metadata, as the specification names them ----
    same("server live", 200, s.get("/v2/health/live").status)
    same("and what it says", {"live": True}, s.get("/v2/health/live").json())
    same("server ready", 200, s.get("/v2/health/ready").status)
    # The text says "live" here, the other definitions "ready".
    same("in both of its words", {"live": True, "ready": True}, s.get("/v2/health/ready").json())
    same("model ready", 200, s.get("/v2/models/mymodel/ready").status)
    same("with its name", {"name": "mymodel", "ready": True}, s.get("/v2/models/mymodel/ready").json())
    about = s.get("/v2").json()
    same("server metadata", ("wideout", ["binary_tensor_data"]), (about["name"], about["extensions"]))
    same("that is all of it", ["extensions", "name", "version"], sorted(about))
    same("with a slash behind it, as its OpenAPI file has it", about, s.get("/v2/").json())
    model = s.get("/v2/models/mymodel").json()
    same("model metadata", ("mymodel", "wideout_index", [{"name": "queries", "datatype": "FP32", "shape": [-1, 16]}]),
         (model["name"], model["platform"], model["inputs"]))
    same("that is all of it", ["inputs", "name", "outputs", "platform", "versions"], sorted(model))
    same("a tensor has three members", [["datatype", "name", "shape"]] * 3, [sorted(t) for t in model["inputs"] + model["outputs"]])
    version = model["versions"][0]
    same("of a version", 200, s.get(f"/v2/models/mymodel/versions/{version}/ready").status)
    same("of another", 404, s.get("/v2/models/mymodel/versions/2/ready").status)
    same("of another model", "there is no model 'other': this one is 'mymodel'", s.get("/v2/models/other/ready").error())

    # ---- Inference in JSON: the example of the specification ----
    example = {"id": "42", "inputs": [{"name": "queries", "shape": [2, 16], "datatype": "FP32", "data": flat}],
               "outputs": [{"name": "ids"}], "parameters": {"k": 3}}
    reply = s.ask("/v2/models/mymodel/infer", example)
    same("the example is answered", (200, {"model_name": "mymodel", "model_version": version, "id": "42", "outputs": [
        {"name": "ids", "datatype": "INT32", "shape": [2, 3], "data": expected_ids}]}), (reply.status, reply.json()))
    example["inputs"][0]["data"] = rows
    same("data may be nested", expected_ids, s.ask("/v2/models/mymodel/infer", example).json()["outputs"][0]["data"])
    del example["outputs"], example["id"]
    both = s.ask(f"/v2/models/mymodel/versions/{version}/infer", example).json()
    same("without outputs there are two", ["ids", "scores"], [o["name"] for o in both["outputs"]])
    check("and no id", "id" not in both, both)
    one = {"inputs": [{"name": "queries", "shape": [16], "datatype": "FP32", "data": rows[0]}], "parameters": {"k": 3}}
    same("one query of one dimension", [1, 3], s.ask("/v2/models/mymodel/infer", one).json()["outputs"][0]["shape"])
    literal = {"id": "42", "inputs": [{"name": "input0", "shape": [2, 2], "datatype": "UINT32", "data": [1, 2, 3, 4]},
                                      {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [True]}],
               "outputs": [{"name": "output0"}]}
    reply = s.ask("/v2/models/mymodel/infer", literal)
    same("another model's example is refused", (400, "there is no output 'output0'"), (reply.status, reply.error()))
    del literal["outputs"]
    same("and why", "there are 2 inputs, expected one: queries", s.ask("/v2/models/mymodel/infer", literal).error())
    literal = {"model_name": "mymodel",
               "inputs": [{"name": "input0", "shape": [2, 2], "datatype": "UINT32", "parameters": {"binary_data_size": 16}},
                          {"name": "input1", "shape": [3], "datatype": "BOOL", "parameters": {"binary_data_size": 3}}],
               "outputs": [{"name": "output0", "parameters": {"binary_data": True}}]}
    reply = s.ask("/v2/models/mymodel/infer", *binary(literal, struct.pack("<4I3?", 1, 2, 3, 4, True, False, True)))
    same("so is the one with 19 bytes behind it", (400, "application/json", "there is no output 'output0'"),
         (reply.status, reply.headers["Content-Type"], reply.error()))

    # ---- Binary tensors: the example of the extension ----
    head = {"model_name": "mymodel", "inputs": [{"name": "queries", "shape": [2, 16], "datatype": "FP32",
                                                 "parameters": {"binary_data_size": 128}}],
            "outputs": [{"name": "ids", "parameters": {"binary_data": True}}], "parameters": {"k": 3}}
    reply = s.ask("/v2/models/mymodel/infer", *binary(head, floats(flat)))
    got, tensors, rest = split(reply)
    same("the binary example is answered", (200, "application/octet-stream", 24, 0),
         (reply.status, reply.headers["Content-Type"], got["outputs"][0]["parameters"]["binary_data_size"], rest))
    same("with the same ids", expected_ids, array.array("i", tensors["ids"]).tolist())
    head["outputs"] = [{"name": "ids", "parameters": {"binary_data": False}}, {"name": "scores"}]
    head["parameters"]["binary_data_output"] = True
    got, tensors, rest = split(s.ask("/v2/models/mymodel/infer", *binary(head, floats(flat))))
    same("binary_data_output, and an exception", (expected_ids, 24, 0), (got["outputs"][0].get("data"), len(tensors["scores"]), rest))
    head["outputs"] = [{"name": "ids"}, {"name": "scores"}]
    head["parameters"]["binary_data_output"] = False
    reply = s.ask("/v2/models/mymodel/infer", *binary(head, floats(flat)))
    same("binary in, JSON out", ("application/json", expected_ids), (reply.headers["Content-Type"], reply.json()["outputs"][0]["data"]))

    # ---- What cannot be ----
    def refused(name, sentence, body, headers=None, status=400):
        reply = s.ask("/v2/models/mymodel/infer", body, headers)
        same(name, (status, sentence), (reply.status, reply.error()))

    refused("too few bytes", "input 'queries' has 124 bytes, expected 128",
            *binary({**head, "inputs": [{**head["inputs"][0], "parameters": {"binary_data_size": 124}}]}, floats(flat)[4:]))
    refused("more than there are", "binary_data_size of input 'queries' is more than the 124 bytes that are there",
            *binary(head, floats(flat)[4:]))
    refused("bytes of nobody", "4 bytes behind the JSON belong to no input", *binary(head, floats(flat + [1])))
    refused("a header that is longer than the body", "Inference-Header-Content-Length is '99', and the body has 2 bytes", b"{}",
            {"Inference-Header-Content-Length": "99"})
    refused("another type", "input 'queries' is of FP64, expected FP32",
            {"inputs": [{"name": "queries", "shape": [1, 16], "datatype": "FP64", "data": rows[0]}]})
    refused("another shape", "input 'queries' has shape (2, 15), the index takes (n, 16)",
            {"inputs": [{"name": "queries", "shape": [2, 15], "datatype": "FP32", "data": flat[:30]}]})
    def shaped(data, *shape, **more):
        return {"inputs": [{"name": "queries", "shape": list(shape), "datatype": "FP32", "data": data, **more}]}

    refused("a column", "input 'queries' has shape (16, 1), the index takes (n, 16)", shaped(rows[0], 16, 1))
    refused("rows of another length", "query 0 has 17 numbers, the index takes 16", shaped([flat[:17], flat[17:32]], 2, 16))
    refused("more rows than the shape says", "data of input 'queries' has 4 lists, expected 2", shaped([flat[i * 8:i * 8 + 8] for i in range(4)], 2, 16))
    refused("rows in a list", "data of input 'queries' has 1 lists, expected 2", shaped([[flat[:16], flat[16:32]]], 2, 16))
    refused("nested once more", "query 1 has 1 numbers, the index takes 16", shaped([flat[:16], [flat[16:32]]], 2, 16))
    refused("a list among numbers", "query 1 has no number at place 15", shaped(flat[:31] + [flat[31:32]], 2, 16))
    refused("a shape that is flat, and data that are not", "data of input 'queries' is nested, and its shape is not", shaped([rows[0]], 16))
    refused("parameters of an input that are none", "an input's parameters are no object", shaped(rows[0], 16, parameters=7))
    refused("an input that is none", "an input is no object", {"inputs": [7]})
    refused("parameters of an output", "an output's parameters are no object", {**one, "outputs": [{"name": "ids", "parameters": []}]})
    same("none at all", 200, s.ask("/v2/models/mymodel/infer", shaped(rows[0], 16, parameters=None)).status)
    refused("a shape that is none", "shape of input 'queries' has 3 dimensions",
            {"inputs": [{"name": "queries", "shape": [2, 4, 4], "datatype": "FP32", "data": flat}]})
    refused("too few numbers", "data of input 'queries' has 31 numbers, expected 32",
            {"inputs": [{"name": "queries", "shape": [2, 16], "datatype": "FP32", "data": flat[:31]}]})
    refused("no data", "input 'queries' has neither data and binary_data_size",
            {"inputs": [{"name": "queries", "shape": [2, 16], "datatype": "FP32"}]})
    refused("another input", "there is no input 'text', expected queries",
            {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]})
    refused("a parameter that is none", "there is no parameter 'kk'", {**one, "parameters": {"kk": 1}})

    # ---- What is a parameter is one in its place alone: elsewhere a mask would be open, with nobody to say so ----
    best = expected_ids[0]
    ids = {**one, "outputs": [{"name": "ids"}]}
    check("a mask in its place", best not in s.ask("/v2/models/mymodel/infer", {**ids, "parameters": {"forbid": [best]}}).json()["outputs"][0]["data"])
    for key, value in {"forbid": [best], "require": [1], "bias": {"1": 2}, "k": 2, "scores": "softmax", "exact": True, "probes": 1,
                       "prior": False, "names": True}.items():
        for where, body in (("the request itself", {**ids, key: value}),
                            ("an input", {**ids, "inputs": [{**one["inputs"][0], key: value}]}),
                            ("an input's parameters", {**ids, "inputs": [{**one["inputs"][0], "parameters": {key: value}}]}),
                            ("an output", {**ids, "outputs": [{"name": "scores"}, {"name": "ids", key: value}]}),
                            ("an output's parameters", {**ids, "outputs": [{"name": "ids", "parameters": {key: value}}]})):
            refused(f"{key} in {where}", f"'{key}' belongs into the parameters of the request, not into {where}", body)
    unknown = {"unknown": 1}
    reply = s.ask("/v2/models/mymodel/infer", {**one, **unknown, "inputs": [{**one["inputs"][0], **unknown, "parameters": unknown}],
                                              "outputs": [{"name": "ids", **unknown, "parameters": unknown}]})
    same("members that nobody knows are passed over, as the protocol has it", (200, expected_ids[:3]),
         (reply.status, reply.json()["outputs"][0]["data"]))

    # ---- What clients of other servers send along ----
    for name, more in (("null is as if absent", {"id": None, "outputs": None}), ("of parameters too", {"parameters": None}),
                       ("and below", {"inputs": [{**one["inputs"][0], "parameters": None}], "outputs": [{"name": "ids", "parameters": None}]}),
                       ("in each", {"inputs": [{**one["inputs"][0], "data": rows[0]}], "outputs": [{"name": "ids", "parameters": {"binary_data": None}}]})):
        reply = s.ask("/v2/models/mymodel/infer", {**one, **more})
        same(name, (200, expected_ids[:3], None), (reply.status, reply.json().get("outputs", [{}])[0].get("data", [])[:3], reply.json().get("id")))
    head = json.dumps({**one, "inputs": [{**one["inputs"][0], "data": None, "parameters": {"binary_data_size": 64}}]}).encode()
    reply = s.ask("/v2/models/mymodel/infer", head + floats(rows[0]), {"Inference-Header-Content-Length": str(len(head))})
    same("of data too", (200, expected_ids[:3]), (reply.status, reply.json().get("outputs", [{}])[0].get("data")))
    refused("but no mask", "forbid is no list of classes", {**one, "parameters": {"forbid": None}})
    refused("no inputs", "the object has no inputs", {**one, "inputs": None})
    others = {"content_type": "np", "headers": {"a": "b"}, "priority": 1, "sequence_id": 7, "sequence_start": True, "sequence_end": False,
              "timeout": 1000, "triton_enable_empty_final_response": False}
    reply = s.ask("/v2/models/mymodel/infer", {**one, "parameters": {**others, "k": 2}})
    same("what changes no answer is passed over", (200, expected_ids[:2]), (reply.status, reply.json()["outputs"][0]["data"]))

with Server(GOLDEN + "index-names.safetensors", "--net", GOLDEN + "network-xc.safetensors") as s:
    ask = {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["one word", "two words"]}],
           "outputs": [{"name": "names"}, {"name": "ids"}], "parameters": {"k": 2}}
    every = s.ask("/v2/models/wideout/infer", {**ask, "outputs": []}).json()["outputs"]
    same("without outputs there are all that the model has", [t["name"] for t in s.get("/v2/models/wideout").json()["outputs"]],
         [o["name"] for o in every])
    got = s.ask("/v2/models/wideout/infer", ask).json()
    same("text in, names out", ([2, 2], 4), (got["outputs"][1]["shape"], len(got["outputs"][1]["data"])))
    text = b"".join(struct.pack("<I", len(t)) + t for t in (b"one word", b"two words"))
    ask["inputs"][0] = {"name": "text", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(text)}}
    ask["outputs"][0]["parameters"] = {"binary_data": True}
    head, tensors, rest = split(s.ask("/v2/models/wideout/infer", *binary(ask, text)))
    names, at = [], 0
    while at < len(tensors["names"]):
        n = struct.unpack_from("<I", tensors["names"], at)[0]
        names.append(tensors["names"][at + 4: at + 4 + n].decode())
        at += 4 + n
    same("the same as bytes", ([o for o in got["outputs"] if o["name"] == "names"][0]["data"], 0), (names, rest))
    ask["inputs"][0] |= {"shape": [1], "parameters": {"binary_data_size": 7}}
    reply = s.ask("/v2/models/wideout/infer", *binary(ask, struct.pack("<I", 3) + b"a\0b"))
    same("a text with a NUL byte", (400, "a text of input 'text' has a NUL byte, is no UTF-8, or is longer than the input"), (reply.status, reply.error()))
    ask["inputs"][0] |= {"shape": [2]}
    ask["inputs"][0]["parameters"]["binary_data_size"] = len(text) - 1
    same("a text that is cut off", 400, s.ask("/v2/models/wideout/infer", *binary(ask, text[:-1])).status)

# ---- The shapes of the specification: two numbers a row, an answer of (3, 2) ----
with tempfile.TemporaryDirectory() as folder:
    layer = os.path.join(folder, "layer.npy")
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }".ljust(117) + "\n"
    with open(layer, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<6f", 1, 0, 0, 1, 1, 1))
    index = os.path.join(folder, "index")
    subprocess.run([TOOL, "build", "-q", "--layer", layer, "--method", "full", "-o", index], check=True, capture_output=True)
    with Server(index, "--name", "mymodel") as s:
        def infer(data, shape, **more):
            return s.ask("/v2/models/mymodel/infer", {"id": "42", "inputs": [
                {"name": "queries", "shape": shape, "datatype": "FP32", "data": data}], "parameters": {"k": 2}, **more})

        nested, flattened = infer([[1, 2], [4, 5]], [2, 2]), infer([1, 2, 4, 5], [2, 2])
        same("a matrix as it is, and flattened", nested.json(), flattened.json())
        same("its answer", [{"name": "ids", "datatype": "INT32", "shape": [2, 2], "data": [2, 1, 2, 1]},
                            {"name": "scores", "datatype": "FP32", "shape": [2, 2], "data": [3.0, 2.0, 9.0, 5.0]}], nested.json()["outputs"])
        reply = infer([1, 2, 3, 4, 5, 6], [3, 2], outputs=[{"name": "scores"}])
        same("an FP32 answer of (3, 2)", (200, "application/json", "42", [
            {"name": "scores", "datatype": "FP32", "shape": [3, 2], "data": [3.0, 2.0, 7.0, 4.0, 11.0, 6.0]}]),
            (reply.status, reply.headers["Content-Type"], reply.json()["id"], reply.json()["outputs"]))
        ask = {"model_name": "mymodel", "inputs": [{"name": "queries", "shape": [3, 2], "datatype": "FP32", "parameters": {"binary_data_size": 24}}],
               "outputs": [{"name": "scores", "parameters": {"binary_data": True}}], "parameters": {"k": 2}}
        reply = s.ask("/v2/models/mymodel/infer", *binary(ask, floats([1, 2, 3, 4, 5, 6])))
        head, tensors, rest = split(reply)
        same("the same in 24 bytes", ({"name": "scores", "datatype": "FP32", "shape": [3, 2], "parameters": {"binary_data_size": 24}},
                                      [3.0, 2.0, 7.0, 4.0, 11.0, 6.0], 0),
             (head["outputs"][0], array.array("f", tensors["scores"]).tolist(), rest))
        same("both lengths", (len(reply.body), len(reply.body) - 24),
             (int(reply.headers["Content-Length"]), int(reply.headers["Inference-Header-Content-Length"])))
finish()
