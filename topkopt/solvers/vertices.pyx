"""Frank-Wolfe steps for the hinge losses, on vertices that are lists of classes.

Solve    max_A  F(A) = sum_i -C_i L_i*(-a_i/C_i) - |W|^2/2,    W = sum_i x_i a_i',
with v_i = -a_i/C_i in the polytope of the loss of example i.

The gradient of F in v_i is C_i times z - e_y, where z are the scores less the smoothing times v_i.
It is largest in a vertex, which gives the weights w_1 >= w_2 >= ... to classes in the order of
their scores z: the subgradient at z of the loss without smoothing. A step mixes vertices, and the
best mix along a line is the peak of a parabola.

A vertex is stored as the class in each of the k places, NOBODY where a place is empty or the
label's own; the zero vertex has nobody in any. Places of equal weight list their classes in
ascending order, so that equal vertices are equal lists.
"""
import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int32_t
from libc.string cimport memcmp

from topkopt._kernels.interrupt cimport ENTRY_WORK, PULSE, look_for_interrupt
from topkopt.losses.base cimport SIDE_BY_SIDE, START, Loss
from topkopt._kernels.real cimport real
from topkopt.solvers.epochs cimport Examples, Sums, add_rows
from topkopt._kernels.select cimport rank_of

cdef enum:
    # No class has this place of a vertex; in a list of nodes it is the end.
    NOBODY = -1
    # In the first place it tells that this is not a vertex, but the point the solver started from.
    ORIGIN = -2

cdef enum Move:
    TOWARD          # from the current point to the best vertex
    AWAY            # from the worst active vertex through the current point
    SWAP            # from the worst active vertex to the best one


# Where the vertices besides the worst one have no more than this share together, v - worst has too
# few digits to be a direction.
cdef double SLIM = 1e-8


cdef class VertexExamples(Examples):
    """Examples whose step goes towards a vertex, as far as is best.

    Parameters
    ----------
    loss, label_index, label_start, cost, square_norm, n_classes
        As for `Examples`.
    hard : Loss
        The loss without its smoothing.
    all_slots : bool
        Whether the smoothing weighs the label's entry too.
    """

    cdef Loss hard
    cdef double smoothing
    cdef bint all_slots

    def __init__(self, loss, label_index, label_start, cost, square_norm, n_classes, Loss hard,
                 bint all_slots):
        super().__init__(loss, label_index, label_start, cost, square_norm, n_classes)
        self.keeps_old = True
        self.hard = hard
        self.smoothing = loss.smoothing
        self.all_slots = all_slots

    def part(self, rows):
        """Return a slice of the examples, with scratch of its own: threads can take one each."""
        cdef VertexExamples part = super().part(rows)
        part.hard = self.hard
        part.smoothing = self.smoothing
        part.all_slots = self.all_slots
        return part

    cdef double weighed_square(self, Py_ssize_t i, const double* d) noexcept nogil:
        # Returns the part of <d,d> that the smoothing weighs.
        cdef double square = 0.0, own = d[self.labels(i).index[0]]
        cdef Py_ssize_t j
        for j in range(self.n_classes):
            square += d[j] * d[j]
        return square if self.all_slots else square - own * own

    cdef void slope(self, Py_ssize_t i, const double* v, double* z) noexcept nogil:
        # INOUT z: the scores, from which the smoothing times v is subtracted
        cdef Py_ssize_t j, y = self.labels(i).index[0]
        cdef double own = z[y]
        if self.smoothing == 0.0:
            return
        for j in range(self.n_classes):
            z[j] -= self.smoothing * v[j]
        if not self.all_slots:
            z[y] = own

    cdef double gain(self, Py_ssize_t i, const double* z, const double* d) noexcept nogil:
        # Returns <z - e_y, d>, the derivative of F in the direction d over the cost.
        cdef Py_ssize_t j
        cdef double total = -d[self.labels(i).index[0]]
        for j in range(self.n_classes):
            total += z[j] * d[j]
        return total

    cdef double bend(self, Py_ssize_t i, const double* d) noexcept nogil:
        # Returns how fast that derivative falls along d while all other examples stay.
        cdef double square = 0.0
        cdef Py_ssize_t j
        for j in range(self.n_classes):
            square += d[j] * d[j]
        return (self.square_norm[i] * self.cost[i] * square
                + self.smoothing * self.weighed_square(i, d))

    cdef void vertex(self, Py_ssize_t i, const double* z, double* v, double* work) noexcept nogil:
        cdef double[START] unused
        self.hard.row_prox(z, self.labels(i), self.n_classes, 0.0, v, unused, work)

    cdef void step(self, Py_ssize_t i, const double* q, double* v, double* work) noexcept nogil:
        cdef Py_ssize_t j, m = self.n_classes
        cdef double* z = work
        cdef double* d = work + m
        cdef double t
        for j in range(m):
            z[j] = q[j] - self.square_norm[i] * self.cost[i] * v[j]
        self.slope(i, v, z)
        self.vertex(i, z, d, d + m)
        for j in range(m):
            d[j] -= v[j]
        t = peak(self.gain(i, z, d), self.bend(i, d), 1.0)
        for j in range(m):
            v[j] += t * d[j]


