"""WideClassifier: a linear classifier of scikit-learn's that finds its best classes from a few of them.

>>> import wideout
>>> from sklearn.linear_model import SGDClassifier
>>> W, b, X, y = wideout.example(m=40, n=2000)
>>> wide = WideClassifier(SGDClassifier(loss="log_loss", random_state=1)).fit(X, y)
>>> wide.predict(X[:3]).shape, wide.score(X, y) > 0.5
((3,), True)
>>> scores, ids = wide.decision_function(X[:3], k=5)
>>> bool((wide.classes_[ids[:, 0]] == wide.predict(X[:3])).all())
True
"""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_regressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from ._build import build
from ._errors import argument_error, shown
from ._index import Index
from ._layer import Layer

#: With fewer classes there is nothing to win: all are scored
_WIDE = 256
#: Candidates of a query that probabilities are over, and that labels are picked from, at most
_CANDIDATES = 1000
#: Numbers of a sparse X that are made dense at once: 64 MiB
_AT_ONCE = 1 << 24


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
        return True
    except NotFittedError:
        return False


def _row_of(estimator: Any, d: int) -> tuple[np.ndarray, float]:
    """One class's row and bias, of the estimators of one-vs-rest."""
    if hasattr(estimator, "coef_"):
        return _dense(estimator.coef_, "coef_")[0], float(np.ravel(estimator.intercept_)[0])
    return np.zeros(d, np.float32), float(np.ravel(estimator.predict(np.zeros((1, d))))[0])  # the same for every query


def _dense(a: Any, what: str) -> np.ndarray:
    a = a.toarray() if scipy.sparse.issparse(a) else np.asarray(a)
    with np.errstate(over="ignore"):
        a = np.ascontiguousarray(a, np.float32)
    if not np.isfinite(a).all():
        raise argument_error(what, f"{what} has numbers beyond float32, which wideout computes in")
    return a


