/* What the processor can do, by cpuid. Compilers disagree on the names for __builtin_cpu_supports, and not all of their
 * runtimes have what it needs. Asked once: under a hypervisor cpuid takes as long as a layer. */
#include "ops/cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

enum { ASKED = 1 << 16 };

/* Does the system keep these registers (bits of XCR0) when it switches threads? */
static int keeps(unsigned wanted)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}

static int find(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, YMM = 6, ZMM = 0xe6 };
    enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30, VNNI_512 = 1 << 11, VNNI = 1 << 4 };
    const unsigned VL = 1u << 31, whole = (unsigned)(F | DQ | BW) | VL;
    unsigned a, b, c, d, vnni;
    int found = ASKED;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (FMA | OSXSAVE | AVX)) != (FMA | OSXSAVE | AVX) || !keeps(YMM))
        return found;
    if (!__get_cpuid_count(7, 0, &a, &b, &vnni, &d) || !(b & AVX2)) return found;
    found |= MR_HAS_AVX2;
    if ((b & whole) == whole && keeps(ZMM)) found |= MR_HAS_AVX512 | (vnni & VNNI_512 ? MR_HAS_AVX512_VNNI : 0);
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & VNNI)) found |= MR_HAS_AVX_VNNI;
    return found;
}

int mr_cpu_features(void)
{
    static atomic_int known;
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) atomic_store_explicit(&known, found = find(), memory_order_relaxed);
    return found & ~ASKED;
}
#else
int mr_cpu_features(void) { return 0; }
#endif
