"""What a hospital might have installed: scikit-learn-like estimators."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression


class Nearest(BaseEstimator, ClassifierMixin):
    """A scikit-learn-like estimator that knows no files: the class whose mean is nearest."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, inputs, labels):
        self.classes_ = np.unique(labels)
        self.means_ = np.stack([inputs[labels == each].mean(axis=0) for each in self.classes_])
        return self

    def predict(self, inputs):
        return self.classes_[((inputs[:, None] - self.means_) ** 2).sum(axis=2).argmin(axis=1)]


INSTANCE = LogisticRegression(C=10.0)
NOTHING = 3
