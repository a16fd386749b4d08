"""Three sparse text sets: top-1 to top-10 accuracy.

    python docs/experiments/text.py --data DIR

reads 20newsgroups_bydate.npz, banking77.npz and clinc150.npz (counts of words as CSR matrices), and
writes a .json and a .png for each of them and the tables of text.md.
"""

from common import arguments, read, unit_rows
from topk import methods, report

SETS = ("banking77", "clinc150", "20newsgroups_bydate")

if __name__ == "__main__":
    options = arguments(__doc__)
    for name in SETS:
        report(unit_rows(read(name, options.data)), methods(), options, {}, page="text")
