"""Letter: top-1 to top-10 accuracy of every method, next to the papers'.

    python docs/experiments/letter.py --data DIR

reads letter.npz (without --data: OpenML, with another division into 10,500 examples to train with
and 4,500 to choose C with), and writes letter.json, letter.png and the table of letter.md.
"""

from common import arguments, read
from topk import GradientSteps, methods, report

from topkopt import losses

PAPERS = {
    "SVM-Multi": (76.5, 89.2, 93.1, 97.7),
    "LR-Multi": (75.3, 90.3, 94.3, 98.0),
    "top-5 SVM α": (70.8, 91.5, 95.1, 98.4),
    "top-10 SVM α": (61.6, 88.9, 96.0, 99.6),
    "top-1 SVM, smooth": (76.8, 89.9, 93.6, 97.6),
    "top-5 entropy": (69.7, 90.9, 95.1, 98.8),
    "top-10 entropy": (65.0, 89.7, 96.2, 99.6),
    "top-3 truncated": (63.6, 91.1, 95.6, 98.8),
}
STEPPED = "top-3 truncated, 100 steps"
PAPERS[STEPPED] = PAPERS["top-3 truncated"]

if __name__ == "__main__":
    options = arguments(__doc__)
    rows = methods() | {STEPPED: GradientSteps(losses.TruncatedTopKEntropy(3), 100)}
    report(read("letter", options.data), rows, options, PAPERS)
