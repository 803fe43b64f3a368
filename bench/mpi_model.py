"""A model of builds and searches by wideout-mpi: mpi_model.py [FOLDER]. It measures constants with P = 1 and 2 ranks of one
thread, predicts the other numbers in $RANKS ("1 2 4") with them and measures these, and says what they mean for larger layers.

A build by a tree from n queries, a of which FULL is asked (all of them; with --source labels none):

  ask     a m d c_mul / (P T) + a k (P - 1) (8 bytes + c_merge) + a / 4096 gathers
  tree    n sqrt(n) (c_tree / (P T) + c_file / T)     a tree has some sqrt(n) nodes, with as many leaves
  alike   n c_fill                                    what every rank does in full: filling cells
  write   the shard, once

A query of a stream takes c_route / P + c_find + candidates c_score / P, and the exchange of its block; of FULL, m d c_mul / (P T).
c_find is what a query of small cells takes however few of its candidates are here. Constants are fitted to P = 1, and where a
part is not divided to P = 2; the others are not.

Times are CPU seconds of rank 0, which others on the machine change little: what an idle machine would take, but for
waiting. $MPIRUN starts the ranks (bench/mpi_hosts.sh: each on a host of its own, of network namespaces), $BUILD has the
programs; $M, $D, $N: classes, dimensions and queries (50000, 64, 40000); $ROUNDS (3): the median of so many. What is assumed
of the machines of the predictions: $CORES (16) each, $GBIT (10) a second and $WAIT_US (100) an exchange between them, $DISK (1)
GB a second. All of it in JSON goes to bench/results/mpi_model.json, or $RESULTS."""

import json
import math
import os
import statistics
import subprocess
import sys

BUILD = os.environ.get("BUILD", "build")
MPIRUN = os.environ.get("MPIRUN", "mpirun")
M, D, N, ROUNDS = (int(os.environ.get(name, value)) for name, value in zip("M D N ROUNDS".split(), (50000, 64, 40000, 3)))
RANKS = sorted({1, 2} | {int(p) for p in os.environ.get("RANKS", "1 2 4").split()})
CORES, GBIT, WAIT_US, DISK = (float(os.environ.get(n, v)) for n, v in (("CORES", 16), ("GBIT", 10), ("WAIT_US", 100), ("DISK", 1)))
K, BLOCK, SAMPLE = 5, 4096, 1 << 19  # FULL's best of a query; queries an exchange; queries that a tree is learned from
POPULAR = 5000  # candidates of an index that scoring is measured with
FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ.get("TMPDIR", "/tmp"), "wideout-mpi-model")
ENV = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_hwloc_base_binding_policy="none",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",
    OMPI_MCA_mpi_yield_when_idle="1",
)


def run(p, *words):
    out = subprocess.run([MPIRUN, "-n", str(p), *words], env=ENV, check=True, stdout=subprocess.PIPE, text=True)
    return out.stdout


def phases(report):
    return {phase["phase"]: phase for phase in report["phases"]}


def build_and_search(p, *how):
    """CPU seconds of a build on rank 0 by phase, and of searching a query, that is routing and scoring."""
    data, index = os.path.join(FOLDER, "data"), os.path.join(FOLDER, f"index-{p}")
    one = ["-t", "1", "--json", "-q"]
    build = json.loads(
        run(p, f"{BUILD}/wideout-mpi", "build", "--layer", f"{data}/{'net' if p > 1 else 'layer.safetensors'}", "--log",
            f"{data}/train.log.safetensors", *how, "-o", index, *one))  # fmt: skip
    found = json.loads(
        run(p, f"{BUILD}/wideout-mpi", "eval", "--index", index, "--log", f"{data}/test.log.safetensors", "--no-full",
            "--rounds", "5", *one))  # fmt: skip
    asked = 5 * found["n"]
    told = phases(found)
    search = sum(told[name]["cpu_s"] for name in ("routing", "search") if name in told)
    route = told["routing"]["cpu_s"] * p if "routing" in told else None  # of all ranks; at P = 1 it is a part of the search
    return {name: phase["cpu_s"] for name, phase in phases(build).items()}, search / asked, route and route / asked


def measure(p):
    cpu, search, route = build_and_search(p, "--router", "tree")
    file = os.path.getsize(os.path.join(FOLDER, f"index-{p}-00001-of-{p:05d}.safetensors"))
    _, scoring, _ = build_and_search(p, "--method", "popular", "--popular", str(POPULAR))
    return {
        "ask": cpu["asking the exact layer"],
        "tree": cpu["learning the tree"],
        "fill": cpu["filling cells"],
        "search": search,
        "route": route or 0,
        "scoring": scoring,
        "file": file,
    }


def median(p):
    rounds = [measure(p) for _ in range(ROUNDS)]
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


def predict(c, job):
    """Seconds by phase of a job: p ranks, t threads, m, d, n, a, and the exchange between ranks."""
    p, t, m, d, n, a = (job[name] for name in "p t m d n a".split())
    scale = min(n, SAMPLE) * math.sqrt(n)
    exchange = a * 8 * K * (p - 1) / job["bytes_s"] + math.ceil(a / BLOCK) * job["wait_s"] * math.ceil(math.log2(p) if p > 1 else 0)
    return {
        "ask": a * m * d * c["mul"] / (p * t) + a * K * (p - 1) * c["merge"] + exchange,
        "tree": scale * c["tree"] / (p * t) + n * math.sqrt(n) * c["file"] / t,
        "fill": n * c["fill"],
        "search": c["route"] / p + c["find"],
        "scoring": POPULAR * c["score"] / p,
    }


