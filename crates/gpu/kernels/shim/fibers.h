// Kernels on a processor: each thread of a block is a fiber, and the order in which fibers go on is random.
//
// Blocks that wait for each other (a cluster, or all blocks of a cooperative launch) run interleaved, others one after the other. A fiber
// gives its turn back at barriers and in loops that wait. Shared memory begins with random bytes.
#pragma once

#include "../abi.h"

namespace toroid::shim {

// Random words from a seed.
struct Random {
    u64 state;

    u64 next() {
        // Steele, Lea, Flood 2014: SplitMix64.
        u64 z = state += 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
};

struct Block {
    u32 index[3], grid[3];
    u32 threads;
    char *shared;
};

struct Thread {
    Block *block;
    u32 thread;
};

// The fiber that runs.
const Thread &current();

void block_barrier();
void cluster_barrier();
void yield();

// The barrier or constant that is missing or wrong (gpu.h), 0 for none.
u32 &fault();

using Entry = void (*)(const void *args);

// Makes a kernel known by its name.
struct Registration {
    Registration(const char *name, Entry entry, u32 most_threads);
};

struct Kernel {
    const char *name;
    Entry entry;
    // Of a block.
    u32 most_threads;
};

// The kernel of this name, or null.
const Kernel *kernel(const char *name);

struct Launch {
    u32 grid[3];
    u32 threads;
    unsigned long shared_bytes;
    // Blocks (x) of a cluster, 1 for none.
    u32 cluster;
    // Whether all blocks may wait for each other.
    bool cooperative;
    u64 seed;
};

// Runs all blocks. False if fibers wait for a barrier that others never reach.
bool run(const Kernel &kernel, const void *args, const Launch &launch);

}  // namespace toroid::shim
