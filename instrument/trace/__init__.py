"""Raw trace bytes -> events; one module a raw kind."""
