"""From specs to what charts draw: picks the computation that fits and shapes its result. No streamlit calls."""
