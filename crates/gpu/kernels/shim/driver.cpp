// A CUDA driver without a device: the functions that the back end calls, over kernels that run on the processor (fibers.h).
//
// Names, codes and layouts are those of the driver API (NVIDIA, CUDA Driver API reference manual). Work is done when it is asked for, so
// that streams and events order nothing; memory of the "device" is the process's own, filled with random bytes.
#include "fibers.h"

#include "../toroid.cu"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

using toroid::u32;
using toroid::u64;

namespace {

using Result = int;
constexpr Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
                 INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719, COOPERATIVE_TOO_LARGE = 720;

struct State {
    std::mutex mutex;
    // What toroid_shim_configure sets.
    std::map<std::string, long long> settings{{"devices", 1},   {"capability", 90},  {"driver", 13000}, {"memory", 4ll << 30},
                                              {"processors", 8}, {"fail_launch", 0}, {"seed", 1},       {"shared", 232448}, {"fault", 0}};
    bool initialized = false;
    Result sticky = SUCCESS;
    u64 launches = 0;
    struct Memory {
        unsigned long bytes;
        int device;
    };
    std::map<u64, Memory> memory;
    // Bytes by device.
    std::map<int, unsigned long> used;
    // How often the primary context of a device was retained and not released.
    std::map<int, int> retained;
    // Launches that do steps of blind rotations: all, those waited for, and the most that were not at a time.
    u64 rotations = 0, waited = 0, outstanding = 0;
    // Called at the beginning of the rotation of this number, from 1.
    u64 call_at = 0;
    void (*call)(void *) = nullptr;
    void *argument = nullptr;
};

State &state() {
    static State the;
    return the;
}

// What every call after cuInit begins with.
Result ready() {
    if (!state().initialized) return NOT_INITIALIZED;
    return state().sticky;
}

long long setting(const char *key) { return state().settings.at(key); }

struct Event {
    std::chrono::steady_clock::time_point at;
    // Rotations that were launched before.
    u64 rotations;
};

// The device of the calling thread's context.
thread_local int current_device = 0;

// Takes back all that the context of a device holds, and what made it useless.
void destroy_context(int device) {
    auto &memory = state().memory;
    for (auto each = memory.begin(); each != memory.end();) {
        if (each->second.device != device) {
            ++each;
            continue;
        }
        std::free(reinterpret_cast<void *>(each->first));
        each = memory.erase(each);
    }
    state().used[device] = 0;
    state().sticky = SUCCESS;
}

void wait_for(u64 rotations) {
    if (state().waited < rotations) state().waited = rotations;
}

// The driver's launch configuration and attributes.
struct Attribute {
    int id;
    char padding[4];
    union {
        char bytes[64];
        struct {
            u32 x, y, z;
        } cluster;
        int cooperative;
    } value;
};
static_assert(sizeof(Attribute) == 72);
struct Configuration {
    u32 grid[3], block[3], shared_bytes;
    void *stream;
    Attribute *attributes;
    u32 count;
};
static_assert(sizeof(Configuration) == 56);
constexpr int ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4;

struct Properties {
    unsigned long dynamic_shared = 48 * 1024;
    bool large_clusters = false;
};
std::map<const void *, Properties> properties;

u32 resident_blocks(u32 threads, unsigned long shared) {
    const u32 by_threads = 2048 / (threads == 0 ? 1 : threads);
    const u32 by_memory = static_cast<u32>(static_cast<unsigned long>(setting("shared")) / (shared + 1024));
    return by_threads < by_memory ? by_threads : by_memory;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) Result

// Sets a property of the process's devices: see `State`. "fail_launch" makes the launch so many from now fail, 1 for the next.
extern "C" __attribute__((visibility("default"))) int toroid_shim_configure(const char *key, long long value) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().settings.find(key);
    if (found == state().settings.end()) return -1;
    found->second = value;
    toroid::shim::fault() = static_cast<u32>(setting("fault"));
    return 0;
}

// How many launches did steps of blind rotations, or with "outstanding" the most of them on their way at a time.
extern "C" __attribute__((visibility("default"))) long long toroid_shim_figure(const char *key) {
    const std::lock_guard lock(state().mutex);
    return static_cast<long long>(std::string(key) == "outstanding" ? state().outstanding : state().rotations);
}