def _rows_of(estimator: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """W (m, d) and b (m,) of a fitted estimator. One row for two classes becomes two: 0 and the row."""
    if hasattr(estimator, "estimators_") and hasattr(estimator, "label_binarizer_"):
        pairs = [_row_of(one, d) for one in estimator.estimators_]
        W, b = np.stack([row for row, _ in pairs]), np.array([bias for _, bias in pairs], np.float32)
    elif hasattr(estimator, "coef_") and hasattr(estimator, "intercept_"):
        if hasattr(estimator, "decision_function_shape") and len(estimator.classes_) > 2:  # libsvm's
            raise argument_error(
                "estimator",
                f"WideClassifier takes a row for each class, and {type(estimator).__name__} has one for each pair of "
                "classes: take LinearSVC, or OneVsRestClassifier of it",
            )
        W = np.atleast_2d(_dense(estimator.coef_, "coef_"))
        b = np.ascontiguousarray(np.broadcast_to(np.ravel(estimator.intercept_), len(W)), np.float32)
    else:
        raise argument_error(
            "estimator",
            "WideClassifier takes a linear classifier, with coef_ and intercept_, such as LogisticRegression, "
            f"not {type(estimator).__name__}",
        )
    if not hasattr(estimator, "classes_"):
        raise argument_error("estimator", f"WideClassifier takes a classifier, and {type(estimator).__name__} has no classes")
    m = len(estimator.classes_)
    if len(W) == 1 and m == 2:
        W, b = np.concatenate([np.zeros_like(W), W]), np.concatenate([np.zeros_like(b), b])
    if W.shape != (m, d):
        raise argument_error(
            "estimator", f"the estimator has coef_ of shape {W.shape}, and {m} classes with {d} features"
        )
    return W, b


def _is_text(y: np.ndarray) -> bool:
    return y.dtype.kind in "US" or (y.dtype.kind == "O" and any(isinstance(x, (str, bytes)) for x in y))


def _number_of(k: Any) -> int:
    try:
        number = operator.index(k)
    except TypeError:
        raise argument_error("k", f"k takes a whole number, not {shown(k)}") from None
    if number < 1:
        raise argument_error("k", f"k takes a number above 0, not {number}")
    return number


def _chances_of(estimator: Any, m: int) -> tuple[str, int] | None:
    """How predict_proba makes chances of the scores of m classes: a softmax, or sigmoids that are normalised, and what
    the scores are multiplied by before. None: in another way, or not at all."""
    if isinstance(estimator, OneVsRestClassifier):
        of_one = _chances_of(estimator.estimator, 2)
        return of_one and ("sigmoids", of_one[1])
    if not hasattr(estimator, "predict_proba"):
        return None
    if isinstance(estimator, LogisticRegression):
        how = getattr(estimator, "multi_class", "auto")
        if how == "multinomial" and m == 2:
            return "softmax", 2  # of -score and score
        return "sigmoids" if how == "ovr" or m == 2 or estimator.solver == "liblinear" else "softmax", 1
    if isinstance(estimator, SGDClassifier):
        return ("sigmoids", 1) if estimator.loss in ("log_loss", "log") else None
    return ("softmax", 1) if isinstance(estimator, LinearDiscriminantAnalysis) else None


def _has_probabilities(self: "WideClassifier") -> bool:
    return _chances_of(getattr(self, "estimator_", self.estimator), len(getattr(self, "classes_", ()))) is not None


class WideClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A linear classifier with an index of its rows.

    estimator: anything that ends up with coef_ and intercept_: LogisticRegression, SGDClassifier, LinearSVC,
    Perceptron, or OneVsRestClassifier of such, multilabel too. Fitted: fit learns the index alone, best from examples
    that the estimator has not seen. Not fitted: a clone of it is fitted first, to the same examples.

    target, k, max_time: as wideout.build has them; options: a dict of its other options. With fewer than 256 classes
    all are scored, unless options name a method. The prior of an index (docs/PYTHON.md) is used for a softmax alone,
    unless options have one. predict_proba is there where it is known how the estimator makes it of scores.

    Attributes: estimator_, classes_, index_ (evaluate it, print it, give it threads), n_features_in_.

    Computed in float32. A sparse X is given to the estimator as it is, and made dense for the index: when fitting all
    of it, when predicting some rows at a time. Reduce many features first (TruncatedSVD).
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        target: float | None = None,
        k: int = 5,
        max_time: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.estimator = estimator
        self.target = target
        self.k = k
        self.max_time = max_time
        self.options = options

    def fit(self, X: Any, y: Any) -> "WideClassifier":
        """Fits the estimator, unless it is fitted, and builds the index."""
        if self.estimator is None or isinstance(self.estimator, type):
            raise argument_error("estimator", "WideClassifier takes an estimator: WideClassifier(LogisticRegression())")
        if is_regressor(self.estimator):
            raise argument_error(
                "estimator", f"WideClassifier takes a classifier, and {type(self.estimator).__name__} is a regressor"
            )
        _number_of(self.k)
        for name in ("target", "k", "max_time"):
            if name in (self.options or {}):
                raise argument_error("options", f"{name} is no option: say WideClassifier(..., {name}=...)")
        several = type_of_target(y).startswith("multilabel")
        rows, labels = self._validated(X, y, multi_output=several)
        check_classification_targets(labels)
        self.estimator_ = self.estimator if _is_fitted(self.estimator) else clone(self.estimator).fit(X, y)
        W, b = _rows_of(self.estimator_, rows.shape[1])
        self.classes_ = self.estimator_.classes_
        self._several = bool(getattr(self.estimator_, "multilabel_", False))
        options = dict(self.options or {})
        if len(W) < _WIDE and "method" not in options:
            options["method"] = "full"
        elif "method" not in options or self.target is not None:
            options.update(target=self.target, k=self.k, max_time=self.max_time)
        if _chances_of(self.estimator_, len(W)) != ("softmax", 1) and options.get("method", "evidence") == "evidence":
            options.setdefault("prior", 0)  # evidence adds up with logits, and those of a softmax alone are such
        options.setdefault("progress", False)
        self.index_ = build(W, b, _dense(rows, "X"), self._ids(labels, several), **options)
        return self

    # ---- Answers --------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """The best class of each row; of a multilabel estimator those with a score above 0, in the form that y had."""
        if self._fitted()._several:
            scores, ids = self._best(X, _CANDIDATES)
            return self.estimator_.label_binarizer_.inverse_transform(self._spread(scores > 0, ids).astype(int))
        return self.classes_[self._best(X, 1)[1][:, 0]]

    def decision_function(self, X: Any, k: int | None = None) -> Any:
        """With k: scores and ids (n, k) of the k best, ids being places in classes_, and -1 with -inf where there are
        fewer candidates. Without: what the estimator says, of every class and exactly, which is slow."""
        if k is None:
            return self._fitted().estimator_.decision_function(X)
        return self._best(X, k)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, k: int | None = None) -> Any:
        """Probabilities over the candidates of each row, as the estimator makes them of scores. With k: those of the k
        best and their ids (n, k). Without: (n, m), 0 for every other class."""
        k = None if k is None else _number_of(k)
        scores, ids = self._best(X, _CANDIDATES)
        kind, times = _chances_of(self.estimator_, len(self.classes_)) or ("", 1)
        scores = times * scores
        if not self._several and (kind == "softmax" or len(self.classes_) == 2):
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        else:
            odds = 1 / (1 + np.exp(-np.maximum(scores, -80)))
        odds[ids < 0] = 0
        if not self._several:
            odds /= odds.sum(axis=1, keepdims=True)
        if k is None:
            return self._spread(odds, ids).toarray()
        return odds[:, :k], ids[:, :k]

    # ---- Its parts ------------------------------------------------------------------------------------------------

    def _fitted(self) -> "WideClassifier":
        check_is_fitted(self, "index_")
        return self

    def _validated(self, *X_and_y: Any, **how: Any) -> Any:
        """X, or X and y, as scikit-learn checks them; its way of asking changed in 1.6."""
        if hasattr(self, "_validate_data"):
            return self._validate_data(*X_and_y, accept_sparse="csr", **how)
        from sklearn.utils.validation import validate_data

        return validate_data(self, *X_and_y, accept_sparse="csr", **how)

    def _ids(self, y: Any, several: bool) -> Any:
        """Labels as build takes them: places in classes_."""
        if several != self._several:
            which = "has several labels a row, and the estimator was fitted with one"
            if self._several:
                which = "has one label a row, and the estimator was fitted with several"
            raise argument_error("y", f"y {which}")
        if several:
            return scipy.sparse.csr_matrix(self.estimator_.label_binarizer_.transform(y)) != 0
        words = ["text" if _is_text(np.asarray(of)) else "numbers" for of in (y, self.classes_)]
        if words[0] != words[1]:  # numpy would compare them as text
            raise argument_error("y", f"y has {words[0]} for classes, and the estimator was fitted with {words[1]}")
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            warnings.warn(
                f"{unknown.sum():,} of {len(unknown):,} rows count as without labels: the estimator was not fitted with "
                f"their classes, {np.asarray(y)[unknown][0]!r} the first",
                stacklevel=3,
            )
        return np.where(unknown, -1, np.searchsorted(self.classes_, y))

    def _best(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores and ids of the k best, and at least one for every row."""
        X = self._fitted()._validated(X, reset=False)
        k = min(_number_of(k), len(self.classes_))
        scores, ids = np.empty((X.shape[0], k), np.float32), np.empty((X.shape[0], k), np.int32)
        step = max(1, _AT_ONCE // X.shape[1]) if scipy.sparse.issparse(X) else max(1, X.shape[0])
        for at in range(0, X.shape[0], step):
            piece = slice(at, at + step)
            rows = _dense(X[piece], "X")
            self.index_.search(rows, k, out=(scores[piece], ids[piece]))
            lost = np.flatnonzero(ids[piece, 0] < 0)
            if lost.size:
                scores[piece][lost], ids[piece][lost] = self.index_.search(rows[lost], k, by="full")
        return scores, ids

    def _spread(self, values: np.ndarray, ids: np.ndarray) -> scipy.sparse.csr_matrix:
        """(n, m), with what the candidates have."""
        row, column = np.nonzero(ids >= 0)
        shape = (len(ids), len(self.classes_))
        return scipy.sparse.csr_matrix((values[row, column], (row, ids[row, column])), shape)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "index_" in state:
            state["index_"] = self.index_.to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "index_" in state:
            layer = Layer(*_rows_of(self.estimator_, self.n_features_in_))
            self.index_ = Index.from_bytes(state["index_"], layer=layer)
