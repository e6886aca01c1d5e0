"""Charts: data in, picture out; neither streamlit nor torch."""
