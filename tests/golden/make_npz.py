#!/usr/bin/python3
"""Makes labels-*.npz in a folder: what NumPy and SciPy (Debian's python3-numpy, python3-scipy) write.
Usage: make_npz.py FOLDER"""
import sys

import numpy
import scipy.sparse

folder = sys.argv[1]
# Queries 0 to 4 have the labels {1, 3}, {}, {0}, {2, 3, 5}, {4}; one zero is stored, which is no label.
matrix = scipy.sparse.csr_matrix(
    (numpy.array([1, 1, 1, 1, 1, 1, 0, 1.0]), ([0, 0, 2, 3, 3, 3, 1, 4], [1, 3, 0, 2, 3, 5, 5, 4])), shape=(5, 6)
)
scipy.sparse.save_npz(folder + "/labels-csr.npz", matrix)
scipy.sparse.save_npz(folder + "/labels-csr-stored.npz", matrix.astype(bool), compressed=False)
scipy.sparse.save_npz(folder + "/labels-csc.npz", matrix.tocsc())
numpy.savez(folder + "/labels-one.npz", y=numpy.array([3, -1, 0, 2, 4]))
numpy.savez_compressed(folder + "/labels-table.npz", numpy.array([[1, 3], [-1, -100], [0, -1], [2, 5], [4, -1]], "i4"))
numpy.savez(folder + "/labels-two.npz", numpy.array([1]), numpy.array([2]))

# What SciPy would not write.
good = dict(indptr=numpy.array([0, 2, 2, 3, 3, 3]), indices=numpy.array([1, 3, 0]), format=numpy.array(b"csr"),
            shape=numpy.array([5, 6]), data=numpy.array([1, 1, 1], "i1"))  # fmt: skip
bad = {
    "row": {"indptr": numpy.array([0, 2, 1, 3, 3, 3])},
    "column": {"indices": numpy.array([1, 6, 0])},
    "negative": {"indices": numpy.array([-1, 3, 0])},
    "type": {"indices": numpy.array([1.0, 3, 0])},
    "data": {"data": numpy.array([1], "i1")},
    "shape": {"shape": numpy.array([4, 6])},
}
for name, change in bad.items():
    numpy.savez(folder + "/labels-bad-" + name + ".npz", **{**good, **change})
del good["indptr"]
numpy.savez(folder + "/labels-bad-none.npz", **good)
