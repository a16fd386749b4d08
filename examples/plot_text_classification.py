"""
Text with sparse features
=========================

Word counts are sparse, and so is the training: an epoch costs time in proportion to the words, not
to the vocabulary. The corpus is made up: 30 topics, whose words overlap.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from topkopt import TopKClassifier, predict_topk
from topkopt.plotting import TopKAccuracyDisplay

N_TOPICS, N_WORDS, N_TEXTS = 30, 5000, 3000
rng = np.random.default_rng(0)
words = np.array([f"word{i}" for i in range(N_WORDS)])
common = 1 / np.arange(1, N_WORDS + 1)  # some words are frequent in every topic
topics = common * rng.gamma(0.3, size=(N_TOPICS, N_WORDS))
topics /= topics.sum(axis=1, keepdims=True)
subject = rng.integers(0, N_TOPICS, N_TEXTS)
texts = [" ".join(rng.choice(words, 12, p=topics[topic])) for topic in subject]
labels = np.array([f"topic {topic}" for topic in subject])

# %%
# Strings go in, strings come out.
train, test, y_train, y_test = train_test_split(texts, labels, random_state=0)
models = {}
for loss in ("softmax", "topk_entropy", "topk_hinge"):
    classifier = TopKClassifier(loss, k=3, C=2.0, smoothing=0.5, random_state=0)
    models[loss] = make_pipeline(TfidfVectorizer(), classifier).fit(train, y_train)
    accuracy, gap = models[loss].score(test, y_test), classifier.duality_gap_
    print(f"{loss}: accuracy {accuracy:.3f}, gap {gap:.1e}")

features = models["softmax"][0].transform(test[:1])
print(f"{features.nnz} of {features.shape[1]} features of a text are not zero")
print("three guesses:", predict_topk(models["softmax"], test[:1])[0], "truth:", y_test[0])

figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for model in models.values():
    TopKAccuracyDisplay.from_estimator(model, test, y_test, ax=ax, most=10)
plt.show()
