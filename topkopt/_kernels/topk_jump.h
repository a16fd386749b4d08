/* Pieces of the path and jumps between them, in one source for two kinds of NUMBER: a double, and
 * the four doubles of an AVX2 vector. topk.h includes this file once for each of them. What LOAD,
 * WHERE, BOTH and the other words in capitals mean is said in number_one.h and number_lanes.h. A
 * choice between two numbers is made by WHERE: a double takes one of two branches, while a vector
 * computes both and takes in each lane the one that applies.
 *
 * Equations (1) to (5) are those of reference/jumps.py.
 */

/* What the equations need to know about a piece. All values are v = b - t: those with v >= cap are
 * in U (upper), those with 0 < v < cap in M (middle) and those with v <= 0 in L (lower). The
 * extreme values tell how far t and u may move before an entry changes its place: least_above is
 * the least v > 0, of M or else of U, and most_below is the greatest v < cap, of M or else of L.
 * n_above counts U and M together. The counts are doubles because the vector units count in the
 * lanes in which they add. */
typedef struct {
    NUMBER n_upper, sum_upper, least_upper;
    NUMBER n_above, sum_middle, least_above, most_below;
    NUMBER most_lower;
} NAMED(Piece);

/* The problem that is solved: the top-k cone with bias, u <= max_cap, and entries minus shift. */
typedef struct {
    NUMBER k, bias, max_cap, shift;
} NAMED(Cone);

/* A threshold t = shift + offset and a cap u. */
typedef struct {
    NUMBER offset, cap;
} NAMED(Point);

typedef NAMED(Piece) (*NAMED(PieceAt))(const double *b, ptrdiff_t n, NUMBER offset, NUMBER cap);

/* The piece of the n entries of b, where n is a multiple of the lanes: in each lane that of every
 * LANES-th entry. Padding with -inf is in L and changes nothing else. */
TARGET NAMED(Piece) NAMED(piece_at)(const double *b, ptrdiff_t n, NUMBER offset, NUMBER cap)
{
    const NUMBER zero = ALL(0.0), one = ALL(1.0), high = ALL(INFINITY), low = ALL(-INFINITY);
    NUMBER n_upper = zero, sum_upper = zero, least_upper = high, n_above = zero;
    NUMBER sum_middle = zero, least_above = high, most_below = low, most_lower = low;
    VECTORISE(omp simd reduction(+ : n_upper, sum_upper, n_above, sum_middle)
                  reduction(min : least_upper, least_above)
                  reduction(max : most_below, most_lower))
    for (ptrdiff_t j = 0; j < n; j += LANES) {
        const NUMBER v = LOAD(b + j) - offset;
        const MASK is_upper = IS_AT_LEAST(v, cap);
        const NUMBER below_cap = WHERE(is_upper, low, v);
        n_upper += ONLY(is_upper, one);
        sum_upper += ONLY(is_upper, v);
        least_upper = LEAST(least_upper, WHERE(is_upper, v, high));
        most_below = MOST(most_below, below_cap);
        sum_middle += MOST(below_cap, zero);
        const MASK is_above = IS_LESS(zero, v);
        n_above += ONLY(is_above, one);
        least_above = LEAST(least_above, WHERE(is_above, v, high));
        most_lower = MOST(most_lower, WHERE(is_above, low, v));
    }
    return (NAMED(Piece)){n_upper,    sum_upper,   least_upper, n_above,
                          sum_middle, least_above, most_below,  most_lower};
}

/* Returns u by equation (3), without the minimum. The sums are those of b - t for the given t,
 * which need not be the solution's: with k t they make up for it. Needs n_middle >= 1. */
TARGET NUMBER NAMED(cap_on_piece)(NUMBER sum_upper, NUMBER n_upper, NUMBER sum_middle,
                                  NUMBER n_middle, const NAMED(Cone) *cone, NUMBER t)
{
    const NUMBER k = cone->k, rest = k - n_upper;
    return (n_middle * (sum_upper + k * t) + rest * sum_middle)
           / (n_middle * (cone->bias * k * k + n_upper) + rest * rest);
}

