"""DeepSeek's training step with expert parallelism, in packets: what slack its communication has, and what takes it."""
