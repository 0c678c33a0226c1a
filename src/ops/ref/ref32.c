/* The specification with float storage: what backends are checked against. */
typedef float real;
#define REF_KIND "ref"
#define REF_OPEN mr_ref32_open
#include "ops/ref/ref.inc.h"