/* On a plateau, which has exactly k entries at the cap and none in M, every t between the greatest
 * of L and the least of U minus u gives the same x. It should not lie on the edge, where the next
 * row leaves the plateau, nor farther than u/2 from it, where b - t has fewer digits. Returns by
 * how much t has to grow for that; a t between the two stays. */
TARGET NUMBER NAMED(move_on_plateau)(const NAMED(Piece) *at, NUMBER u)
{
    const NUMBER zero = ALL(0.0), edge = at->least_upper - u;
    const NUMBER room = LEAST(u, edge - at->most_lower), inside = edge - 0.5 * MOST(zero, room);
    return WHERE(IS_LESS(edge, zero), inside, MOST(zero, inside));
}

/* By how much t should grow where too many entries are at the cap, and how they are spread is not
 * known. If they were u apart, t at the (n_upper - k)-th from below would leave k at the cap
 * (spread_move). If they were equal, each would get `share` of the sum k u: t should grow at least
 * until the least entry has no more than that, and at most until the largest, which is 0 - offset,
 * has no less. */
TARGET NUMBER NAMED(move_if_many)(const NAMED(Piece) *at, NUMBER k, NUMBER u, NUMBER offset)
{
    const NUMBER share = k / at->n_upper * u;
    const NUMBER spread_move = at->least_upper - (k - at->n_upper + 1.0) * u;
    return MOST(at->least_upper - share, LEAST(spread_move, -offset - share));
}

/* Solves (3) and (4) on a piece and returns by how much t has to grow. INOUT u. OUT solvable:
 * whether a piece of this kind can hold the solution. By (1) either some entries are in M and
 * fewer than k at the cap, or none is in M and exactly k at the cap (a plateau). On other pieces u
 * says nothing about the solution, so it is kept, and t alone moves towards (1). */
TARGET NUMBER NAMED(solve_on_piece)(const NAMED(Piece) *at, const NAMED(Cone) *cone,
                                    NUMBER offset, NUMBER *u, MASK *solvable)
{
    /* The d of the equations is `rest`. On a plateau it is 0, as is sum_middle, so that the
     * divisor, which must not be 0, cancels in (3). */
    const NUMBER zero = ALL(0.0), rest = cone->k - at->n_upper;
    const NUMBER n_middle = at->n_above - at->n_upper, divisor = MOST(n_middle, ALL(1.0));
    const MASK has_middle = IS_LESS(zero, n_middle), too_few = IS_LESS(zero, rest);
    *solvable = WHERE(has_middle, too_few, IS_EQUAL(rest, zero));
    const NUMBER cap = NAMED(cap_on_piece)(at->sum_upper, at->n_upper, at->sum_middle, divisor,
                                           cone, cone->shift + offset);
    *u = WHERE(*solvable, LEAST(cone->max_cap, cap), *u);
    /* Where too few entries are at the cap, the greatest of L would solve (1) if it alone were in
     * M. */
    return WHERE(has_middle, (at->sum_middle - rest * *u) / divisor,
                 WHERE(*solvable, NAMED(move_on_plateau)(at, *u),
                       WHERE(too_few, at->most_lower - rest * *u,
                             NAMED(move_if_many)(at, cone->k, *u, offset))));
}

/* Whether all entries keep their places, up to rounding, if t grows by move and the cap is u. */
TARGET MASK NAMED(is_on_piece)(const NAMED(Piece) *at, NUMBER move, NUMBER u, NUMBER slack)
{
    return BOTH(BOTH(IS_AT_MOST(at->most_lower - move, slack),
                     IS_AT_MOST(-slack, at->least_above - move)),
                BOTH(IS_AT_MOST(at->most_below - move, u + slack),
                     IS_AT_MOST(u - slack, at->least_upper - move)));
}