// Has a function called at the beginning of the rotation of this number, from 1 for the next one. Figures count from here.
extern "C" __attribute__((visibility("default"))) void toroid_shim_call_at(u64 rotation, void (*call)(void *), void *argument) {
    const std::lock_guard lock(state().mutex);
    state().rotations = state().waited = state().outstanding = 0;
    state().call_at = rotation;
    state().call = call;
    state().argument = argument;
}

API cuInit(u32) {
    const std::lock_guard lock(state().mutex);
    if (setting("devices") == 0) return NO_DEVICE;
    state().initialized = true;
    return SUCCESS;
}

API cuDriverGetVersion(int *version) {
    const std::lock_guard lock(state().mutex);
    *version = static_cast<int>(setting("driver"));
    return SUCCESS;
}

API cuDeviceGetCount(int *count) {
    const std::lock_guard lock(state().mutex);
    if (!state().initialized) return NOT_INITIALIZED;
    *count = static_cast<int>(setting("devices"));
    return SUCCESS;
}

API cuDeviceGet(int *device, int ordinal) {
    const std::lock_guard lock(state().mutex);
    if (ordinal < 0 || ordinal >= setting("devices")) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

API cuDeviceGetName(char *name, int length, int) {
    std::strncpy(name, "processor", static_cast<size_t>(length));
    return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, int) {
    const std::lock_guard lock(state().mutex);
    *bytes = static_cast<size_t>(setting("memory"));
    return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int attribute, int) {
    const std::lock_guard lock(state().mutex);
    const int capability = static_cast<int>(setting("capability"));
    switch (attribute) {
        case 1: *value = 1024; break;                                      // MAX_THREADS_PER_BLOCK
        case 8: *value = 48 * 1024; break;                                 // MAX_SHARED_MEMORY_PER_BLOCK
        case 10: *value = 32; break;                                       // WARP_SIZE
        case 13: *value = 1000000; break;                                  // CLOCK_RATE
        case 16: *value = static_cast<int>(setting("processors")); break;  // MULTIPROCESSOR_COUNT
        case 36: *value = 1000000; break;                                  // MEMORY_CLOCK_RATE
        case 37: *value = 64; break;                                       // GLOBAL_MEMORY_BUS_WIDTH
        case 38: *value = 50 << 20; break;                                 // L2_CACHE_SIZE
        case 39: *value = 2048; break;                                     // MAX_THREADS_PER_MULTIPROCESSOR
        case 75: *value = capability / 10; break;                          // COMPUTE_CAPABILITY_MAJOR
        case 76: *value = capability % 10; break;                          // COMPUTE_CAPABILITY_MINOR
        case 81: *value = static_cast<int>(setting("shared")) + 1024; break;  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        case 87: *value = 2; break;                                        // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        case 95: *value = 1; break;                                        // COOPERATIVE_LAUNCH
        case 97: *value = static_cast<int>(setting("shared")); break;      // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        case 120: *value = capability >= 90; break;                        // CLUSTER_LAUNCH
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}

API cuDevicePrimaryCtxRetain(void **context, int device) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    *context = reinterpret_cast<void *>(static_cast<u64>(device) + 1);
    state().retained[device]++;
    return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int device) {
    const std::lock_guard lock(state().mutex);
    int &retained = state().retained[device];
    if (retained == 0) return INVALID_CONTEXT;
    if (--retained == 0) destroy_context(device);
    return SUCCESS;
}

API cuDevicePrimaryCtxReset_v2(int device) {
    const std::lock_guard lock(state().mutex);
    destroy_context(device);
    return SUCCESS;
}

API cuCtxSetCurrent(void *context) {
    current_device = static_cast<int>(reinterpret_cast<u64>(context)) - 1;
    return SUCCESS;
}

API cuCtxSynchronize() {
    const std::lock_guard lock(state().mutex);
    return ready();
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    *total = static_cast<size_t>(setting("memory"));
    *free = *total - state().used[current_device];
    return SUCCESS;
}

API cuMemAlloc_v2(u64 *address, size_t bytes) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    if (bytes == 0) return INVALID_VALUE;
    if (state().used[current_device] + bytes > static_cast<size_t>(setting("memory"))) return OUT_OF_MEMORY;
    char *memory = static_cast<char *>(std::malloc(bytes));
    if (memory == nullptr) return OUT_OF_MEMORY;
    for (size_t i = 0; i < bytes; i++) memory[i] = static_cast<char>(i * 167 + 91);
    *address = reinterpret_cast<u64>(memory);
    state().memory[*address] = {bytes, current_device};
    state().used[current_device] += bytes;
    return SUCCESS;
}

