"""The benchmarks: one package, one workload a module, one command (run.sh)."""
