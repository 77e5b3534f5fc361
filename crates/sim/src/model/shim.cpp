// The C interface of a verilated model. Included behind "model.h", which defines TOP_HEADER, ROOT_HEADER, PORTS and TRACE.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdarg>
#include <cstring>
#include <string>

#include TOP_HEADER
#include ROOT_HEADER
#if TRACE
#include "verilated_vcd_c.h"
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Stopped {};

struct Simulation {
    VerilatedContext context;
    Vtop* top = nullptr;
#if TRACE
    VerilatedVcdC* trace = nullptr;
#endif
    std::string log;
    uint32_t stopped = 0;
};

// Whose output it is that the run-time prints: a simulation may move from thread to thread.
thread_local Simulation* current = nullptr;

void enter(Simulation* simulation) {
    if (current != simulation) {
        current = simulation;
        Verilated::threadContextp(&simulation->context);
    }
}

// The state of a model that is left in the midst of an evaluation means nothing: it is not evaluated again.
[[noreturn]] void stop(const char* file, int line, const char* message) {
    if (current) {
        current->stopped = 1;
        if (message && *message) {
            current->log += std::string(file ? file : "") + ":" + std::to_string(line) + ": " + message + "\n";
        }
    }
    throw Stopped{};
}

}  // namespace

int toroid_print(const char* format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (current && current->log.size() < (1 << 20)) current->log += line;
    return length;
}

void vl_finish(const char* file, int line, const char*) { stop(file, line, "the design called $finish"); }
void vl_stop(const char* file, int line, const char*) { stop(file, line, ""); }
// The run-time warns of files that lack or do not fit: a design with half its data computes something else.
void vl_warn(const char* file, int line, const char*, const char* message) { stop(file, line, message); }
void vl_fatal(const char* file, int line, const char*, const char* message) { stop(file, line, message); }

struct Port {
    const char* name;
    uint64_t offset;
    uint32_t bits;
    uint32_t bytes;
    uint32_t is_output;
};

EXPORT const Port* toroid_ports(uint64_t* count) {
    static const Port ports[] = {PORTS{nullptr, 0, 0, 0, 0}};
    *count = sizeof ports / sizeof ports[0] - 1;
    return ports;
}

EXPORT Simulation* toroid_new(uint32_t random, uint32_t seed) {
    auto* const simulation = new Simulation;
    enter(simulation);
    simulation->context.randReset(random ? 2 : 0);
    simulation->context.randSeed(static_cast<int>(seed));
#if TRACE
    simulation->context.traceEverOn(true);
#endif
    simulation->top = new Vtop{&simulation->context, "TOP"};
    return simulation;
}

EXPORT void* toroid_root(Simulation* simulation) { return simulation->top->rootp; }

// 0, or 1 if the model has stopped, in which case it does nothing any more.
EXPORT uint32_t toroid_eval(Simulation* simulation) {
    if (simulation->stopped) return simulation->stopped;
    enter(simulation);
    try {
        simulation->top->eval();
    } catch (const Stopped&) {
    }
    return simulation->stopped;
}

EXPORT uint64_t toroid_log(Simulation* simulation, char* buffer, uint64_t capacity) {
    const uint64_t length = simulation->log.size();
    memcpy(buffer, simulation->log.data(), length < capacity ? length : capacity);
    return length;
}

EXPORT uint32_t toroid_trace(Simulation* simulation, const char* path) {
#if TRACE
    enter(simulation);
    if (!simulation->trace) {
        simulation->trace = new VerilatedVcdC;
        simulation->top->trace(simulation->trace, 99);
    }
    simulation->trace->open(path);
    return simulation->trace->isOpen();
#else
    (void)simulation, (void)path;
    return 0;
#endif
}

EXPORT void toroid_dump(Simulation* simulation, uint64_t time) {
#if TRACE
    if (simulation->trace) {
        enter(simulation);
        simulation->trace->dump(time);
    }
#else
    (void)simulation, (void)time;
#endif
}

EXPORT void toroid_delete(Simulation* simulation) {
    enter(simulation);
    if (!simulation->stopped) {
        try {
            simulation->top->final();
        } catch (const Stopped&) {
        }
    }
#if TRACE
    if (simulation->trace) {
        simulation->trace->close();
        delete simulation->trace;
    }
#endif
    delete simulation->top;
    delete simulation;
    current = nullptr;
}
