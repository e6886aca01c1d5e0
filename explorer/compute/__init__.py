"""The only place that caches: thin, bounded wrappers around posenc_core. Arrays come out read-only."""
