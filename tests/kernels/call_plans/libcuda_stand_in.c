// Stand-in for NVIDIA's driver library. It loads and launches nothing, and keeps what launches were given, as bytes:
// grid, block, shared memory; stream; function; attributes; arguments, whose sizes stand_in_layout has set.
#include "cuda.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static int layout[512][64], counts[512];
static unsigned char text[1 << 16];
static int used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // Triton launches without Python's lock

void stand_in_layout(uint64_t function, const int *sizes, int n) { memcpy(layout[function & 511], sizes, n * sizeof(int)); counts[function & 511] = n; }
int stand_in_take(unsigned char *out) { int n = used; memcpy(out, text, n); used = 0; return n; }
static void put(const void *from, int size) { if (used + size < (int)sizeof text) { memcpy(text + used, from, size); used += size; } }

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
  pthread_mutex_lock(&lock);
  unsigned grid[7] = {config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes};
  put(grid, sizeof grid);
  put(&config->hStream, 8);
  put(&f, 8);
  put(&config->numAttrs, 4);
  for (unsigned i = 0; i < config->numAttrs; i++) { int pair[2] = {config->attrs[i].id, *(int *)&config->attrs[i].value}; put(pair, 8); }
  uint64_t at = (uint64_t)f & 511; for (int i = 0; i < counts[at]; i++) put(params[i], layout[at][i]);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dim, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  unsigned char *at = (unsigned char *)map;
  memset(at, 0, 128);
  memcpy(at, &address, 8);
  for (unsigned i = 0; i < rank; i++) { memcpy(at + 8 + 8 * i, dim + i, 8); memcpy(at + 48 + 4 * i, box + i, 4); }
  for (unsigned i = 0; i + 1 < rank; i++) memcpy(at + 72 + 8 * i, strides + i, 8);
  int rest[5] = {type, interleave, swizzle, promotion, fill};
  memcpy(at + 104, rest, 20);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult e, const char **s) { *s = "stand-in"; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *c) { *c = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int i) { *d = i; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p) { *(CUdeviceptr *)out = p; return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule *m, const void *image) { *m = (CUmodule)image; return CUDA_SUCCESS; }
static uintptr_t functions = 4096;
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { *f = (CUfunction)++functions; return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0; return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c) { return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
  *v = a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448 : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : 1024;
  return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveClusters(int *v, CUfunction f, const CUlaunchConfig *c) { *v = 1; return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *v, CUlimit l) { *v = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit l, size_t v) { return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, CUstream s, void **p, void **x) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *v) { *v = 13000; return CUDA_SUCCESS; }
