/* AVX-512: thirty-two registers of sixteen floats. */
#define LANES 16
#define TILE_ROWS 14
#define TILE_VECS 2
#define ISA avx512
#define ISA_NAME "avx512"
#include "ops/cpu/isa.inc.h"
#include "ops/cpu/amx.inc.h"
