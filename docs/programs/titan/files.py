"""Writes a tokenizer of characters and random words for TorchTitan: ``python files.py FOLDER``."""

import json
import random
import string
import sys
from pathlib import Path

DOCUMENTS, WORDS = 512, 400
SPACE = "\u0120"  # As BPE on bytes writes it.

folder = Path(sys.argv[1])
tokenizer, text = folder / "tokenizer", folder / "text"
for made in (tokenizer, text):
    made.mkdir(parents=True, exist_ok=True)
characters = [*string.ascii_lowercase, SPACE]
(tokenizer / "vocab.json").write_text(json.dumps({one: number for number, one in enumerate(characters)}))
(tokenizer / "merges.txt").write_text("#version: 0.2\n")
drawn = random.Random(1)
with (text / "data.json").open("w") as file:
    for _ in range(DOCUMENTS):
        words = ("".join(drawn.choices(string.ascii_lowercase, k=drawn.randint(2, 9))) for _ in range(WORDS))
        file.write(json.dumps({"text": " ".join(words)}) + "\n")
