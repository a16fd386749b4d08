"""Caltech 101 Silhouettes: top-1 to top-10 accuracy of every method, next to the papers'.

    python docs/experiments/caltech101_silhouettes.py --data DIR

reads caltech101_silhouettes.npz, and writes caltech101_silhouettes.json, .png and the table of .md.
"""

from common import arguments, read
from topk import methods, report

PAPERS = {
    "SVM-Multi": (62.8, 77.8, 82.0, 86.9),
    "LR-Multi": (63.2, 81.2, 85.1, 89.7),
    "top-10 SVM α": (63.0, 80.5, 84.6, 89.1),
    "top-1 SVM, smooth": (63.9, 80.3, 84.0, 89.0),
    "top-10 entropy": (62.5, 80.8, 85.4, 90.1),
}

if __name__ == "__main__":
    options = arguments(__doc__)
    report(read("caltech101_silhouettes", options.data), methods(), options, PAPERS)