def constants(one, two, merge_ns):
    divided = 2 * (one["tree"] - two["tree"])
    return {
        "mul": one["ask"] / (N * M * D),
        "merge": merge_ns / 1e9,
        "tree": divided / (min(N, SAMPLE) * math.sqrt(N)),
        "file": max(one["tree"] - divided, 0) / (N * math.sqrt(N)),
        "fill": one["fill"] / N,
        "score": one["scoring"] / POPULAR,
        "route": min(two["route"], one["search"]),
        "find": one["search"] - min(two["route"], one["search"]),
        "class_bytes": 2 * (one["file"] - two["file"]) / M,
    }


def main():
    about = json.loads(subprocess.run(["bench/about.sh", BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout)
    os.makedirs("bench/results", exist_ok=True)
    data = os.path.join(FOLDER, "data")
    if not os.path.exists(f"{data}/layer.safetensors"):
        os.makedirs(FOLDER, exist_ok=True)
        subprocess.run(
            [f"{BUILD}/wideout", "data", "synthetic", "-q", "-m", str(M), "-d", str(D), "-n", str(N), "-o", data],
            check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        for p in RANKS[1:]:  # dealt out by frequency, so that each has as many candidates
            subprocess.run(
                [f"{BUILD}/wideout", "shard", "--layer", f"{data}/layer.safetensors", "--log", f"{data}/train.log.safetensors",
                 "-n", str(p), "-o", f"{data}/net"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    measured = {p: median(p) for p in RANKS}
    wires = {p: [float(word) for word in run(p, f"{BUILD}/tests/mpi/collective", "time").split()] for p in RANKS[1:]}
    c = constants(measured[1], measured[2], wires[RANKS[-1]][2])

    print(f"constants, of {M:,} classes, d = {D}, {N:,} logged queries, one thread")
    print(f"  FULL, a number of a row       {1e9 * c['mul']:8.4f} ns; a class {1e9 * c['mul'] * D:8.2f} ns")
    print(f"  merging an answer             {1e9 * c['merge']:8.1f} ns, of each other rank")
    print(f"  a tree, of a query            {1e6 * c['tree'] * math.sqrt(N):8.2f} us, divided by P; {1e6 * c['file'] * math.sqrt(N):.2f} us that are not")
    print(f"  filling, of a query           {1e6 * c['fill']:8.2f} us, not divided")
    print(f"  searching, of a query         {1e6 * c['route']:8.2f} us by a tree, divided, {1e6 * c['find']:.2f} us of small cells, not, and {1e9 * c['score']:.2f} ns a candidate, divided")
    print(f"  an index's file, a class      {c['class_bytes']:8.1f} bytes (rows in F32)")
    for p, (wait, speed, _) in wires.items():
        print(f"  an exchange of {p} ranks here   {wait:8.1f} us, and {speed / 1e6:.0f} MB a second")

    here = {"t": 1, "m": M, "d": D, "n": N, "a": N}
    print("\nrank 0's CPU seconds of a build, and microseconds of a query: model and measured")
    print(f"{'':4}{'ask':>16}{'tree':>16}{'fill':>16}{'by the tree':>16}{f'{POPULAR} scored':>16}")
    model = {}
    for p, took in measured.items():
        model[p] = said = predict(c, dict(here, p=p, bytes_s=math.inf, wait_s=0))
        cells = [f"{said[n] * u:7.2f}{took[n] * u:8.2f}" for n, u in (("ask", 1), ("tree", 1), ("fill", 1), ("search", 1e6), ("scoring", 1e6))]
        print(f"P={p} " + "".join(f"{cell:>16}" for cell in cells))

    print(f"\nlarger layers, d = 64, 10^7 logged queries; machines of {CORES:.0f} cores, {GBIT:g} Gbit/s, {WAIT_US:g} us, {DISK:g} GB/s")
    rows = []
    for m, p in ((10**8, 4), (10**9, 64)):
        n = 10**7
        job = {"p": p, "t": CORES, "m": m, "d": 64, "n": n, "a": n, "bytes_s": GBIT * 1e9 / 8, "wait_s": WAIT_US / 1e6}
        s = predict(c, job)
        shard = m / p * (3 * 64 + 8)  # int8, bf16 and a scale and a bias each
        write = shard / (DISK * 1e9)
        search = s["search"] / CORES + (4 * 64 + 8 + (8 * K + 4) * (p - 1)) / job["bytes_s"] + 3 * job["wait_s"] / 1024
        full = m * 64 * c["mul"] / (p * CORES)
        rows.append({"m": m, "p": p, "shard_bytes": shard, "search_us": 1e6 * search, "full_us": 1e6 * full,
                     "write_s": write, **{name: s[name] for name in ("ask", "tree", "fill")}})  # fmt: skip
        print(f"  {m:.0e} classes, P = {p}: {s['ask'] / 60:.1f} min asking, {s['tree'] / 60:.1f} the tree, "
              f"{s['fill'] / 60:.1f} filling, {write / 60:.1f} writing")  # fmt: skip
        print(f"    a shard in int8 and bf16 has {shard / 1e9:.1f} GB; a query in a stream {1e6 * search:.2f} us, of FULL {full * 1e6:.0f} us")
    with open(os.environ.get("RESULTS", "bench/results/mpi_model.json"), "w") as file:
        json.dump({**about, "mpirun": MPIRUN, "m": M, "d": D, "n": N, "constants": c, "measured": measured, "model": model,
                   "wires": wires, "larger": rows}, file, indent=1)  # fmt: skip


main()
