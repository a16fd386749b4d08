"""Three sparse text sets: top-1 to top-10 accuracy.

    python docs/experiments/text.py --data DIR

reads 20newsgroups_bydate.npz, banking77.npz and clinc150.npz (counts of words as CSR matrices), and
writes a .json and a .png for each of them and the tables of text.md.
"""

from common import arguments, read, unit_rows
from topk import CS, methods, report

SETS = ("banking77", "clinc150", "20newsgroups_bydate")
ROWS = (
    "SVM-OVA",
    "LR-OVA",
    "SVM-Multi",
    "LR-Multi",
    "top-5 SVM α",
    "top-5 SVM β",
    "top-1 SVM, smooth",
    "top-5 SVM, smooth",
    "top-5 entropy",
    "top-5 truncated",
)

if __name__ == "__main__":
    options = arguments(__doc__)
    for name in SETS:
        rows = {name: loss for name, loss in methods().items() if name in ROWS}
        report(unit_rows(read(name, options.data)), rows, options, {}, CS[2:], page="text")
