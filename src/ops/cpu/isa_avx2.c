/* AVX2 with FMA: sixteen registers of eight floats. */
#define LANES 8
#define TILE_ROWS 4
#define TILE_VECS 3
#define ISA avx2
#define ISA_NAME "avx2"
#include "ops/cpu/isa.inc.h"