/* Jumps until it comes to rest, and returns whether it did. IN b: n entries minus the shift, with n
 * a multiple of 4; open: which of the rows are to be solved. INOUT point: a guess, which becomes
 * the solution, and is left as it was if there is no rest. x = 0 is told by a cap of 0. Rows in
 * other lanes go on after one has rested or failed; what it computes then is not used. */
TARGET MASK NAMED(jump)(const double *b, ptrdiff_t n, NAMED(Cone) cone, MASK open,
                        NAMED(Point) *point, NAMED(PieceAt) piece_at)
{
    const NUMBER zero = ALL(0.0);
    NUMBER offset = point->offset, cap = point->cap;
    MASK arrived = NOWHERE;
    for (int jump = 0; jump < TOPK_JUMPS && ANY(open); jump++) {
        const NAMED(Piece) at = piece_at(b, n, offset, cap);
        NUMBER u = cap;
        MASK solvable;
        NUMBER move = NAMED(solve_on_piece)(&at, &cone, offset, &u, &solvable);
        const MASK sound = BOTH(IS_LESS(zero, u), IS_LESS(SIZE(move), ALL(INFINITY)));
        /* The comparisons below subtract these three numbers, each rounded once or twice. */
        const NUMBER slack = 2 * DBL_EPSILON * (SIZE(offset) + SIZE(move) + u);
        /* The largest entry is 0, relative to the shift, and so exceeds the new t by -offset. */
        const NUMBER max_x = LEAST(u, SIZE(offset + move));
        const MASK is_near = IS_AT_MOST(SIZE(move), TOPK_FAR * max_x + slack);
        const MASK is_solved = BOTH(BOTH(BOTH(sound, solvable), is_near),
                                    NAMED(is_on_piece)(&at, move, u, slack));
        /* By (5) the sum of the k largest entries is at most the sum tested here. If that is not
         * positive, x is 0. */
        const NUMBER most = at.sum_upper + at.sum_middle + cone.k * (cone.shift + offset);
        const MASK is_zero = IS_AT_MOST(most, zero);
        const MASK rests = BOTH(open, EITHER(is_zero, is_solved));
        point->offset = WHERE(rests, WHERE(is_zero, offset, offset + move), point->offset);
        point->cap = WHERE(rests, WHERE(is_zero, zero, u), point->cap);
        arrived = EITHER(arrived, rests);
        open = BOTH(BUT_NOT(open, rests), sound);
        if (jump % TOPK_HALFWAY == TOPK_HALFWAY - 1) {
            move *= 0.5;
            u = 0.5 * u + 0.5 * cap;
        }
        offset += move;
        cap = u;
    }
    return arrived;
}

/* Whether the entries, which are relative to the shift, have kept the digits of a solution. IN b:
 * the n entries, as in jump. They are counted only where all of them together would be too many. */
TARGET MASK NAMED(keeps_digits)(const double *b, ptrdiff_t n, const NAMED(Point) *point, NUMBER k)
{
    const NUMBER zero = ALL(0.0), one = ALL(1.0), offset = point->offset, cap = point->cap;
    const NUMBER way = SIZE(offset), most = TOPK_SPREAD * k * cap;
    const MASK is_zero = IS_AT_MOST(cap, zero);
    const MASK is_near = EITHER(is_zero, IS_AT_MOST(TOPK_FEW * way, most));
    const MASK is_sure = EITHER(is_zero, IS_AT_MOST(way * (double)(n / LANES), most));
    NUMBER n_middle = zero;
    if (!ANY(BUT_NOT(is_near, is_sure)))
        return is_near;
    VECTORISE(omp simd reduction(+ : n_middle))
    for (ptrdiff_t j = 0; j < n; j += LANES) {
        const NUMBER v = LOAD(b + j) - offset;
        n_middle += ONLY(BOTH(IS_LESS(zero, v), IS_LESS(v, cap)), one);
    }
    return BOTH(is_near, EITHER(is_zero, IS_AT_MOST(way * n_middle, most)));
}
