/* Detects AMX with bf16, and asks the operating system for permission to use its tiles. */
#define _GNU_SOURCE /* syscall */

#include "ops/cpu/cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static int machine_has_amx(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE)) return 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16);
}

int mr_cpu_has_amx(void)
{
    enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    return machine_has_amx() && !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
}
#else
int mr_cpu_has_amx(void) { return 0; }
#endif