cdef inline double peak(double gain, double bend, double bound) noexcept nogil:
    # Returns the t at which the parabola gain t - bend t^2/2 is largest on 0 <= t <= bound.
    if not gain > 0.0:
        return 0.0
    return gain / bend if gain < bound * bend else bound


def toward_vertices(VertexExamples examples, const real[:, ::1] s, const real[:, ::1] a,
                    real[:, ::1] d):
    """Fill d with the way from a to the best vertices; return its gain and smoothing's bend."""
    cdef Py_ssize_t i, j, m = examples.n_classes, left = PULSE
    cdef double gain = 0.0, bend = 0.0, cost
    cdef double* z = &examples.scratch[0]
    cdef double* v = z + m
    cdef double* way = v + m
    with nogil:
        for i in range(s.shape[0]):
            look_for_interrupt(&left, m * ENTRY_WORK)
            cost = examples.cost[i]
            if cost == 0.0:
                continue
            for j in range(m):
                z[j] = s[i, j]
                v[j] = -a[i, j] / cost
            examples.slope(i, v, z)
            examples.vertex(i, z, way, way + m)
            for j in range(m):
                way[j] -= v[j]
                d[i, j] = <real>(-cost * way[j])
            gain += cost * examples.gain(i, z, way)
            bend += cost * examples.smoothing * examples.weighed_square(i, way)
    return gain, bend


# Active sets --------------------------------------------------------------------------------------

