/* AVX-512: thirty-two registers of sixteen floats. */
#define LANES 16
#define TILE_VECS 4
#define ISA avx512
#define ISA_NAME "avx512"
#include "ops/cpu/isa.inc.h"
