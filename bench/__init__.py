"""The benchmarks: each workload is a module of this package, and run.sh is the command for all of them."""
