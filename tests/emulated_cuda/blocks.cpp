/* Runs the threads of a kernel, each on a stack of its own, in one thread of the host: a thread runs until it waits for
 * others, and then the next one does. Blocks run one after another, but for cooperative launches. With
 * MINRNN_EMULATED_ORDER=reverse the last thread and block come first: code that forgets to wait gives other results. */
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <vector>

dim3 blockDim, gridDim;

namespace emulated {

enum { STACK = 128 << 10, PAGE = 4096, WARP = 32 };
enum state { READY, AT_WARP, AT_BLOCK, DONE };

struct copy {
    void *to;
    const void *from;
    size_t bytes, there;
    int group;
};

struct warp {
    char words[2][WARP * OF_LANE];
    unsigned alive, arrived, present; /* present: when the lanes last met */
    meeting what;                     /* they meet for */
};

struct team;

struct fiber : lane {
    void *sp;
    char *stack;
    state is;
    int number, turn, groups; /* turn: exchanges so far; groups: of copies, closed so far */
    team *of;
    warp *in;
    std::vector<copy> copies;
};

struct team {
    std::vector<fiber *> fibers;
    std::vector<warp> warps;
    unsigned alive, arrived;
    int all, all_before; /* of __syncthreads_and */
    char *shared;
};

lane *now;
static const std::function<void()> *body;
static void *scheduler;
static const void *running; /* the kernel, for messages */

static fiber *mine(void) { return static_cast<fiber *>(now); }

[[noreturn]] void stop(const char *what)
{
    Dl_info file = {};
    dladdr(running, &file);
    fprintf(stderr,
            "emulated CUDA: kernel at %s+%#lx (addr2line -f names it), block (%u, %u, %u), thread (%u, %u, %u): %s\n",
            file.dli_fname, (unsigned long)((const char *)running - (const char *)file.dli_fbase), now->block.x,
            now->block.y, now->block.z, now->thread.x, now->thread.y, now->thread.z, what);
    abort();
}

/* ---- stacks */

#if defined(__x86_64__)
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n.type emulated_switch,@function\nemulated_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

static void *first_frame(char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + STACK - 8); /* as after a call */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    return top;
}

static void change(void **from, void *to) { emulated_switch(from, to); }
#else
#error "the stacks are switched for x86-64 alone"
#endif

static void to_scheduler(void) { change(&mine()->sp, scheduler); }

static void wait_as(state is)
{
    mine()->is = is;
    to_scheduler();
}

/* ---- barriers */

static void release(team *b, state waiting, const warp *in)
{
    for (fiber *f : b->fibers)
        if (f->is == waiting && (!in || f->in == in)) f->is = READY;
}

static bool met(warp *w)
{
    if (!w->arrived || w->arrived != (unsigned)__builtin_popcount(w->alive)) return false;
    w->arrived = 0;
    w->present = w->alive;
    return true;
}

static bool met(team *b)
{
    if (!b->arrived || b->arrived != b->alive) return false;
    b->arrived = 0;
    b->all_before = b->all;
    b->all = 1;
    return true;
}

static void meet_warp(meeting what, unsigned lanes)
{
    fiber *f = mine();
    if (lanes != 0xffffffffu) stop("a part of a warp meets: only whole warps are emulated");
    if (what == MATRICES && f->in->alive != 0xffffffffu) stop("an instruction for matrices needs the whole warp");
    if (f->in->arrived && f->in->what != what) stop("lanes of a warp meet for different things");
    f->in->what = what;
    f->in->arrived++;
    if (met(f->in)) release(f->of, AT_WARP, f->in);
    else wait_as(AT_WARP);
}

static int meet_block(int v)
{
    fiber *f = mine();
    f->of->all &= v != 0;
    f->of->arrived++;
    if (met(f->of)) release(f->of, AT_BLOCK, nullptr);
    else wait_as(AT_BLOCK);
    return f->of->all_before;
}

static void copy_groups(fiber *f, int until)
{
    size_t kept = 0;
    for (const copy &c : f->copies) {
        if (c.group >= until) {
            f->copies[kept++] = c;
            continue;
        }
        memcpy(c.to, c.from, c.there);
        memset((char *)c.to + c.there, 0, c.bytes - c.there);
    }
    f->copies.resize(kept);
}

static void finish(void)
{
    fiber *f = mine();
    copy_groups(f, f->groups + 1);
    f->in->alive &= ~(1u << f->number % WARP);
    f->of->alive--;
    if (met(f->in)) release(f->of, AT_WARP, f->in);
    if (met(f->of)) release(f->of, AT_BLOCK, nullptr);
    wait_as(DONE);
}

static void entry(void)
{
    (*body)();
    finish();
}

/* ---- what a kernel calls */

const char *exchange(meeting what, unsigned lanes, const void *v, size_t bytes)
{
    fiber *f = mine();
    char *words = f->in->words[f->turn++ & 1];
    memcpy(words + f->number % WARP * OF_LANE, v, bytes);
    meet_warp(what, lanes);
    return words;
}

unsigned present_lanes(void) { return mine()->in->present; }
int lane_number(void) { return mine()->number % WARP; }
void *shared_memory(void) { return mine()->of->shared; }
void let_others_run(void) { wait_as(READY); }

/* ---- running */

