"""Who is first at a given objective: `make race` trains ours and its peers, and writes the page.

Every entrant minimises 1/2 |W|^2 + C sum of losses, without an intercept, on one core. Ours stops
when its duality gap is below the tolerance. A peer has no gap: it is run at each of its own
tolerances, and the fastest run whose objective is within the tolerance of the lowest one known
counts, as if its user had known which one to choose. Times are CPU seconds of the best of a few
runs. Every run is written down as it ends, and is not repeated when the race is called again.

    python asv_benches/race.py [--quick] [--results FILE] [--page FILE] [data.npz ...]
"""

import argparse
import json
import multiprocessing
import resource
import signal
import time
from pathlib import Path

import numpy as np
import scipy.sparse
from benchmarks.entrants import (
    MADE,
    PEER_TOLERANCES,
    PEERS,
    TOLERANCES,
    objective,
    standardised,
    train_ours,
    train_peer,
    unit_rows,
)
from threadpoolctl import threadpool_limits

CS = (0.1, 1.0, 10.0, 100.0)
OURS = "topkopt"
REFERENCE = 1e-7  # the gap of a run of ours that is only there for its objective
CHOLESKY = 3000  # entries of W above which newton-cholesky would not return in time
REPEATS = 7  # of runs below a second
TIMES, MORE = 3.0, 5.0  # a peer is cut off when it took so many times ours and so many seconds
ROWS = 15000  # a larger data set is cut to CUT rows
CUT = 10000
MOST = 20000  # passes of ours, which the limit of time ends before


def from_file(path):
    """Return the training part of a .npz: X_train, or the parts of a CSR matrix."""
    with np.load(path) as held:
        y = held["y_train"]
        if "X_train" in held:
            rows = len(y) if len(y) <= ROWS else CUT
            return standardised(held["X_train"][:rows]), y[:rows]
        parts = [held[f"X_train_{part}"] for part in ("data", "indices", "indptr")]
        return unit_rows(scipy.sparse.csr_array(tuple(parts), tuple(held["X_train_shape"]))), y


