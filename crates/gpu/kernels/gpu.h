// The few things that kernels need of a device, so that one source is compiled for it and, with TOROID_SHIM, for a processor.
//
// Device code needs no header of a toolkit: special registers and barriers are PTX. On a processor each thread of a block is a fiber
// (shim/fibers.h).
#pragma once

#include "abi.h"

#ifdef TOROID_SHIM

#include <cmath>
#include <cstring>

#include "shim/fibers.h"

#define METHOD inline
#define DEVICE static METHOD
#define LAUNCH_BOUNDS(threads, blocks) threads
// A kernel, and its entry among those that a module finds by name.
#define KERNEL(name, Args, bounds)                                                            \
    static void name(const Args &args);                                                       \
    static void name##_entry(const void *args) { name(*static_cast<const Args *>(args)); }    \
    static const toroid::shim::Registration name##_registration(#name, name##_entry, bounds); \
    static void name(const Args &args)

namespace toroid {

DEVICE u32 thread_index() { return shim::current().thread; }
DEVICE u32 thread_count() { return shim::current().block->threads; }
DEVICE u32 block_index_x() { return shim::current().block->index[0]; }
DEVICE u32 block_index_y() { return shim::current().block->index[1]; }
DEVICE u32 block_index_z() { return shim::current().block->index[2]; }
DEVICE u32 block_count_x() { return shim::current().block->grid[0]; }
DEVICE u32 block_count_y() { return shim::current().block->grid[1]; }
DEVICE char *shared_memory() { return shim::current().block->shared; }
DEVICE void block_barrier_always() { shim::block_barrier(); }
DEVICE void cluster_barrier_always() { shim::cluster_barrier(); }
DEVICE u32 add_atomically(u32 *at, u32 value) {
    const u32 before = *at;
    *at = before + value;
    return before;
}
DEVICE void fence_device() {}
DEVICE u32 load_acquire(const u32 *at) {
    shim::yield();
    return *static_cast<const volatile u32 *>(at);
}
DEVICE double fused(double a, double b, double c) { return std::fma(a, b, c); }
DEVICE double nearest(double x) { return std::nearbyint(x); }
DEVICE u64 multiply_high(u64 a, u64 b) {
    return static_cast<u64>((static_cast<unsigned __int128>(a) * b) >> 64);
}
DEVICE u64 bits_of(double x) {
    u64 bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
DEVICE void prefetch(const void *) {}

}  // namespace toroid

#else

#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#define METHOD __device__ __attribute__((always_inline)) inline
#define DEVICE static METHOD
#define LAUNCH_BOUNDS(threads, blocks) __attribute__((launch_bounds(threads, blocks)))
#define KERNEL(name, Args, bounds) extern "C" __global__ void bounds name(const Args args)

extern __shared__ __attribute__((aligned(16))) char toroid_shared_bytes[];

namespace toroid {

#define SPECIAL_REGISTER(name, register)            \
    DEVICE u32 name() {                             \
        u32 value;                                  \
        asm("mov.u32 %0, %" register ";" : "=r"(value)); \
        return value;                               \
    }
SPECIAL_REGISTER(thread_index, "%tid.x")
SPECIAL_REGISTER(thread_count, "%ntid.x")
SPECIAL_REGISTER(block_index_x, "%ctaid.x")
SPECIAL_REGISTER(block_index_y, "%ctaid.y")
SPECIAL_REGISTER(block_index_z, "%ctaid.z")
SPECIAL_REGISTER(block_count_x, "%nctaid.x")
SPECIAL_REGISTER(block_count_y, "%nctaid.y")
#undef SPECIAL_REGISTER

DEVICE char *shared_memory() { return toroid_shared_bytes; }
DEVICE void block_barrier_always() { asm volatile("bar.sync 0;" ::: "memory"); }
#if TOROID_CLUSTERS
// Orders the memory operations of all threads of the cluster before it with those after it (release, acquire).
DEVICE void cluster_barrier_always() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif
DEVICE u32 add_atomically(u32 *at, u32 value) {
    u32 before;
    asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(value) : "memory");
    return before;
}
DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE u32 load_acquire(const u32 *at) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
DEVICE double fused(double a, double b, double c) {
    double sum;
    asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(sum) : "d"(a), "d"(b), "d"(c));
    return sum;
}
DEVICE double nearest(double x) {
    double integer;
    asm("cvt.rni.f64.f64 %0, %1;" : "=d"(integer) : "d"(x));
    return integer;
}
DEVICE u64 multiply_high(u64 a, u64 b) {
    u64 high;
    asm("mul.hi.u64 %0, %1, %2;" : "=l"(high) : "l"(a), "l"(b));
    return high;
}
DEVICE u64 bits_of(double x) {
    u64 bits;
    asm("mov.b64 %0, %1;" : "=l"(bits) : "d"(x));
    return bits;
}
DEVICE void prefetch(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

}  // namespace toroid

#endif

namespace toroid {

// Barriers and constants that tests take away or change, to see that they notice.
enum Fault : u32 {
    FAULT_STAGED = 1,
    FAULT_FORWARD,
    FAULT_PASS,
    FAULT_SPECTRUM,
    FAULT_SUMS,
    FAULT_INVERSE_PASS,
    FAULT_BACKWARD,
    FAULT_STEP,
    FAULT_TWIDDLE,
    FAULT_SIGN,
    FAULT_SAMPLE,
    FAULT_RAISED,
    FAULT_IMAGE,
    FAULT_BODY,
    FAULT_SECRET,
    FAULT_NODE,
    FAULT_ERRORS,
    FAULT_ABSENT,
};

// Whether what this number stands for is as it should be: always, but for tests.
#ifdef TOROID_SHIM
DEVICE bool sound(u32 number) { return shim::fault() != number; }
#else
DEVICE constexpr bool sound(u32) { return true; }
#endif

// All threads of the block.
DEVICE void block_barrier(u32 number) {
    // One thread that does not come, in place of all of them.
    if (!sound(FAULT_ABSENT) && thread_index() == 0) return;
    if (sound(number)) block_barrier_always();
}

template <class T>
DEVICE T *pointer(u64 address) {
    return reinterpret_cast<T *>(address);
}

}  // namespace toroid
