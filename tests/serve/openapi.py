"""docs/openapi.json against the running server: it has all paths and no others, methods and statuses are as it says, and its
examples are answered in the form that it gives."""
import json
import re
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, finish, read_answer, same

with open("docs/openapi.json") as file:
    spec = json.load(file)
KINDS = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
SAID = {"description", "default", "format", "minimum", "pattern", "example"}  # that are not checked, or are below


def resolve(value):
    while "$ref" in value:
        part = spec
        for name in value["$ref"].removeprefix("#/").split("/"):
            part = part[name]
        value = part
    return value


def wrong(value, schema, at="$"):
    """What of a value is not as its schema says: a list of sentences."""
    schema = resolve(schema)
    unknown = set(schema) - SAID - {"type", "properties", "required", "additionalProperties", "items", "enum", "oneOf"}
    assert not unknown, unknown
    if "oneOf" in schema:
        return [] if sum(not wrong(value, s, at) for s in schema["oneOf"]) == 1 else [f"{at}: not one of the forms"]
    kind, said = schema.get("type"), []
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = is_number if kind == "number" else is_number and isinstance(value, int) if kind == "integer" else isinstance(value, KINDS[kind])
    if not fits:
        return [f"{at}: {value!r} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        said.append(f"{at}: {value!r} is none of {schema['enum']}")
    if kind == "string" and "pattern" in schema and not re.search(schema["pattern"], value):
        said.append(f"{at}: {value!r}")
    if kind == "object":
        for name in schema.get("required", []):
            if name not in value:
                said.append(f"{at}: no {name}")
        for name, inner in value.items():
            more = schema.get("additionalProperties", True)
            if name in schema.get("properties", {}):
                said += wrong(inner, schema["properties"][name], f"{at}.{name}")
            elif more is False:
                said.append(f"{at}: {name} is in no schema")
            elif isinstance(more, dict):
                said += wrong(inner, more, f"{at}.{name}")
    if kind == "array" and "items" in schema:
        for i, inner in enumerate(value):
            said += wrong(inner, schema["items"], f"{at}[{i}]")
    return said


# The check itself can fail.
same("a schema that is not met is found", ["$: no a", "$.b: 1 is no string", "$: c is in no schema"],
     wrong({"b": 1, "c": 2}, {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"],
                              "additionalProperties": False}))

with open("serve/route.c") as file:
    listed = re.findall(r'^    \{(MODEL)?\s?(?:"([^"]*)")?, "([A-Z]+)", woi_', file.read(), re.M)
routes = {(("/v2/models/{name}" + version if model else "") + path, method.lower()) for model, path, method in listed
          for version in ("", "/versions/{version}")}
said = {(path, method) for path, item in spec["paths"].items() for method in item}
check("there are routes", len(routes) > 10, routes)
same("the file has the server's paths and methods", sorted(routes), sorted(said))


def fill(s, path, token=None):
    if "{version}" in path:
        path = path.replace("{version}", s.get("/v1/info", {"Authorization": "Bearer " + token} if token else {}).json()["index"])
    return path.replace("{name}", "wideout")


def ask(s, path, method, operation, token=None):
    headers = {"Authorization": "Bearer " + token} if token else {}
    body = operation.get("requestBody")
    data = body["content"]["application/json"]["example"] if body else b"" if method == "post" else None
    return s.ask(fill(s, path, token or "a-token-of-some-length"), data, headers, method.upper())


def judge(name, reply, operation):
    """Whether a reply is one of those that an operation promises."""
    promised = operation["responses"].get(str(reply.status))
    if not check(f"{name}: status {reply.status} is promised", promised is not None, reply.body):
        return
    promised = resolve(promised)
    kind = reply.headers["Content-Type"].split(";")[0]
    if not check(f"{name}: so is {kind}", kind in promised["content"], list(promised["content"])):
        return
    if kind == "application/json":
        same(f"{name}: and its form", [], wrong(reply.json(), promised["content"][kind]["schema"]))
    for header, about in promised.get("headers", {}).items():
        check(f"{name}: {header}", header in reply.headers and not wrong(reply.headers[header], about["schema"]), reply.headers)


folder, net = tempfile.TemporaryDirectory(), GOLDEN + "network-xc.safetensors"
index = folder.name + "/index"
subprocess.run([TOOL, "build", "-q", "--layer", net, "--log", GOLDEN + "log-bf16.safetensors", "-K", "2", "-L", "2", "--iterations", "2", "-o", index],
               check=True, capture_output=True)
with Server(index, "--net", net, "-q", "--shadow", "1", "--learn") as s:
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            body = operation.get("requestBody")
            if body:
                content = body["content"]["application/json"]
                same(f"{method} {path}: its example is as its schema says", [], wrong(content["example"], content["schema"]))
            reply = ask(s, path, method, operation)
            same(f"{method} {path}: it is answered", 200, reply.status)
            judge(f"{method} {path}", reply, operation)
            if body:
                judge(f"{method} {path}, malformed", s.ask(fill(s, path), b"{"), operation)
            if method == "post":
                reply = s.ask(fill(s, path), b"{}", {"Content-Encoding": "gzip"})
                same(f"{method} {path}: a body that is packed", (415, "the body is coded as 'gzip', expected it as it is, without Content-Encoding"), (reply.status, reply.error()))
                judge(f"{method} {path}, packed", reply, operation)
            reply = s.raw(f"{method.upper()} {fill(s, path)} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n".encode())
            same(f"{method} {path}: a coding that is none", 501, reply.status)
            judge(f"{method} {path}, in another coding", reply, operation)
            other = s.ask(fill(s, path), b"", method="DELETE")
            same(f"delete {path}: no method of it", 405, other.status)
with Server(index, "-q", "--learn", "--timeout", "0.5") as s:
    waiting = []
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            waiting.append((path, method, operation, socket.create_connection(s.address, timeout=30)))
            waiting[-1][-1].sendall(f"{method.upper()} {fill(s, path)} HTTP/1.1\r\nHost: x\r\n".encode())
    for path, method, operation, late in waiting:
        reply = read_answer(late)
        late.close()
        same(f"{method} {path}, half of it", 408, reply and reply.status)
        judge(f"{method} {path}, half of it", reply, operation)
with Server(index, "-q") as shard:
    try:
        front = Server("--shards", "%s:%d" % shard.address, "--net", net, "-q")
    except RuntimeError as error:
        front = None
        check("no front of shards here # skip", "built without shards" in str(error), error)
    for path, item in spec["paths"].items() if front else ():
        for method, operation in item.items():
            judge(f"in front of a shard: {method} {path}", ask(front, path, method, operation), operation)
    if front:
        front.stop()
with tempfile.NamedTemporaryFile("w") as token:
    token.write("a-token-of-some-length")
    token.flush()
    with Server(index, "--net", net, "-q", "--token-file", token.name, "--learn") as s:
        for path, item in spec["paths"].items():
            for method, operation in item.items():
                for_all = operation.get("security") == []
                same(f"{method} {path} without the token", 200 if for_all else 401, ask(s, path, method, operation).status)
                same(f"{method} {path} with it", 200, ask(s, path, method, operation, "a-token-of-some-length").status)
finish()