API cuMemFree_v2(u64 address) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().memory.find(address);
    if (found == state().memory.end()) return INVALID_VALUE;
    state().used[found->second.device] -= found->second.bytes;
    state().memory.erase(found);
    std::free(reinterpret_cast<void *>(address));
    return SUCCESS;
}

API cuMemHostAlloc(void **memory, size_t bytes, u32) {
    *memory = std::malloc(bytes);
    return *memory == nullptr ? OUT_OF_MEMORY : SUCCESS;
}

API cuMemFreeHost(void *memory) {
    std::free(memory);
    return SUCCESS;
}

namespace {

// Whether these bytes are within one allocation.
bool allocated(u64 address, size_t bytes) {
    auto after = state().memory.upper_bound(address);
    if (after == state().memory.begin()) return false;
    --after;
    return address + bytes <= after->first + after->second.bytes;
}

}  // namespace

API cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    if (!allocated(to, bytes)) return INVALID_VALUE;
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return SUCCESS;
}

API cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    if (!allocated(from, bytes)) return INVALID_VALUE;
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
    return SUCCESS;
}

API cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, void *) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    if (!allocated(to, bytes)) return INVALID_VALUE;
    std::memset(reinterpret_cast<void *>(to), value, bytes);
    return SUCCESS;
}

API cuStreamCreate(void **stream, u32) {
    *stream = new char;
    return SUCCESS;
}

API cuStreamSynchronize(void *) {
    const std::lock_guard lock(state().mutex);
    wait_for(state().rotations);
    return ready();
}

API cuStreamQuery(void *) {
    const std::lock_guard lock(state().mutex);
    return ready();
}

API cuStreamDestroy_v2(void *stream) {
    delete static_cast<char *>(stream);
    return SUCCESS;
}

API cuEventCreate(void **event, u32) {
    *event = new Event{};
    return SUCCESS;
}

API cuEventRecord(void *event, void *) {
    const std::lock_guard lock(state().mutex);
    *static_cast<Event *>(event) = {std::chrono::steady_clock::now(), state().rotations};
    return SUCCESS;
}

API cuEventSynchronize(void *event) {
    const std::lock_guard lock(state().mutex);
    wait_for(static_cast<Event *>(event)->rotations);
    return ready();
}

API cuEventQuery(void *) {
    const std::lock_guard lock(state().mutex);
    return ready();
}

API cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    const std::chrono::duration<float, std::milli> time = static_cast<Event *>(to)->at - static_cast<Event *>(from)->at;
    *milliseconds = time.count();
    return SUCCESS;
}

API cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) { return cuEventElapsedTime(milliseconds, from, to); }

API cuEventDestroy_v2(void *event) {
    delete static_cast<Event *>(event);
    return SUCCESS;
}

API cuModuleLoadDataEx(void **module, const void *image, u32, int *, void **) {
    const std::lock_guard lock(state().mutex);
    if (const Result result = ready(); result != SUCCESS) return result;
    if (image == nullptr) return INVALID_VALUE;
    *module = new char;
    return SUCCESS;
}

API cuModuleUnload(void *module) {
    delete static_cast<char *>(module);
    return SUCCESS;
}

API cuModuleGetFunction(void **function, void *, const char *name) {
    const toroid::shim::Kernel *kernel = toroid::shim::kernel(name);
    if (kernel == nullptr) return NOT_FOUND;
    *function = const_cast<toroid::shim::Kernel *>(kernel);
    return SUCCESS;
}

API cuFuncSetAttribute(void *function, int attribute, int value) {
    const std::lock_guard lock(state().mutex);
    if (attribute == 8) {  // MAX_DYNAMIC_SHARED_SIZE_BYTES
        if (value > setting("shared")) return INVALID_VALUE;
        // All modules have the same functions here: what one of them is allowed, another must not lose.
        unsigned long &most = properties[function].dynamic_shared;
        if (static_cast<unsigned long>(value) > most) most = static_cast<unsigned long>(value);
    } else if (attribute == 14) {  // NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        properties[function].large_clusters = value != 0;
    }
    return SUCCESS;
}

