"""What a run lives in: its private world in either engine, and how it talks to that world's kernel."""
