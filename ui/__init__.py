"""The browser's side of search: Streamlit pages over the HTTP API."""
