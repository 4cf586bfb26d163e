/* A libnvidia-ml.so.1 without a GPU: what nvidia-ml-py calls in lockstep/nvml.py, and nothing else.
 *
 * $STAND_IN is a folder, shared by processes as a GPU is:
 *   log         every change asked for, one line each: "sm 0 1500 1500", "sm-reset 0", "persistence 0 1"
 *   sm-0        "min max" while the SM clock of GPU 0 is locked; persistence-0 while on
 *   busy-0      exists while GPU 0 works
 *   processes-0, ecc-0, remap-0, margin-0, reasons-0   a number: the id of a process on GPU 0, and so on
 * $STAND_IN_GPUS  number of GPUs (1)
 * $STAND_IN_SET   nvmlReturn_t of every change (0)
 * $STAND_IN_READ  nvmlReturn_t of every optional read (0)
 * $STAND_IN_SAG   under load the SM clock does not pass this many MHz, for want of power
 * Handles are 1 + index. Clocks: idle 345, base 1305, boost 1980, in steps of 15; memory 3201.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int ret;
typedef unsigned int uint;
enum { OK = 0, INVALID = 2, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { IDLE = 345, BASE = 1305, BOOST = 1980, STEP = 15, MEMORY = 3201 };
enum { GRAPHICS_CLOCK = 0, SM_CLOCK = 1, MEMORY_CLOCK = 2 };
#define TDP 0xffffff01u

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static uint index_of(void *gpu) { return (uint)((size_t)gpu - 1); }

static const char *path(const char *name, void *gpu) {
    static char text[4096];
    const char *folder = getenv("STAND_IN");
    if (!folder) abort();
    if (gpu) snprintf(text, sizeof text, "%s/%s-%u", folder, name, index_of(gpu));
    else snprintf(text, sizeof text, "%s/%s", folder, name);
    return text;
}

static int exists(const char *name, void *gpu) { return access(path(name, gpu), F_OK) == 0; }

/* The upper end of a lock, or `otherwise`. */
static uint locked(const char *name, void *gpu, uint otherwise) {
    uint low, high = otherwise;
    FILE *file = fopen(path(name, gpu), "r");
    if (!file) return otherwise;
    if (fscanf(file, "%u %u", &low, &high) != 2) abort();
    fclose(file);
    return high == TDP ? BASE : high;
}

static void say(const char *line) {
    FILE *file = fopen(path("log", NULL), "a");
    if (!file) abort();
    fprintf(file, "%s\n", line);
    fclose(file);
}

static ret change(const char *name, void *gpu, uint low, uint high, const char *refusal) {
    char line[128];
    snprintf(line, sizeof line, "%s %u %u %u", name, index_of(gpu), low, high);
    say(line);
    ret refused = (ret)setting(refusal, setting("STAND_IN_SET", OK));
    if (refused) return refused;
    FILE *file = fopen(path(name, gpu), "w");
    if (!file) abort();
    fprintf(file, "%u %u", low, high);
    fclose(file);
    return OK;
}

static ret undo(const char *name, void *gpu) {
    char line[128];
    snprintf(line, sizeof line, "%s-reset %u", name, index_of(gpu));
    say(line);
    ret refused = (ret)setting("STAND_IN_SET", OK);
    if (!refused) unlink(path(name, gpu));
    return refused;
}

static ret text(char *out, uint size, const char *value) {
    if (strlen(value) + 1 > size) return TOO_SMALL;
    strcpy(out, value);
    return OK;
}

static ret number(uint *out, uint value) {
    ret refused = (ret)setting("STAND_IN_READ", OK);
    if (!refused) *out = value;
    return refused;
}

static int sags(void *gpu) {
    long sag = setting("STAND_IN_SAG", 0);
    return sag && exists("busy", gpu) && locked("sm", gpu, BOOST) > sag;
}

/* The number in a file, or `otherwise`. */
static long stated(const char *name, void *gpu, long otherwise) {
    long value = otherwise;
    FILE *file = fopen(path(name, gpu), "r");
    if (!file) return otherwise;
    if (fscanf(file, "%ld", &value) != 1) abort();
    fclose(file);
    return value;
}

ret nvmlInitWithFlags(uint flags) { (void)flags; return OK; }
ret nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(ret code) { (void)code; return "stand-in error"; }
ret nvmlDeviceGetCount_v2(uint *count) { *count = (uint)setting("STAND_IN_GPUS", 1); return OK; }

ret nvmlDeviceGetHandleByIndex_v2(uint index, void **gpu) {
    if (index >= setting("STAND_IN_GPUS", 1)) return INVALID;
    *gpu = (void *)(size_t)(index + 1);
    return OK;
}

ret nvmlDeviceGetUUID(void *gpu, char *out, uint size) {
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012u", index_of(gpu));
    return text(out, size, uuid);
}

