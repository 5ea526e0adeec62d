"""Public numbers in, noise scales out. Nothing here sees a row or draws a bit."""
