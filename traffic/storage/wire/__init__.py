"""What storage's programs send each other: frames, messages, calls and the links that carry them."""