ret nvmlDeviceGetHandleByUUID(const char *wanted, void **gpu) {
    char uuid[64];
    for (uint i = 0; i < setting("STAND_IN_GPUS", 1); i++) {
        *gpu = (void *)(size_t)(i + 1);
        nvmlDeviceGetUUID(*gpu, uuid, sizeof uuid);
        if (!strcmp(uuid, wanted)) return OK;
    }
    return NOT_FOUND;
}

ret nvmlDeviceGetIndex(void *gpu, uint *out) { *out = index_of(gpu); return OK; }
ret nvmlDeviceGetName(void *gpu, char *out, uint size) { (void)gpu; return text(out, size, "Stand-in GPU"); }
ret nvmlSystemGetDriverVersion(char *out, uint size) { return text(out, size, "580.65.06"); }
ret nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 13020; return OK; }

ret nvmlDeviceGetVbiosVersion(void *gpu, char *out, uint size) {
    (void)gpu;
    ret refused = (ret)setting("STAND_IN_READ", OK);
    return refused ? refused : text(out, size, "96.00.A5");
}

ret nvmlDeviceGetEnforcedPowerLimit(void *gpu, uint *out) { (void)gpu; return number(out, 700000); }
ret nvmlDeviceGetPowerUsage(void *gpu, uint *out) { return number(out, exists("busy", gpu) ? 650500 : 75500); }

/* 650.5 W since the machine started, told in steps of 20 ms. */
ret nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *out) {
    (void)gpu;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned long long ms = (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
    *out = ms / 20 * 13010;
    return (ret)setting("STAND_IN_READ", OK);
}

struct temperature { uint version; uint sensor; int celsius; };
ret nvmlDeviceGetTemperatureV(void *gpu, struct temperature *out) {
    (void)gpu;
    if (out->version != 0x100000C) return INVALID;
    return number((uint *)&out->celsius, 41);
}

ret nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *out) {
    uint bits = !exists("busy", gpu) ? 0x1 : sags(gpu) ? 0x4 : 0;
    *out = bits | (uint)stated("reasons", gpu, 0);
    return (ret)setting("STAND_IN_READ", OK);
}

ret nvmlDeviceGetClockInfo(void *gpu, uint type, uint *out) {
    if (type == MEMORY_CLOCK) return number(out, MEMORY);
    if (type != SM_CLOCK) return INVALID;
    if (!exists("busy", gpu)) return number(out, IDLE);
    return number(out, sags(gpu) ? (uint)setting("STAND_IN_SAG", 0) : locked("sm", gpu, BOOST));
}

ret nvmlDeviceGetMaxClockInfo(void *gpu, uint type, uint *out) {
    (void)gpu;
    return number(out, type == MEMORY_CLOCK ? MEMORY : BOOST);
}

ret nvmlDeviceGetSupportedGraphicsClocks(void *gpu, uint memory, uint *count, uint *out) {
    (void)gpu;
    uint all = (BOOST - IDLE) / STEP + 1, room = *count;
    if (memory != MEMORY) return NOT_FOUND;
    *count = all;
    if (!out || room < all) return TOO_SMALL;
    for (uint i = 0; i < all; i++) out[i] = BOOST - i * STEP;
    return OK;
}

ret nvmlDeviceSetGpuLockedClocks(void *gpu, uint low, uint high) {
    if ((low == TDP) != (high == TDP)) return INVALID;
    return change("sm", gpu, low, high, "STAND_IN_SET");
}
ret nvmlDeviceResetGpuLockedClocks(void *gpu) { return undo("sm", gpu); }

ret nvmlDeviceGetPersistenceMode(void *gpu, uint *out) { return number(out, exists("persistence", gpu)); }
ret nvmlDeviceSetPersistenceMode(void *gpu, uint on) {
    return on ? change("persistence", gpu, 1, 1, "STAND_IN_SET") : undo("persistence", gpu);
}

struct process { uint pid; unsigned long long memory; uint instance, compute; };
ret nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, uint *count, struct process *out) {
    uint room = *count;
    *count = exists("processes", gpu);
    if (*count && room < *count) return TOO_SMALL;
    if (*count) out[0] = (struct process){.pid = (uint)stated("processes", gpu, 0)};
    return (ret)setting("STAND_IN_READ", OK);
}

ret nvmlDeviceGetTotalEccErrors(void *gpu, uint type, uint counter, unsigned long long *out) {
    if (type != 1 || counter != 0) return INVALID; /* uncorrected, since the driver was loaded */
    *out = (unsigned long long)stated("ecc", gpu, 0);
    return (ret)setting("STAND_IN_READ", OK);
}

ret nvmlDeviceGetRemappedRows(void *gpu, uint *corrected, uint *uncorrected, uint *pending, uint *failed) {
    *corrected = *uncorrected = *failed = 0;
    return number(pending, (uint)stated("remap", gpu, 0));
}

struct margin { uint version; int celsius; };
ret nvmlDeviceGetMarginTemperature(void *gpu, struct margin *out) {
    if (out->version != 0x1000008) return INVALID;
    return number((uint *)&out->celsius, (uint)stated("margin", gpu, 46));
}
