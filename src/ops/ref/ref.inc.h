/* The reference backend: plain loops that read like the mathematics. Storage is `real`, every sum is a double.
 * Included once for each width of `real` (ref32.c, ref64.c). */
#include "core/mem.h"
#include "core/rng.h"
#include "ops/attn.h"
#include "ops/bf16.h"
#include "ops/device.h"

#include <math.h>
#include <string.h>

#define IN(p) ((const real *)(p))
#define OUT(p) ((real *)(p))

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

#include "ops/ref/linear.inc.h"
#include "ops/ref/activate.inc.h"
#include "ops/ref/norm_conv.inc.h"
#include "ops/ref/minrnn.inc.h"
#include "ops/ref/attn.inc.h"
#include "ops/ref/loss.inc.h"
#include "ops/ref/sscan.inc.h"
#include "ops/ref/sample.inc.h"
#include "ops/ref/rnn.inc.h"
#include "ops/ref/state.inc.h"
#include "ops/ref/cut.inc.h"
#include "ops/ref/device.inc.h"
