"""
Quick start
===========

Three lines train a classifier that may name two classes, in a pipeline; the certificate says how
far it is from optimal.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from topkopt import TopKClassifier, predict_topk
from topkopt.plotting import ConvergenceDisplay, TopKAccuracyDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)

# %%
# Any loss goes by its name, with flat parameters, so that a grid search can vary them.
classifier = TopKClassifier("topk_hinge", k=2, C=0.1, smoothing=1.0, random_state=0)
model = make_pipeline(MinMaxScaler(), classifier).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}")

# %%
# Two guesses for each image, the better one first.
print(predict_topk(model, X_test[:4], 2), y_test[:4])

# %%
# The solution is certified: no classifier has an objective lower by more than this fraction.
print(f"duality gap {classifier.duality_gap_:.1e} after {classifier.n_iter_} epochs")
print(classifier.solution_.report())

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
ConvergenceDisplay.from_estimator(model, ax=left, quantity="objective")
TopKAccuracyDisplay.from_estimator(model, X_test, y_test, ax=right)
plt.show()
