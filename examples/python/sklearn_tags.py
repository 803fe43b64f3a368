#!/usr/bin/python3
"""Tags for texts with scikit-learn: words to numbers, a linear classifier, and an index of its classes.

    sklearn_tags.py [--tags 400]

The texts are made up: every tag has words of its own. WideClassifier takes the place of the classifier that it is
given; nothing else in the pipeline changes.
"""

import argparse
import time

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from wideout.sklearn import WideClassifier


def made_up(n, n_tags, seed):
    """n texts and their tags; some tags are frequent."""
    typical = np.random.default_rng(0).integers(0, 5 * n_tags, (n_tags, 5))
    rng = np.random.default_rng(seed)
    tags = (n_tags * rng.random(n) ** 2).astype(int)
    words = np.where(rng.random((n, 5)) < 0.8, typical[tags], rng.integers(0, 5 * n_tags, (n, 5)))
    return [" ".join(f"word{w}" for w in row) for row in words], np.array([f"tag{t}" for t in tags])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tags", type=int, default=400)
    args = parser.parse_args()
    texts, tags = made_up(15 * args.tags, args.tags, 1)
    test_texts, test_tags = made_up(3 * args.tags, args.tags, 2)

    vectors = make_pipeline(TfidfVectorizer(), TruncatedSVD(64, random_state=1))
    X, X_test = vectors.fit_transform(texts), vectors.transform(test_texts)
    plain = SGDClassifier(loss="log_loss", random_state=1, max_iter=5, tol=None, n_jobs=2).fit(X, tags)
    wide = WideClassifier(plain, max_time=5).fit(X, tags)
    print(wide.index_)

    for name, classifier in (("SGDClassifier", plain), ("WideClassifier", wide)):
        accuracy = classifier.score(X_test, test_tags)
        took = []
        for _ in range(9):
            began = time.perf_counter()
            classifier.predict(X_test)
            took.append(time.perf_counter() - began)
        print(f"{name:<16} accuracy {accuracy:.4f}, {1e6 * sorted(took)[4] / len(X_test):8.2f} us a text")
    chances, ids = wide.predict_proba(X_test[:1], k=3)
    answers = ", ".join(f"{wide.classes_[i]} {p:.2f}" for i, p in zip(ids[0], chances[0]))
    print(f"'{test_texts[0]}', which has {test_tags[0]}: {answers}")


if __name__ == "__main__":
    main()
