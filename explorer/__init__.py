"""The app: widgets, charts and words around posenc_core."""
