"""When to trace, and what the device says. Only what is needed on first use is loaded."""