API cuFuncGetAttribute(int *value, int attribute, void *function) {
    const u32 most = static_cast<const toroid::shim::Kernel *>(function)->most_threads;
    *value = attribute == 0 ? static_cast<int>(most) : 0;  // MAX_THREADS_PER_BLOCK
    return SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int threads, size_t shared) {
    const std::lock_guard lock(state().mutex);
    *blocks = static_cast<int>(resident_blocks(static_cast<u32>(threads), shared));
    return SUCCESS;
}

API cuOccupancyMaxActiveClusters(int *clusters, void *, const Configuration *launch) {
    const std::lock_guard lock(state().mutex);
    u32 size = 1;
    for (u32 i = 0; i < launch->count; i++) {
        if (launch->attributes[i].id == ATTRIBUTE_CLUSTER) size = launch->attributes[i].value.cluster.x;
    }
    const u32 blocks = resident_blocks(launch->block[0], launch->shared_bytes) * static_cast<u32>(setting("processors"));
    *clusters = static_cast<int>(blocks / size);
    return SUCCESS;
}

API cuLaunchKernelEx(const Configuration *launch, void *function, void **parameters, void **) {
    toroid::shim::Launch what{{launch->grid[0], launch->grid[1], launch->grid[2]}, launch->block[0], launch->shared_bytes, 1, false, 0};
    {
        const std::lock_guard lock(state().mutex);
        if (const Result result = ready(); result != SUCCESS) return result;
        for (u32 i = 0; i < launch->count; i++) {
            const Attribute &attribute = launch->attributes[i];
            if (attribute.id == ATTRIBUTE_CLUSTER) what.cluster = attribute.value.cluster.x;
            if (attribute.id == ATTRIBUTE_COOPERATIVE) what.cooperative = attribute.value.cooperative != 0;
        }
        const Properties own = properties[function];
        const u32 most = resident_blocks(what.threads, what.shared_bytes) * static_cast<u32>(setting("processors"));
        if (what.shared_bytes > own.dynamic_shared || what.threads == 0 ||
            what.threads > static_cast<const toroid::shim::Kernel *>(function)->most_threads || launch->block[1] != 1 ||
            launch->block[2] != 1 || what.grid[0] == 0 || what.grid[1] == 0 || what.grid[2] == 0 || what.cluster == 0 ||
            what.grid[0] % what.cluster != 0 || (what.cluster > 1 && setting("capability") < 90) ||
            what.cluster > (own.large_clusters ? 16u : 8u)) {
            return INVALID_VALUE;
        }
        if (what.cooperative && what.grid[0] > most) return COOPERATIVE_TOO_LARGE;
        long long &failing = state().settings.at("fail_launch");
        if (failing > 0 && --failing == 0) return state().sticky = LAUNCH_FAILED;
        what.seed = static_cast<u64>(setting("seed")) * 1000003 + state().launches++;
    }
    const auto &kernel = *static_cast<const toroid::shim::Kernel *>(function);
    if (std::strncmp(kernel.name, "rotate_", 7) == 0) {
        State &now = state();
        std::unique_lock lock(now.mutex);
        now.rotations++;
        if (now.outstanding < now.rotations - now.waited) now.outstanding = now.rotations - now.waited;
        if (now.rotations == now.call_at) {
            lock.unlock();
            now.call(now.argument);
        }
    }
    if (toroid::shim::run(kernel, parameters[0], what)) return SUCCESS;
    const std::lock_guard lock(state().mutex);
    // Threads that wait for ever: a device would be reset.
    return state().sticky = LAUNCH_FAILED;
}

API cuGetErrorName(Result code, const char **name) {
    switch (code) {
        case SUCCESS: *name = "CUDA_SUCCESS"; break;
        case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
        case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
        case NOT_INITIALIZED: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
        case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
        case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
        case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
        case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
        case LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
        case COOPERATIVE_TOO_LARGE: *name = "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"; break;
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}

API cuGetErrorString(Result code, const char **text) { return cuGetErrorName(code, text); }
