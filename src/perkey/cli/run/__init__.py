"""``perkey run``: an engine with the processes of a Python file."""
