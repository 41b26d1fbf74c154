"""The guest of the ``virtual`` engine: a User-Mode Linux kernel whose clock stands still while anything is computed."""