class Book:
    """The runs there are: CPU seconds (None: cut off) and objective of each entrant."""

    def __init__(self, path):
        self.path, self.runs = path, {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                run = json.loads(line)
                self.runs[self._key(run)] = run

    def _key(self, run):
        return tuple(run[part] for part in ("data", "loss", "C", "entrant", "tol"))

    def get(self, *key):
        """Return a run, or None."""
        return self.runs.get(key)

    def add(self, key, facts):
        """Write down a run, and return it."""
        run = {**dict(zip(("data", "loss", "C", "entrant", "tol"), key, strict=True)), **facts}
        self.runs[key] = run
        if self.path:
            with self.path.open("a") as out:
                out.write(json.dumps(run) + "\n")
        return run


def cpu_seconds(run):
    """Return the CPU seconds of the fastest of a few runs, and the result of the last.

    Those of the thread that trains: the clock of a process whose CPU time is limited only ticks,
    and runs while threads of BLAS wait for work that they do not get.
    """
    seconds, result = timed(run)
    if seconds < 1.0:  # The first run in a process also pays for what is done once.
        again = [timed(run) for _ in range(REPEATS)]
        seconds, result = min(part for part, _ in again), again[-1][1]
    return seconds, result


def timed(run):
    """Return the CPU seconds of a run, and its result."""
    begin = time.thread_time()
    result = run()
    return time.thread_time() - begin, result


def facts_of(run, limit):
    """Return the CPU seconds of the fastest of a few runs, and what it says of its result.

    It runs in a process of its own, which ends when its CPU time is used up: most entrants cannot
    be interrupted.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def entrant():
        most = int(limit) + REPEATS + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        best, judge = cpu_seconds(run)
        sender.send({"seconds": best if best <= limit else None, "limit": limit, **judge()})

    process = context.Process(target=entrant)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode not in (-signal.SIGXCPU, -signal.SIGKILL):
            raise RuntimeError(f"a run ended with code {process.exitcode}, see above") from None
        return {"seconds": None, "limit": limit}
    finally:
        process.join()


def run_of_ours(loss, X, y, C, tol):
    """Return a run of ours, which returns what is to be known of its result."""

    def run():
        solution = train_ours(loss, X, y, C, tol, max_epochs=MOST)

        def judge():
            methods = "+".join(dict.fromkeys(map(str, solution.history["method"])))
            return {
                "objective": objective(loss, X, y, solution.coef, C),
                "gap": solution.gap,
                "converged": solution.converged,
                "passes": solution.n_epochs,
                "methods": methods,
            }

        return judge

    return run


def run_of_peer(name, loss, X, y, C, tol):
    """Return a run of a peer, which returns what is to be known of its result."""

    def run():
        W = train_peer(name, X, y, C, tol)
        return lambda: {"objective": objective(loss, X, y, W, C)}

    return run


def fill(book, name, make, loss, C, entrants, limit):
    """Run what is not in the book yet of a cell."""
    data = []

    def run_or_look(entrant, tol, limit):
        key = (name, loss, C, entrant, tol)
        found = book.get(*key)
        if found is None:
            data[:] = data or make()
            if entrant == OURS:
                run = run_of_ours(loss, *data, C, tol)
            else:
                run = run_of_peer(entrant, loss, *data, C, tol)
            found = book.add(key, facts_of(run, limit))
        return found

    for tol in (*TOLERANCES, REFERENCE):
        if OURS in entrants:
            run_or_look(OURS, tol, limit)
    last = book.get(name, loss, C, OURS, min(TOLERANCES))
    if last and last["seconds"] is not None:
        limit = min(limit, TIMES * last["seconds"] + MORE)
    for peer in PEERS[loss]:
        if peer not in entrants:
            continue
        for tol in PEER_TOLERANCES:
            if peer == "newton-cholesky":
                data[:] = data or make()
                if data[0].shape[1] * (data[1].max() + 1) > CHOLESKY:
                    break
            done = run_or_look(peer, tol, limit)
            lowest = lowest_objective(book, name, loss, C)
            if done["seconds"] is None or done["objective"] <= lowest * (1 + min(TOLERANCES)):
                break


def lowest_objective(book, name, loss, C):
    """Return the lowest objective that any entrant reached in a cell."""
    cell = (name, loss, C)
    return min(
        (
            run["objective"]
            for key, run in book.runs.items()
            if key[:3] == cell and "objective" in run
        ),
        default=np.inf,
    )


class Cell:
    """The seconds of all entrants in a cell, for a tolerance."""

    def __init__(self, book, name, loss, C, tol):
        self.key, self.tol = (name, loss, C), tol
        ours = book.get(name, loss, C, OURS, tol)
        there = ours is not None and ours["seconds"] is not None and ours["converged"]
        self.ours = ours["seconds"] if there else np.inf
        self.methods = ours["methods"] if there else ""
        self.peers, self.cut = {}, {}
        lowest = lowest_objective(book, name, loss, C)
        for peer in PEERS[loss]:
            runs = [r for t in PEER_TOLERANCES if (r := book.get(name, loss, C, peer, t))]
            good = [
                run["seconds"]
                for run in runs
                if run["seconds"] is not None and run["objective"] <= lowest * (1 + tol)
            ]
            if good:
                self.peers[peer] = min(good)
            elif any(run["seconds"] is None or run["tol"] == PEER_TOLERANCES[-1] for run in runs):
                self.cut[peer] = max(r["seconds"] or r.get("limit", 0.0) for r in runs)
        self.best = min(self.peers, key=self.peers.get, default=None)
        self.ratio = self.ours / self.peers[self.best] if self.best else 0.0

    def line(self):
        """Return a line of the table."""
        (name, loss, C), best = self.key, self.best
        mine = f"{self.ours:.3g}" if np.isfinite(self.ours) else "not in time"
        shown = "–" if best is None else f"{self.peers[best]:.3g} ({best})"
        others = [f"{peer} {self.peers[peer]:.3g}" for peer in self.peers if peer != best]
        others += [f"{peer} > {self.cut[peer]:.2g}" for peer in self.cut]
        missing = "none in time" if self.cut else "not run"
        against = f"{self.ratio:.2f}" if best else missing
        others = ", ".join(others) or "–"
        cells = (name, loss, f"{C:g}", f"{self.tol:g}", mine, self.methods, shown, others, against)
        return "| " + " | ".join(cells) + " |"


def race(book, sets, Cs, losses, entrants, limit):
    """Run all entrants, and return the cells."""
    cells = []
    for name, make in sets.items():
        for loss in losses:
            for C in Cs:
                fill(book, name, make, loss, C, entrants, limit)
                for tol in TOLERANCES:
                    cells.append(Cell(book, name, loss, C, tol))
                    print(cells[-1].line(), flush=True)
    return cells


def summary(cells):
    """Say in how many cells ours is first, and how far behind it is at the most."""
    raced = [cell for cell in cells if cell.best or cell.cut]
    first = sum(cell.ratio <= 1 and np.isfinite(cell.ours) for cell in raced)
    reached = sum(np.isfinite(cell.ours) for cell in cells)
    worst = max((cell.ratio for cell in raced if np.isfinite(cell.ours)), default=0.0)
    return (
        f"Ours is first in {first} of the {len(raced)} cells in which a peer ran, and reaches the "
        f"tolerance in {reached} of {len(cells)}; where it does, the largest ratio to the best "
        f"peer is {worst:.2f}."
    )


def draw(path, name, make, C):
    """Draw how far above the optimum each entrant is against time, one panel for each loss."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    X, y = make()
    figure, panels = plt.subplots(1, len(PEERS), figsize=(9, 3.6), layout="constrained")
    for panel, loss in zip(panels, PEERS, strict=True):
        optimum = train_ours(loss, X, y, C, 1e-10).dual_value
        history = train_ours(loss, X, y, C, 1e-8).history
        above = np.maximum(history["primal"] / optimum - 1, 1e-10)
        panel.loglog(np.maximum(history["seconds"], 1e-4), above, "o-", ms=3, label=OURS)
        for peer in PEERS[loss]:
            points = []
            for tol in PEER_TOLERANCES:
                used, W = timed(lambda peer=peer, tol=tol: train_peer(peer, X, y, C, tol))
                points.append((used, objective(loss, X, y, W, C)))
            times, values = np.array(points).T
            above = np.maximum(values / (optimum * C * len(y)) - 1, 1e-10)
            panel.loglog(times, above, "s--", ms=3, label=peer)
        panel.set(title=f"{name}, {loss}, C = {C:g}", xlabel="seconds")
        panel.set_ylabel("objective above the optimum")
        panel.legend(fontsize=7)
    figure.savefig(path, dpi=90)


def write_page(page, cells, limit):
    """Put the table between the marks of the page."""
    names = "data loss C tolerance ours,&nbsp;s by best&nbsp;peer,&nbsp;s others,&nbsp;s ratio"
    cut = (
        f"A peer is cut off after {TIMES:g} times ours to {min(TOLERANCES):g} and {MORE:g} s, at "
        f"the latest after {limit:g} s; > says what it had used by then."
    )
    head = ["| " + " | ".join(names.split()) + " |", "|---" * len(names.split()) + "|"]
    table = "\n".join([f"{summary(cells)} {cut}", "", *head, *(cell.line() for cell in cells)])
    text = page.read_text()
    begin, end = text.index("<!-- race -->"), text.index("<!-- end of race -->")
    page.write_text(text[:begin] + "<!-- race -->\n" + table + "\n" + text[end:])


def main():
    """Run the race."""
    everyone = [OURS, *(peer for peers in PEERS.values() for peer in peers)]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="*", type=Path, help="more data sets, as .npz")
    parser.add_argument("--quick", action="store_true", help="digits, C = 1 only")
    parser.add_argument(
        "--made", nargs="*", choices=list(MADE), default=list(MADE), help="digits and made data"
    )
    parser.add_argument(
        "--entrants", nargs="+", choices=everyone, default=everyone, help="who runs (all)"
    )
    parser.add_argument("--results", type=Path, help="where runs are kept, and looked up")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds of a run")
    parser.add_argument("--page", type=Path, help="the page whose table is replaced")
    parser.add_argument("--picture", type=Path, help="where to draw objective against time")
    given = parser.parse_args()
    threadpool_limits(1)
    sets = {name: MADE[name] for name in (["digits"] if given.quick else given.made)}
    sets.update({path.stem: lambda path=path: from_file(path) for path in given.data})
    Cs = (1.0,) if given.quick else CS
    book = Book(given.results)
    cells = race(book, sets, Cs, PEERS, given.entrants, given.limit)
    print(summary(cells))
    if given.page:
        write_page(given.page, cells, given.limit)
    if given.picture:
        draw(given.picture, *next(iter(sets.items())), 10.0)


if __name__ == "__main__":
    main()
