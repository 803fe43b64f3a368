"""Holds classes out of a network's layer and logs: update_split.py NETWORK FOLDER CLASSES SEED OUT.

FOLDER has train.log, valid.log and test.log. The classes that are held out, drawn by the seed, get the last numbers, so
that an index with them and one that they are added to number all classes alike. Writes to OUT: layer (all rows), layer.less
and rows (those held out); train.log, valid.log and test.log; train.log.less and valid.log.less, without their labels;
and held.log, the test queries that have one of them as a label, with all their labels."""
import json
import sys

import numpy as np

TYPES = {"F32": np.float32, "I64": np.int64, "I32": np.int32}


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__" or about["dtype"] not in TYPES:
            continue
        begin, end = about["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + n + begin : 8 + n + end], TYPES[about["dtype"]]).reshape(about["shape"])
    return tensors


def save(path, tensors):
    names = {np.dtype(t): name for name, t in TYPES.items()}
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def select(log, keep_query=None, keep_label=None):
    """The log with some of its queries, or of its labels."""
    queries, indptr, labels = log["queries"], log["labels.indptr"], log["labels.indices"]
    owner = np.repeat(np.arange(len(queries)), np.diff(indptr))
    kept = np.ones(len(labels), bool) if keep_label is None else keep_label
    if keep_query is not None:
        kept = kept & keep_query[owner]
    counts = np.bincount(owner[kept], minlength=len(queries))
    if keep_query is not None:
        queries, counts = queries[keep_query], counts[keep_query]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return {"queries": queries, "labels.indptr": indptr, "labels.indices": labels[kept].astype(np.int32)}


def main():
    network, folder, count, seed, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    net = load(network)
    weight, bias = net["output.weight"], net["output.bias"]
    m = len(weight)
    last = np.sort(np.random.default_rng(seed).choice(m, count, replace=False))
    order = np.concatenate([np.setdiff1d(np.arange(m), last), last])
    number = np.empty(m, np.int32)
    number[order] = np.arange(m, dtype=np.int32)
    weight, bias, rest = weight[order], bias[order], m - count
    save(f"{out}/layer", {"weight": weight, "bias": bias})
    save(f"{out}/layer.less", {"weight": weight[:rest], "bias": bias[:rest]})
    save(f"{out}/rows", {"weight": weight[rest:], "bias": bias[rest:]})
    for name in ("train.log", "valid.log", "test.log"):
        log = load(f"{folder}/{name}")
        log["labels.indices"] = number[log["labels.indices"]]
        save(f"{out}/{name}", select(log))
        held = log["labels.indices"] >= rest
        if name != "test.log":
            save(f"{out}/{name}.less", select(log, keep_label=~held))
            continue
        owner = np.repeat(np.arange(len(log["queries"])), np.diff(log["labels.indptr"]))
        has = np.zeros(len(log["queries"]), bool)
        has[owner[held]] = True
        save(f"{out}/held.log", select(log, keep_query=has))
        save(f"{out}/alone.log", select(log, keep_query=has, keep_label=held))


main()
