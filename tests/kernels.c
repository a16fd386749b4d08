/* The C loops without Python, for processors that the rest of the tests cannot reach.
 *
 * `make test-aarch64` compiles this for 64-bit ARM and runs it under qemu. Every loop is compared
 * with the same sum or equation in long double, written down as it stands.
 */
#include <math.h>
#include <stdio.h>

#include "entropy.h"
#include "knapsack.h"
#include "lambert.h"
#include "rows.h"
#include "rows_maxima.h"
#include "topk.h"

#define LENGTH 1003 /* Not a multiple of anything that a loop likes. */
#define EPS 2.220446049250313e-16

static int failures = 0;

static void expect(const char *what, double error, double allowed)
{
    const int fine = error <= allowed; /* NaN is not. */
    printf("%-34s %8.1e  of %.1e%s\n", what, error, allowed, fine ? "" : "  FAILED");
    failures += !fine;
}

/* Normal-looking numbers that are the same everywhere. */
static double next(void)
{
    static uint64_t state = 1;
    double sum = 0.0;
    for (int i = 0; i < 4; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(state >> 11) / 9007199254740992.0 - 0.5;
    }
    return 2.0 * sum;
}

static double b[LENGTH + 1], x[LENGTH + 1], kept[LENGTH + 1];
static float bf[LENGTH], xf[LENGTH];

static void check_lambert(void)
{
    double worst = 0.0, worstf = 0.0;
    for (int j = 0; j < LENGTH; j++)
        bf[j] = (float)(b[j] = -30.0 + 0.1 * j);
    tk_v_row(b, x, LENGTH);
    tk_v_rowf(bf, xf, LENGTH);
    for (int j = 0; j < LENGTH; j++) {
        const long double v = x[j], vf = xf[j];
        /* An error of the equation, as a relative error of V. */
        worst = fmax(worst, (double)(fabsl(v + logl(v) - b[j]) / (1 + v)));
        worstf = fmax(worstf, (double)(fabsl(vf + logl(vf) - bf[j]) / (1 + vf)));
    }
    expect("V + log V = t", worst, 4 * EPS);
    expect("the same in single precision", worstf, 4 * EPS * 536870912.0);
}

static void check_entropy(void)
{
    long double sum = 0.0L, soft = 0.0L;
    tk_totals totals = tk_entropy_pass(b, 0.3, INFINITY, x, LENGTH, LENGTH, 0);
    for (int j = 0; j < LENGTH; j++) {
        sum += x[j];
        soft += expl((long double)b[j] - 0.3L);
    }
    expect("sum of V(b - t)", fabs(totals.sum / (double)sum - 1.0), 16 * EPS);
    expect("sum of e^(b - t)", fabs(tk_exp_sum(b, 0.3, x, LENGTH) / (double)soft - 1.0), 16 * EPS);
}

static void check_rows(void)
{
    long double total = 0.0L, clipped = 0.0L, product = 0.0L;
    double most = -INFINITY;
    ptrdiff_t n_above = 0, n_free = 0, n_upper = 0, counted_free = 0, counted_upper = 0;
    for (int j = 0; j < LENGTH; j++) {
        const double v = b[j] - 0.1;
        total += b[j];
        product += (long double)b[j] * b[j];
        clipped += v < 0.0 ? 0.0 : v > 0.5 ? 0.5 : v;
        most = fmax(most, b[j]);
        n_above += b[j] > 1.0;
        counted_upper += v > 0.0 && b[j] - 0.5 >= 0.1;
        counted_free += v > 0.0 && !(b[j] - 0.5 >= 0.1);
    }
    expect("sum", fabs(sum(b, LENGTH) - (double)total), LENGTH * EPS);
    expect("dot", fabs(dot(b, b, LENGTH) - (double)product), LENGTH * EPS);
    expect("max", fabs(max_f64(b, LENGTH) - most), 0.0);
    expect("clip_sum", fabs(clip_sum_f64(b, LENGTH, 0.0, 0.1, 0.5) - (double)clipped), LENGTH * EPS);
    expect("clipped_shared", fabs(clipped_shared(b, 0.5, LENGTH, 0.1, &n_free, &n_upper)
                                  - (double)clipped), LENGTH * EPS);
    expect("how many are free, and capped", (double)((n_free != counted_free)
                                                     + (n_upper != counted_upper)), 0.0);
    expect("gather", (double)(gather_f64(b, LENGTH, 1.0, 0.0, kept) != n_above), 0.0);
    for (ptrdiff_t i = 0; i < n_above; i++)
        failures += !(kept[i] > 1.0);
}

/* (3, 1, 0) and k = 2, as in reference/jumps.py: t = -2/3 and u = 7/3. Entries come minus 3. */
static void check_topk(void)
{
    const double row[4] = {0.0, -2.0, -3.0, -INFINITY};
    const Cone_one cone = {.k = 2.0, .bias = 0.0, .max_cap = INFINITY, .shift = 3.0};
    Point_one point = {.offset = -3.5, .cap = 2.0};
    const int rests = jump_along_path(row, 4, &cone, &point);
    expect("the top-k cone by jumps", rests ? fmax(fabs(3.0 + point.offset + 2.0 / 3.0),
                                                   fabs(point.cap - 7.0 / 3.0)) : INFINITY, 8 * EPS);
}

static void check_products(void)
{
    enum { rows = 7, columns = 29 };
    double w[rows * columns], s[columns], worst = 0.0;
    for (int i = 0; i < rows * columns; i++)
        w[i] = next();
    combine_f64(b, rows, w, columns, s);
    for (int c = 0; c < columns; c++) {
        long double exact = 0.0L;
        for (int r = 0; r < rows; r++)
            exact += (long double)b[r] * w[r * columns + c];
        worst = fmax(worst, fabs(s[c] - (double)exact));
    }
    expect("x W", worst, 8 * rows * EPS);
}

int main(void)
{
    printf("loops use %s\n", tk_instructions());
    check_lambert();
    for (int j = 0; j < LENGTH; j++)
        b[j] = next();
    check_entropy();
    check_rows();
    check_topk();
    check_products();
    return failures != 0;
}
