"""The profiler: when to record, and the raw files of the device. Modules are loaded on first use."""
