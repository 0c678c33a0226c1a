/* NEON on AArch64: thirty-two registers of four floats. */
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECS 4
#define ISA neon
#define ISA_NAME "neon"
#include "ops/cpu/isa.inc.h"
