/* Any machine: vectors of four floats, compiled to whatever the machine has. */
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECS 2
#define ISA scalar
#define ISA_NAME "scalar"
#include "ops/cpu/isa.inc.h"
