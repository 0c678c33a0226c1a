/* Any machine: four floats at a time, as the compiler sees fit. */
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECS 2
#define ISA scalar
#define ISA_NAME "scalar"
#include "ops/cpu/isa.inc.h"
