"""WideClassifier: scikit-learn's own checks of estimators, and every linear classifier beside itself."""

import pickle
import unittest
import warnings

import numpy as np

import wideout
from data import scratch

try:
    import scipy.sparse
    import sklearn
except ImportError:
    sklearn = None
else:
    from sklearn.base import BaseEstimator, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, SGDClassifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, LinearSVC, NuSVC
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.utils.estimator_checks import check_estimator

    from wideout.sklearn import WideClassifier, _rows_of

    class Nameless(BaseEstimator):
        def fit(self, X, y):
            self.coef_, self.intercept_ = np.zeros((3, 8)), np.zeros(3)
            return self


def few():
    """30 classes."""
    W, b, X, y = wideout.example(m=30, d=8, n=600)
    return X, y


def many():
    """400 classes: an index is tuned."""
    W, b, X, y = wideout.example(m=400, d=16, n=4000)
    return X, y


def quick(**options):
    return SGDClassifier(**{"loss": "log_loss", "random_state": 1, "max_iter": 3, "tol": None, **options})


@unittest.skipUnless(sklearn, "scikit-learn is not installed")
class Estimator(unittest.TestCase):
    def test_checks(self):
        """All of them: none had to be left out."""
        for estimator in (
            LogisticRegression(),
            quick(),
            LinearSVC(dual=False),
            OneVsRestClassifier(LogisticRegression()),
        ):
            for made, check in check_estimator(WideClassifier(estimator), generate_only=True):
                with self.subTest(f"{type(estimator).__name__} {check.func.__name__}"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        check(made)
                    except unittest.SkipTest as why:  # scikit-learn's own: pandas is not installed
                        self.assertIn("pandas", str(why))

    def test_beside_each(self):
        X, y = few()
        for estimator in (
            LogisticRegression(),
            LogisticRegression(multi_class="ovr"),
            LogisticRegression(solver="liblinear"),
            LogisticRegression(fit_intercept=False),
            quick(),
            quick(loss="hinge").fit(X, y).sparsify(),
            LinearSVC(dual=False),
            LinearSVC(dual=False, fit_intercept=False),
            Perceptron(),
            OneVsRestClassifier(LogisticRegression()),
        ):
            with self.subTest(estimator), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wide = WideClassifier(estimator).fit(X, y)
                plain = wide.estimator_
                np.testing.assert_array_equal(wide.predict(X), plain.predict(X))
                np.testing.assert_allclose(wide.decision_function(X), plain.decision_function(X))
                scores, ids = wide.decision_function(X[:50], k=4)
                every = plain.decision_function(X[:50])
                np.testing.assert_allclose(scores, -np.sort(-every)[:, :4], rtol=1e-3, atol=1e-3)
                np.testing.assert_allclose(np.take_along_axis(every, ids, 1), scores, rtol=1e-3, atol=1e-3)
                self.assertEqual(hasattr(wide, "predict_proba"), hasattr(plain, "predict_proba"))
                if hasattr(plain, "predict_proba"):
                    expected = plain.predict_proba(X[:50])
                    np.testing.assert_allclose(wide.predict_proba(X[:50]), expected, atol=1e-4)
                    chances, ids = wide.predict_proba(X[:50], k=2)
                    np.testing.assert_allclose(chances, np.take_along_axis(expected, ids, 1), atol=1e-4)

    def test_two_classes(self):
        X, y = few()
        y = np.where(y % 2, "odd", "even")
        for estimator in (
            LogisticRegression(),
            quick(),
            LinearSVC(dual=False),
            OneVsRestClassifier(LogisticRegression()),
        ):
            wide = WideClassifier(estimator).fit(X, y)
            np.testing.assert_array_equal(wide.predict(X), wide.estimator_.predict(X))
            self.assertEqual(wide.decision_function(X).shape, (600,))
            if hasattr(wide, "predict_proba"):
                np.testing.assert_allclose(wide.predict_proba(X), wide.estimator_.predict_proba(X), atol=1e-4)

    def test_probabilities(self):
        """They are the estimator's, or there are none."""
        X, y = few()
        multinomial = LogisticRegression(multi_class="multinomial")
        for estimator in (
            LogisticRegression(),
            multinomial,
            LogisticRegression(solver="liblinear"),
            quick(),
            LinearDiscriminantAnalysis(),
            OneVsRestClassifier(multinomial),
            OneVsRestClassifier(LinearDiscriminantAnalysis()),
        ):
            for n_classes in (2, 3, 30):
                with self.subTest((estimator, n_classes)), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.assertTrue(hasattr(WideClassifier(estimator), "predict_proba"))
                    wide = WideClassifier(estimator).fit(X, y % n_classes)
                    expected = wide.estimator_.predict_proba(X)
                    np.testing.assert_allclose(wide.predict_proba(X), expected, atol=1e-4)
        huber = quick(loss="modified_huber")
        for estimator in (huber, OneVsRestClassifier(huber), SVC(kernel="linear", probability=True), LinearSVC()):
            self.assertFalse(hasattr(WideClassifier(estimator), "predict_proba"))
            wide = WideClassifier(estimator).fit(X, y % 2)
            self.assertFalse(hasattr(wide, "predict_proba"))
            np.testing.assert_array_equal(wide.predict(X), wide.estimator_.predict(X))

    def test_rows_of_pairs(self):
        """Three classes have three pairs: the shape does not tell."""
        X, y = few()
        for kind in (SVC, NuSVC):
            options = {"nu": 0.1} if kind is NuSVC else {}
            for n_classes in (3, 4):
                with self.assertRaisesRegex(wideout.ArgumentError, f"{kind.__name__} has one for each pair of classes"):
                    WideClassifier(kind(kernel="linear", **options)).fit(X, y % n_classes)
            wide = WideClassifier(OneVsRestClassifier(kind(kernel="linear", **options))).fit(X, y % 3)
            np.testing.assert_array_equal(wide.predict(X), wide.estimator_.predict(X))

    def test_beyond_float32(self):
        X, y = few()
        for form in (X.astype(np.float64), scipy.sparse.csr_matrix(X.astype(np.float64))):
            wide = WideClassifier(quick()).fit(form, y)
            form[3, 1] = 1e39
            for use in (wide.predict, wide.predict_proba, lambda x: WideClassifier(wide.estimator_).fit(x, y)):
                with self.assertRaisesRegex(wideout.ArgumentError, "X has numbers beyond float32"):
                    use(form)

    def test_an_index(self):
        X, y = many()
        plain = quick().fit(X, y)
        wide = WideClassifier(plain, max_time=1, k=3).fit(X, y)
        self.assertIs(wide.estimator_, plain)
        self.assertEqual(wide.index_.tuning["k"], 3)
        self.assertGreater(wide.score(X, y), 0.95 * plain.score(X, y))
        chances = wide.predict_proba(X[:20])
        np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(wide.classes_[chances.argmax(axis=1)], wide.predict(X[:20]))
        np.testing.assert_array_equal(wide.predict(scipy.sparse.csr_matrix(X)), wide.predict(X))
        again = pickle.loads(pickle.dumps(wide))
        np.testing.assert_array_equal(again.predict(X), wide.predict(X))
        self.assertRaises(NotFittedError, clone(wide).predict, X)
        named = WideClassifier(plain, options={"method": "evidence", "router": "tree", "nodes": 1, "leaves": 32}).fit(
            X, y
        )
        self.assertIsNone(named.index_.tuning)
        np.testing.assert_allclose(
            named.decision_function(X[:9], k=2)[0],
            named.index_.score(X[:9], named.decision_function(X[:9], k=2)[1]),
            atol=1e-4,
        )

    def test_rows_without_candidates_are_answered(self):
        X, y = many()
        plain = quick().fit(X, y)
        options = {"method": "slide", "K": 16, "L": 1}
        wide = WideClassifier(plain, options=options).fit(X, y)
        self.assertTrue((wide.index_.search(X, 1)[1] < 0).any())
        lost = wide.index_.search(X, 1)[1][:, 0] < 0
        np.testing.assert_array_equal(wide.predict(X)[lost], plain.predict(X)[lost])

    def test_several_labels(self):
        X, y = few()
        Y = np.zeros((600, 30), int)
        Y[np.arange(600), y] = Y[np.arange(600), (7 * y) % 30] = 1
        estimator = OneVsRestClassifier(LinearSVC(dual=False, random_state=0))
        for form in (Y, scipy.sparse.csr_matrix(Y)):
            wide = WideClassifier(estimator).fit(X, form)
            found, expected = wide.predict(X), wide.estimator_.predict(X)
            self.assertEqual(type(found), type(expected))
            self.assertEqual((found != expected).sum(), 0)
            self.assertGreater(expected.sum(), 0)
        chances = WideClassifier(OneVsRestClassifier(LogisticRegression())).fit(X, Y)
        np.testing.assert_allclose(chances.predict_proba(X[:9]), chances.estimator_.predict_proba(X[:9]), atol=1e-4)
        with self.assertRaisesRegex(wideout.ArgumentError, "one label a row"):
            WideClassifier(wide.estimator_).fit(X, y)

    def test_classes_that_were_not_fitted(self):
        """Held-out rows of rare classes: they count as without labels."""
        X, y = many()
        plain = quick().fit(X, y)
        for name in (1000, -7):
            odd = y.copy()
            odd[[3, 5]] = name
            options = {"method": "evidence", "router": "tree", "nodes": 1, "leaves": 32}
            with self.assertWarnsRegex(UserWarning, f"2 of 4,000 rows count as without labels.*, {name} the first"):
                found = WideClassifier(plain, options=options).fit(X, odd)
            ids = np.searchsorted(plain.classes_, y)
            ids[[3, 5]] = -1
            expected = wideout.build(*_rows_of(plain, 16), X, ids, **options)
            np.testing.assert_array_equal(found.index_.search(X, 3)[1], expected.search(X, 3)[1])

    def test_in_a_pipeline(self):
        X, y = few()
        search = GridSearchCV(WideClassifier(LogisticRegression(max_iter=50)), {"estimator__C": [0.1, 1.0]}, cv=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make_pipeline(StandardScaler(), search).fit(X, y)
        self.assertGreater(model.score(X, y), 0.3)

    def test_refused(self):
        X, y = few()
        for estimator, sentence in (
            (None, "takes an estimator"),
            (LogisticRegression, "takes an estimator"),
            (LinearRegression(), "takes a classifier, and LinearRegression is a regressor"),
            (Nameless(), "takes a classifier, and Nameless has no classes"),
            (DecisionTreeClassifier(), "with coef_ and intercept_.*not DecisionTreeClassifier"),
        ):
            with self.assertRaisesRegex(wideout.ArgumentError, sentence):
                WideClassifier(estimator).fit(X, y)
        plain = quick().fit(X, y)
        with self.assertRaisesRegex(wideout.ArgumentError, "several labels a row"):
            WideClassifier(plain).fit(X, np.eye(30, dtype=int)[y])
        with self.assertRaisesRegex(wideout.ArgumentError, "y has text for classes, and the estimator was fitted with numbers"):
            WideClassifier(plain).fit(X, y.astype(str))
        with self.assertRaisesRegex(wideout.ArgumentError, "y has numbers for classes, .* with text"):
            WideClassifier(quick().fit(X, y.astype(str))).fit(X, y)
        for k in (0, -1, "3", 2.5):
            with self.assertRaisesRegex(wideout.ArgumentError, "k takes a"):
                WideClassifier(plain, k=k).fit(X, y)
        wide = WideClassifier(plain).fit(X, y)
        for k in (0, -3, "3", 2.5):
            for use in (wide.decision_function, wide.predict_proba):
                with self.assertRaisesRegex(wideout.ArgumentError, "k takes a"):
                    use(X[:3], k=k)
        self.assertEqual(wide.predict_proba(X[:3], k=np.int64(2))[1].shape, (3, 2))
        with self.assertRaises(ValueError):
            wide.predict(X[:, :3])
        with self.assertRaises(ValueError):
            wide.predict(X * np.nan)
        with self.assertRaises(TypeError):
            WideClassifier(plain, options={"method": "full", "no_such": 1}).fit(X, y)
        for name in ("target", "k", "max_time"):
            with self.assertRaisesRegex(wideout.ArgumentError, rf"{name} is no option: say WideClassifier\(..., {name}="):
                WideClassifier(plain, options={name: 1}).fit(X, y)
        wide.index_.save(scratch("sklearn.index"))
        self.assertEqual(wideout.open(scratch("sklearn.index")).m, len(plain.classes_))


if __name__ == "__main__":
    unittest.main()
