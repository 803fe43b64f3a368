#!/usr/bin/python3
"""Quality against speed: what the tuner tried for an index, as a picture.

    plot_curve.py [INDEX] [-o curve.png]

INDEX is a file that was tuned (wideout.build, 'wideout build', WideLinear.index.save). Without one, an index of a
made-up layer. Read it from cell to cell: each `# %%` is one in editors that know them.
"""

# %%
import argparse

import matplotlib

matplotlib.use("Agg")  # a file, no window
import matplotlib.pyplot as plt
import numpy as np

import wideout

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("index", nargs="?", help="a tuned index")
parser.add_argument("-o", "--output", default="curve.png")
args = parser.parse_args()

# %% An index: yours, or one of a made-up layer
if args.index:
    ix = wideout.open(args.index)
else:
    W, b, queries, labels = wideout.example(m=20000, d=32, n=20000)
    ix = wideout.build(W, b, queries, labels, max_time=8)
print(ix)
if ix.curve is None:
    raise SystemExit(f"{args.index}: it was not tuned, and has no curve")

# %% One row for everything that was tried: by labels where there were any, else by FULL's own answers
curve, tuning = ix.curve, ix.tuning
by_labels = tuning["labelled"] > 0
full = curve[curve.method == 0][0] if (curve.method == 0).any() else None
quality = curve.p_at_1 if by_labels else curve.agreement
full_quality = (full.p_at_1 if by_labels else 1.0) if full is not None else np.nan
chosen = curve[tuning["chosen"]]

# %% The frontier: nothing that was tried is both faster and better
order = np.argsort(curve.us)
best = np.maximum.accumulate(quality[order])
frontier = order[quality[order] >= best]

# %%
figure, axes = plt.subplots(figsize=(7, 4.5))
axes.semilogx(curve.us, quality, "o", color="0.7", markersize=4, label=f"{len(curve)} tried")
axes.semilogx(curve.us[frontier], quality[frontier], "-", color="C0", label="the best at each speed")
if full is not None:
    axes.semilogx(full.us, full_quality, "s", color="C3", label="FULL, the exact layer")
axes.semilogx(
    chosen.us, chosen.p_at_1 if by_labels else chosen.agreement, "*", color="C2", markersize=14, label="chosen"
)
axes.set_xlabel(f"microseconds a query, batch {tuning['batch']}")
axes.set_ylabel("P@1" if by_labels else "share of FULL's best")
axes.set_title(f"{ix.m:,} classes: {chosen.settings}", fontsize=9)
axes.grid(alpha=0.3)
axes.legend()
figure.tight_layout()
figure.savefig(args.output, dpi=120)
print(f"wrote {args.output}")
