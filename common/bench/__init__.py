"""Tables of speed and memory: pairs, models and single stages, on any backend, CPU or GPU."""