cdef class ActiveSets:
    """The vertices that each example's dual block is a mix of, and their shares.

    The vertices of all examples live in one pool of nodes, chained into a list per example, so that
    memory follows the number of vertices in use.

    Parameters
    ----------
    examples : VertexExamples
        The examples.
    weights : ndarray of shape (k,)
        The weights of the places of a vertex, not increasing.
    origin : ndarray of shape (n, m) or None
        Dual blocks to start from, each of which counts as one more vertex; None starts from 0.
    n : int
        The number of examples.
    pairwise : bool
        Whether shares go from the worst vertex straight to the best (pairwise steps), or the
        better of a step to the best and a step away from the worst is taken (away steps).
    """

    cdef VertexExamples examples
    cdef const double[::1] weights
    cdef const double[:, ::1] origin
    cdef bint pairwise
    # The pool: the places of each node, its share, and the node that follows it in its list.
    cdef int32_t[:, ::1] places
    cdef double[::1] share
    cdef int32_t[::1] next_node
    cdef int32_t[::1] first_node
    cdef int32_t free_node
    cdef Py_ssize_t n_free
    # What the last proposal was: of each example the move, its ends, and how far it may go.
    cdef int32_t[:, ::1] target
    cdef int32_t[::1] best_node
    cdef int32_t[::1] worst_node
    cdef int32_t[::1] move
    cdef double[::1] step
    cdef double[::1] bound

    def __init__(self, VertexExamples examples, weights, origin, Py_ssize_t n, bint pairwise):
        cdef Py_ssize_t i, k = len(weights)
        self.examples = examples
        self.weights = weights
        self.origin = np.empty((0, 0)) if origin is None else np.asarray(origin, np.float64)
        self.pairwise = pairwise
        self.places = np.full((2 * n, k), NOBODY, np.int32)
        self.share = np.ones(2 * n)
        self.next_node = np.arange(1, 2 * n + 1, dtype=np.int32)
        self.first_node = np.arange(n, dtype=np.int32)
        self.target = np.empty((n, k), np.int32)
        self.best_node, self.worst_node, self.move = (np.empty(n, np.int32) for _ in range(3))
        self.step, self.bound = np.empty(n), np.empty(n)
        for i in range(n):
            self.next_node[i] = NOBODY
            if origin is not None:
                self.places[i, 0] = ORIGIN
        self.free_node, self.n_free = n, n

    def sizes(self):
        """Return how many vertices each example has."""
        sizes = [len(list(self._nodes(i))) for i in range(self.first_node.shape[0])]
        return np.array(sizes, np.intp)

    def vertices(self, Py_ssize_t i):
        """Return the places and the shares of the vertices of example i."""
        nodes = list(self._nodes(i))
        return np.asarray(self.places)[nodes], np.asarray(self.share)[nodes]

    def _nodes(self, Py_ssize_t i):
        node = self.first_node[i]
        while node != NOBODY:
            yield node
            node = self.next_node[node]

    cdef void spell(self, const double* v, Py_ssize_t y, int32_t* places) noexcept nogil:
        # OUT places: the vertex v as a list. Each of its entries is one of the weights.
        cdef Py_ssize_t j, place, k = self.weights.shape[0]
        for j in range(k):
            places[j] = NOBODY
        for j in range(self.examples.n_classes):
            if v[j] > 0.0 and j != y:
                place = rank_of(v[j], &self.weights[0], k)
                while places[place] != NOBODY:
                    place += 1
                places[place] = <int32_t>j

    cdef void add_vertex(self, Py_ssize_t i, const int32_t* places, double factor,
                         double* v) noexcept nogil:
        # INOUT v: factor times the vertex is added
        cdef Py_ssize_t j, y = self.examples.labels(i).index[0]
        if places[0] == ORIGIN:
            for j in range(self.examples.n_classes):
                v[j] -= factor / self.examples.cost[i] * self.origin[i, j]
            return
        for j in range(self.weights.shape[0]):
            if places[j] != NOBODY:
                v[places[j]] += factor * self.weights[j]
                v[y] -= factor * self.weights[j]

    cdef double worth(self, Py_ssize_t i, int32_t node, const double* z) noexcept nogil:
        # Returns <z - e_y, vertex>.
        cdef Py_ssize_t j, y = self.examples.labels(i).index[0]
        cdef const int32_t* places = &self.places[node, 0]
        cdef double total = 0.0
        if places[0] == ORIGIN:
            return -self.examples.gain(i, z, &self.origin[i, 0]) / self.examples.cost[i]
        for j in range(self.weights.shape[0]):
            if places[j] != NOBODY:
                total += self.weights[j] * (1.0 + (z[places[j]] - z[y]))
        return total

    cdef void look_up(self, Py_ssize_t i, const double* z) noexcept nogil:
        # Finds the nodes of the target (if it is active) and of the worst active vertex.
        cdef size_t size = self.weights.shape[0] * sizeof(int32_t)
        cdef int32_t node = self.first_node[i]
        cdef double lowest = INFINITY, worth
        self.best_node[i] = NOBODY
        while node != NOBODY:
            if memcmp(&self.places[node, 0], &self.target[i, 0], size) == 0:
                self.best_node[i] = node
            worth = self.worth(i, node, z)
            if worth < lowest:
                lowest = worth
                self.worst_node[i] = node
            node = self.next_node[node]

    cdef double choose(self, Py_ssize_t i, const double* z, const double* v, const double* best,
                       double* way) noexcept nogil:
        # Chooses the move of example i and its bound. OUT way: its direction. Returns the gain.
        cdef Py_ssize_t j, m = self.examples.n_classes
        cdef double share = self.share[self.worst_node[i]], gain, other
        if self.pairwise:
            for j in range(m):
                way[j] = best[j]
            if self.best_node[i] == self.worst_node[i]:     # There is no other vertex.
                return 0.0
            self.add_vertex(i, &self.places[self.worst_node[i], 0], -1.0, way)
            self.move[i], self.bound[i] = SWAP, share
            return self.examples.gain(i, z, way)
        for j in range(m):
            way[j] = best[j] - v[j]
        self.move[i], self.bound[i] = TOWARD, 1.0
        gain = self.examples.gain(i, z, way)
        other = self.examples.gain(i, z, v) - self.worth(i, self.worst_node[i], z)
        if 1.0 - share < SLIM or gain >= other:
            return gain
        for j in range(m):
            way[j] = v[j]
        self.add_vertex(i, &self.places[self.worst_node[i], 0], -1.0, way)
        self.move[i], self.bound[i] = AWAY, share / (1.0 - share)
        return other

    def propose(self, const real[:, ::1] s, real[:, ::1] d, double factor):
        """Fill d with moves of all examples; return their gain and the smoothing's bend.

        Each example goes `factor` of the way to the best point of its direction, as if it were
        alone, but not beyond the end of it.
        """
        cdef VertexExamples examples = self.examples
        cdef Py_ssize_t i, j, m = examples.n_classes, left = PULSE
        cdef double* z = &examples.scratch[0]
        cdef double* v = z + m
        cdef double* best = v + m
        cdef double* way = best + m
        cdef double gain = 0.0, bend = 0.0, alone, cost, rate
        with nogil:
            for i in range(s.shape[0]):
                look_for_interrupt(&left, m * ENTRY_WORK)
                cost = examples.cost[i]
                self.step[i] = 0.0
                if cost == 0.0:
                    continue
                for j in range(m):
                    z[j] = s[i, j]
                self.mix(i, v)
                examples.slope(i, v, z)
                examples.vertex(i, z, best, way)
                self.spell(best, examples.labels(i).index[0], &self.target[i, 0])
                self.look_up(i, z)
                rate = self.choose(i, z, v, best, way)
                alone = peak(rate, examples.bend(i, way), INFINITY)
                self.step[i] = min(factor * alone, self.bound[i])
                for j in range(m):
                    d[i, j] = <real>(-cost * self.step[i] * way[j])
                gain += cost * self.step[i] * rate
                bend += (cost * self.step[i] * self.step[i] * examples.smoothing
                         * examples.weighed_square(i, way))
        return gain, bend

    def accept(self, double factor, real[:, ::1] a):
        """Go `factor` of the proposed moves, and fill a with the dual blocks there."""
        cdef Py_ssize_t i, j, n = a.shape[0], m = self.examples.n_classes
        cdef double* v = &self.examples.scratch[0]
        if self.n_free < n:
            self._grow()
        with nogil:
            for i in range(n):
                if self.step[i] == 0.0:
                    continue
                self.shift_shares(i, factor * self.step[i])
                self.mix(i, v)
                for j in range(m):
                    a[i, j] = <real>(-self.examples.cost[i] * v[j])

    cdef void shift_shares(self, Py_ssize_t i, double t) noexcept nogil:
        cdef Move move = <Move>self.move[i]
        cdef bint full = t >= self.bound[i]
        if move != AWAY and self.best_node[i] == NOBODY:
            self.best_node[i] = self.new_node(i)
        if move == TOWARD:
            self.scale_shares(i, 0.0 if full else 1.0 - t)
        elif move == AWAY:
            self.scale_shares(i, 1.0 + t)
        if move != AWAY:
            self.share[self.best_node[i]] += t
        if move != TOWARD:
            self.share[self.worst_node[i]] = 0.0 if full else self.share[self.worst_node[i]] - t
        self.drop_empty(i)

    cdef void scale_shares(self, Py_ssize_t i, double factor) noexcept nogil:
        cdef int32_t node = self.first_node[i]
        while node != NOBODY:
            self.share[node] *= factor
            node = self.next_node[node]

    cdef int32_t new_node(self, Py_ssize_t i) noexcept nogil:
        # Returns a new node for the target of example i, in its list, with no share yet.
        cdef int32_t node = self.free_node
        self.free_node = self.next_node[node]
        self.n_free -= 1
        self.places[node, :] = self.target[i, :]
        self.share[node] = 0.0
        self.next_node[node] = self.first_node[i]
        self.first_node[i] = node
        return node

    cdef void drop_empty(self, Py_ssize_t i) noexcept nogil:
        # Frees the nodes without a share, and makes the shares of the others sum to 1 again.
        cdef int32_t* link = &self.first_node[i]
        cdef int32_t node
        cdef double total = 0.0
        while link[0] != NOBODY:
            node = link[0]
            if self.share[node] > 0.0:
                total += self.share[node]
                link = &self.next_node[node]
                continue
            link[0] = self.next_node[node]
            self.next_node[node] = self.free_node
            self.free_node = node
            self.n_free += 1
        self.scale_shares(i, 1.0 / total)

    cdef void mix(self, Py_ssize_t i, double* v) noexcept nogil:
        # OUT v: the mix of the vertices. It is added up anew, so that rounding does not pile up.
        cdef int32_t node = self.first_node[i]
        cdef Py_ssize_t j
        for j in range(self.examples.n_classes):
            v[j] = 0.0
        while node != NOBODY:
            self.add_vertex(i, &self.places[node, 0], self.share[node], v)
            node = self.next_node[node]

    def _grow(self):
        """Double the pool, with the new nodes in front of the free ones."""
        cdef Py_ssize_t old = self.share.shape[0]
        self.places = np.vstack([self.places, self.places])
        self.share = np.append(self.share, np.zeros(old))
        self.next_node = np.append(self.next_node, np.arange(old + 1, 2 * old + 1, dtype=np.int32))
        self.next_node[2 * old - 1] = self.free_node
        self.free_node = old
        self.n_free += old


def scores_sums(Examples examples, const real[:, ::1] s, const real[:, ::1] a):
    """Return (sum C_i L_i, sum C_i L_i*, <A, S>) from the scores s."""
    cdef Py_ssize_t first = 0, size, n = s.shape[0], m = examples.n_classes, left = PULSE
    cdef const Py_ssize_t[::1] rows = np.arange(n)
    cdef Sums sums = Sums(0.0, 0.0, 0.0)
    with nogil:
        while first < n:
            size = min(n - first, <Py_ssize_t>SIDE_BY_SIDE)
            look_for_interrupt(&left, size * m * ENTRY_WORK)
            add_rows(examples, &rows[first], size, &s[first, 0], &a[0, 0], &sums)
            first += size
    return sums.losses, sums.conjugates, sums.inner
