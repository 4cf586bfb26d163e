window.BENCHMARK_DATA = {
 "lastUpdate": 1765796897619,
 "repoUrl": "https://github.com/invokermain/engin",
 "entries": {
  "Benchmark": [
   {
    "commit": {
     "id": "3d901d0b4465d7b822de5700e4b01dea97350b8d",
     "message": "benchmark.yaml: change token",
     "timestamp": "2025-04-27T13:23:33+01:00",
     "url": "https://github.com/invokermain/engin/commit/3d901d0b4465d7b822de5700e4b01dea97350b8d"
    },
    "date": 1745756657861,
    "tool": "pytest",
    "benches": [
     {
      "name": "tests/benchmarks/test_bench_assembler.py::test_assembler_benchmark",
      "value": 447.50333811801767,
      "unit": "iter/sec",
      "range": "stddev: 0.000063813843322612",
      "extra": "mean: 2.234620202400089 msec\nrounds: 5000"
     }
    ]
   },
   {
    "commit": {
     "id": "0f0b64637ae61174463c4eac25f5134d58c33ee3",
     "message": "v0.3.1: prepare release",
     "timestamp": "2025-11-29T13:26:38Z",
     "url": "https://github.com/invokermain/engin/commit/0f0b64637ae61174463c4eac25f5134d58c33ee3"
    },
    "date": 1764422847350,
    "tool": "pytest",
    "benches": [
     {
      "name": "tests/benchmarks/test_benchmarks.py::test_bench_assembler",
      "value": 2387.098514542651,
      "unit": "iter/sec",
      "range": "stddev: 0.00001885001052915631",
      "extra": "mean: 418.918613499951 usec\nrounds: 10000"
     },
     {
      "name": "tests/benchmarks/test_benchmarks.py::test_bench_engin",
      "value": 1145.2518054837158,
      "unit": "iter/sec",
      "range": "stddev: 0.00030272605505532284",
      "extra": "mean: 873.1704200000223 usec\nrounds: 10000"
     }
    ]
   },
   {
    "commit": {
     "id": "900c846da19191fbc367f563423f9f365343b5b6",
     "message": "v0.4.0: add support for global modifiers",
     "timestamp": "2025-12-15T11:07:24Z",
     "url": "https://github.com/invokermain/engin/commit/900c846da19191fbc367f563423f9f365343b5b6"
    },
    "date": 1765796896641,
    "tool": "pytest",
    "benches": [
     {
      "name": "tests/benchmarks/test_benchmarks.py::test_bench_assembler",
      "value": 2384.262482644114,
      "unit": "iter/sec",
      "range": "stddev: 0.000012591306136670352",
      "extra": "mean: 419.4169087000077 usec\nrounds: 10000"
     },
     {
      "name": "tests/benchmarks/test_benchmarks.py::test_bench_engin",
      "value": 1131.6045659874903,
      "unit": "iter/sec",
      "range": "stddev: 0.0006795808694726377",
      "extra": "mean: 883.7009235000338 usec\nrounds: 10000"
     }
    ]
   }
  ]
 }
}