static char *map_pages(size_t bytes, int where)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | where, -1, 0);
    if (p == MAP_FAILED) {
        perror("emulated CUDA: mmap");
        abort();
    }
    return (char *)p;
}

static fiber *fiber_at(size_t i)
{
    static auto &all = *new std::vector<fiber *>; /* never freed */
    while (all.size() <= i) {
        fiber *f = new fiber;
        f->stack = map_pages(STACK, 0);
        mprotect(f->stack, PAGE, PROT_NONE); /* a stack that grows too far ends the program */
        all.push_back(f);
    }
    return all[i];
}

/* The dynamic shared memory of block i. It ends where a page does, and the next one cannot be touched; it holds NaN. */
static char *shared_at(size_t i, size_t bytes)
{
    enum { WHOLE = (MOST_SHARED + PAGE - 1) / PAGE * PAGE };
    static auto &all = *new std::vector<char *>;
    while (all.size() <= i) {
        char *p = map_pages(WHOLE + PAGE, MAP_32BIT);
        mprotect(p + WHOLE, PAGE, PROT_NONE);
        all.push_back(p);
    }
    const size_t room = (bytes + 127) / 128 * 128;
    char *at = all[i] + WHOLE - room;
    memset(at, 0xff, room);
    return at;
}

static bool reversed(void)
{
    static const char *order = getenv("MINRNN_EMULATED_ORDER");
    return order && !strcmp(order, "reverse");
}

static void prepare(team *b, const launch_shape &s, size_t index, size_t first, size_t slot)
{
    const size_t threads = (size_t)s.block.x * s.block.y * s.block.z;
    b->fibers.clear();
    b->warps.assign((threads + WARP - 1) / WARP, warp());
    b->alive = (unsigned)threads, b->arrived = 0, b->all = 1;
    b->shared = shared_at(slot, s.shared);
    for (size_t i = 0; i < threads; i++) {
        fiber *f = fiber_at(first + i);
        f->thread = {(unsigned)(i % s.block.x), (unsigned)(i / s.block.x % s.block.y),
                     (unsigned)(i / s.block.x / s.block.y)};
        f->block = {(unsigned)(index % s.grid.x), (unsigned)(index / s.grid.x % s.grid.y),
                    (unsigned)(index / s.grid.x / s.grid.y)};
        f->is = READY, f->number = (int)i, f->turn = f->groups = 0;
        f->of = b, f->in = &b->warps[i / WARP];
        f->in->alive |= 1u << i % WARP;
        f->copies.clear();
        f->sp = first_frame(f->stack, entry);
        b->fibers.push_back(f);
    }
}

/* Runs all threads of some blocks to their ends. */
static void run_blocks(std::vector<team> &blocks)
{
    for (bool left = true, moved = true; left;) {
        if (!moved) stop("waits for threads that will not come");
        left = moved = false;
        lane *waiting = nullptr;
        for (team &b : blocks) {
            const size_t n = b.fibers.size();
            for (size_t i = 0; i < n; i++) {
                fiber *f = b.fibers[reversed() ? n - 1 - i : i];
                if (f->is != DONE && !left) left = true, waiting = f;
                if (f->is != READY) continue;
                now = f;
                change(&scheduler, f->sp);
                moved = true;
            }
        }
        now = waiting;
    }
}

void run_kernel(const launch_shape &s, const std::function<void()> &thread, const void *kernel)
{
    const size_t count = (size_t)s.grid.x * s.grid.y * s.grid.z, threads = (size_t)s.block.x * s.block.y * s.block.z;
    body = &thread, running = kernel, blockDim = s.block, gridDim = s.grid;
    std::vector<team> blocks(s.together ? count : 1);
    for (size_t i = 0; i < count; i++) {
        const size_t at = reversed() ? count - 1 - i : i, slot = s.together ? i : 0;
        prepare(&blocks[slot], s, at, slot * threads, slot);
        if (!s.together || i + 1 == count) run_blocks(blocks);
    }
}

} // namespace emulated

using namespace emulated;

void __syncthreads(void) { meet_block(1); }
int __syncthreads_and(int v) { return meet_block(v); }
void __syncwarp(unsigned lanes) { meet_warp(BARRIER, lanes); }

unsigned __ballot_sync(unsigned lanes, int v)
{
    const char *all = exchange(BALLOT, lanes, &v, sizeof v);
    unsigned out = 0;
    for (int i = 0; i < WARP; i++) {
        int of_lane;
        memcpy(&of_lane, all + i * OF_LANE, sizeof of_lane);
        if (of_lane && present_lanes() >> i & 1) out |= 1u << i;
    }
    return out;
}

size_t __cvta_generic_to_shared(const void *p)
{
    if ((uintptr_t)p >> 32) stop("the address of static shared memory cannot be taken; use dynamic shared memory");
    return (size_t)p;
}

void ptx::copy_later(void *to, const void *from, size_t bytes, size_t there)
{
    if (((uintptr_t)to | (uintptr_t)from) % bytes) stop("a copy of 16 bytes that is not aligned");
    memset(to, 0xff, bytes); /* on a chip it may come at any time from now on */
    mine()->copies.push_back({to, from, bytes, there, mine()->groups});
}

void ptx::close_group(void) { mine()->groups++; }
void ptx::wait_for_groups(int left) { copy_groups(mine(), mine()->groups - left); }
