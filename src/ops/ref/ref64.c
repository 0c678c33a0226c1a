/* The specification with double storage: precise enough for finite differences through a whole model. */
typedef double real;
#define REF_KIND "ref64"
#define REF_OPEN mr_ref64_open
#include "ops/ref/ref.inc.h"
