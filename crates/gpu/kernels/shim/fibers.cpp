#include "fibers.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TOROID_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TOROID_ASAN 1
#endif
#endif
#ifdef TOROID_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace toroid::shim {

namespace {

constexpr unsigned long STACK_BYTES = 128 * 1024;

enum class State : u8 { READY, AT_BLOCK_BARRIER, AT_CLUSTER_BARRIER, FINISHED };

struct Fiber {
    ucontext_t context;
    Thread thread;
    State state;
    void *fake_stack;
};

// Stacks outlive a run, for making them costs more than most runs.
struct Stacks {
    std::vector<char *> all;

    char *at(unsigned long index) {
        while (all.size() <= index) {
            void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (stack == MAP_FAILED) {
                std::perror("stack of a fiber");
                std::abort();
            }
            all.push_back(static_cast<char *>(stack));
        }
        return all[index];
    }
};

// Blocks that run interleaved.
struct Gang {
    std::vector<Fiber> fibers;
    std::vector<u32> ready;
    // Threads of each block and of each cluster that are at its barrier.
    std::vector<u32> block_waiting, cluster_waiting;
    ucontext_t scheduler;
    Fiber *running = nullptr;
    Entry entry;
    const void *args;
    Random random;
    void *scheduler_fake_stack = nullptr;
    const void *scheduler_stack = nullptr;
    unsigned long scheduler_stack_bytes = 0;
};

thread_local Gang *gang = nullptr;
thread_local Stacks stacks;

void leave([[maybe_unused]] bool for_good) {
    Fiber &fiber = *gang->running;
#ifdef TOROID_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, gang->scheduler_stack, gang->scheduler_stack_bytes);
#endif
    swapcontext(&fiber.context, &gang->scheduler);
#ifdef TOROID_ASAN
    __sanitizer_finish_switch_fiber(fiber.fake_stack, &gang->scheduler_stack, &gang->scheduler_stack_bytes);
#endif
}

void begin() {
#ifdef TOROID_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &gang->scheduler_stack, &gang->scheduler_stack_bytes);
#endif
    gang->entry(gang->args);
    gang->running->state = State::FINISHED;
    leave(true);
}

// Makes the fibers from `first` on ready, `threads` of them, once all wait for this barrier. A thread that has ended reaches no barrier:
// those that wait for it hang, as they may on a device.
void release(State waiting, u32 &arrived, u32 threads, u32 first) {
    if (arrived < threads) return;
    arrived = 0;
    for (u32 i = first; i < first + threads; i++) {
        if (gang->fibers[i].state == waiting) {
            gang->fibers[i].state = State::READY;
            gang->ready.push_back(i);
        }
    }
}

std::vector<Kernel> &kernels() {
    static std::vector<Kernel> all;
    return all;
}

// Runs `count` blocks from `first` on (x), of row y and layer z.
bool run_gang(const Kernel &kernel, const void *args, const Launch &launch, u32 first, u32 count, u32 y, u32 z, Random &random) {
    std::vector<Block> blocks(count);
    std::vector<std::unique_ptr<char[]>> shared(count);
    Gang now;
    now.fibers.resize(static_cast<unsigned long>(count) * launch.threads);
    now.block_waiting.assign(count, 0);
    now.cluster_waiting.assign(count / launch.cluster, 0);
    const u32 cluster_threads = launch.threads * launch.cluster;
    now.entry = kernel.entry;
    now.args = args;
    now.random = Random{random.next()};
    gang = &now;
    for (u32 b = 0; b < count; b++) {
        // Exactly as long as asked for, so that the address sanitizer sees what passes the end; `new` aligns to 16 bytes.
        static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 16);
        shared[b] = std::make_unique<char[]>(launch.shared_bytes);
        char *memory = shared[b].get();
        for (unsigned long i = 0; i < launch.shared_bytes; i++) memory[i] = static_cast<char>(random.next() >> 7);
        blocks[b] = Block{{first + b, y, z}, {launch.grid[0], launch.grid[1], launch.grid[2]}, launch.threads, memory};
        for (u32 t = 0; t < launch.threads; t++) {
            const u32 number = b * launch.threads + t;
            Fiber &fiber = now.fibers[number];
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = stacks.at(number);
            fiber.context.uc_stack.ss_size = STACK_BYTES;
            fiber.context.uc_link = nullptr;
            fiber.thread = Thread{&blocks[b], t};
            fiber.state = State::READY;
            fiber.fake_stack = nullptr;
            makecontext(&fiber.context, begin, 0);
            now.ready.push_back(number);
        }
    }
    u64 finished = 0;
    while (!now.ready.empty()) {
        const u64 pick = now.random.next() % now.ready.size();
        const u32 number = now.ready[pick];
        now.ready[pick] = now.ready.back();
        now.ready.pop_back();
        Fiber &fiber = now.fibers[number];
        now.running = &fiber;
#ifdef TOROID_ASAN
        __sanitizer_start_switch_fiber(&now.scheduler_fake_stack, fiber.context.uc_stack.ss_sp, STACK_BYTES);
#endif
        swapcontext(&now.scheduler, &fiber.context);
#ifdef TOROID_ASAN
        __sanitizer_finish_switch_fiber(now.scheduler_fake_stack, nullptr, nullptr);
#endif
        const u32 block = number / launch.threads, cluster = number / cluster_threads;
        switch (fiber.state) {
            case State::READY:
                now.ready.push_back(number);
                break;
            case State::AT_BLOCK_BARRIER:
                now.block_waiting[block]++;
                release(State::AT_BLOCK_BARRIER, now.block_waiting[block], launch.threads, block * launch.threads);
                break;
            case State::AT_CLUSTER_BARRIER:
                now.cluster_waiting[cluster]++;
                release(State::AT_CLUSTER_BARRIER, now.cluster_waiting[cluster], cluster_threads, cluster * cluster_threads);
                break;
            case State::FINISHED:
                finished++;
                break;
        }
    }
    gang = nullptr;
    return finished == now.fibers.size();
}

}  // namespace

const Thread &current() { return gang->running->thread; }

void block_barrier() {
    gang->running->state = State::AT_BLOCK_BARRIER;
    leave(false);
}

void cluster_barrier() {
    gang->running->state = State::AT_CLUSTER_BARRIER;
    leave(false);
}

void yield() { leave(false); }

u32 &fault() {
    static u32 number = 0;
    return number;
}

Registration::Registration(const char *name, Entry entry, u32 most_threads) { kernels().push_back({name, entry, most_threads}); }

const Kernel *kernel(const char *name) {
    const auto &all = kernels();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Kernel &one) { return std::strcmp(one.name, name) == 0; });
    return found == all.end() ? nullptr : &*found;
}

bool run(const Kernel &kernel, const void *args, const Launch &launch) {
    Random random{launch.seed};
    const u32 together = launch.cooperative ? launch.grid[0] : launch.cluster;
    for (u32 z = 0; z < launch.grid[2]; z++) {
        for (u32 y = 0; y < launch.grid[1]; y++) {
            for (u32 x = 0; x < launch.grid[0]; x += together) {
                if (!run_gang(kernel, args, launch, x, together, y, z, random)) return false;
            }
        }
    }
    return true;
}

}  // namespace toroid::shim
